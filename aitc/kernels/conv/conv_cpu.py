"""Convolution on the processor: an implicit matrix product on packed filters (include/aitc/cpu/conv.h)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aitc.ir.cpp import c_expr
from aitc.ir.dim import Dim, hint, mul, product
from aitc.ir.graph import Node
from aitc.kernels.conv.convolution import ConvForm, ConvProblem, RunTimeFilter, conv_form, filter_root, run_time_filter
from aitc.kernels.core import kernel as k
from aitc.kernels.core.functor import Parameters, StorageOf
from aitc.kernels.core.group import Group
from aitc.kernels.core.sites import constant_array, member, store_functor
from aitc.kernels.core.structs import int_struct
from aitc.kernels.matmul.gemm_cpu import CPU_TILES, CpuTile, pack_panels, product_us
from aitc.targets.target import Target


def window_struct(p: ConvProblem, parameters: Parameters) -> tuple[tuple[str, ...], str]:
    """struct Window of the convolution headers, and the expression that makes one."""
    names = {
        "T": p.window[0], "R": p.window[1], "S": p.window[2], "stride_d": p.stride[0], "stride_h": p.stride[1], "stride_w": p.stride[2],
        "dilation_d": p.dilation[0], "dilation_h": p.dilation[1], "dilation_w": p.dilation[2],
        "pad_d": p.pad[0], "pad_h": p.pad[1], "pad_w": p.pad[2],
    }  # fmt: skip
    return int_struct("Window", names, parameters)


def conv_sizes(p: ConvProblem) -> dict[str, Dim]:
    """Members of struct Shape of the convolution headers."""
    return {
        "batch": p.N, "D": p.input[0], "H": p.input[1], "W": p.input[2], "O": p.output[0], "P": p.output[1], "Q": p.output[2],
        "C": p.C, "K": p.K, "groups": p.group,
    }  # fmt: skip


def input_struct(form: ConvForm, parameters: Parameters) -> tuple[tuple[str, ...], str]:
    """struct X of the convolution headers: where pixels lie."""
    pointer = parameters.pointer(form.root, const=True)
    c_type = form.root.type.dtype.c
    offset = c_expr(form.offset, parameters.dim)
    lines = ["struct X {  // (N, D, H, W, C)", f"  using type = {c_type};", f"  const {c_type}* data;"]
    init = [pointer if offset == "0" else f"{pointer} + {offset}"]
    for label, d in zip(("stride_n", "stride_d", "stride_h", "stride_w"), form.strides, strict=True):
        declaration, value = member("int64_t", label, d, parameters)
        lines.append("  " + declaration)
        if value is not None:
            init.append(value)
    lines.append("};")
    return tuple(lines), f"X{{{', '.join(init)}}}"


@k.register
class ConvCpu(k.Kernel):
    name = "conv_cpu"
    template = "kernel"
    requires = frozenset({"cpu"})
    anchors = frozenset({"Conv"})
    doc = "convolution on the processor: implicit matrix product, channels last, any window, groups"

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> ConvProblem | k.No:
        assert group.anchor is not None
        form = conv_form(group.anchor, storage)
        if isinstance(form, k.No):
            return form
        if filter_root(group.anchor) is None:
            filters = run_time_filter(group.anchor, storage)
            if isinstance(filters, k.No):
                return filters
        return form.problem

    def configs(self, problem: ConvProblem, target: Target) -> Sequence[CpuTile]:
        return CPU_TILES

    def score_us(self, problem: ConvProblem, config: CpuTile, target: Target) -> float:
        flops = 2 * hint(problem.pixels) * problem.K * problem.group * problem.C * product(problem.window)
        return product_us(hint(flops), target)

    def build(
        self, group: Group, problem: ConvProblem, config: CpuTile, storage: StorageOf, target: Target
    ) -> k.Draft:
        assert group.anchor is not None
        form = conv_form(group.anchor, storage)
        assert isinstance(form, ConvForm)
        parameters = Parameters()
        x, make_x = input_struct(form, parameters)
        p = problem
        taps = p.window[0] * p.window[1] * p.window[2]
        filters, make_filter, packed = self._filter(group.anchor, p, parameters, storage)
        window, make_window = window_struct(p, parameters)
        sizes, make_sizes = int_struct("Shape", conv_sizes(p), parameters)
        store = store_functor(
            group, form.index, form.coords, parameters, storage, target, "int group, int64_t row, int64_t col"
        )
        call = (
            f"conv<{config.text}>({make_sizes}, {make_window}, {make_x}, {make_filter}, Store{{{', '.join(store.initializers)}}});",
        )
        context = k.Context(
            "", k.banner(group), ("aitc/cpu/conv.h", "aitc/generic/element.h"), "int64_t", (), (store,), (sizes, window, x, filters),
            k.entry_parameters(parameters), 0, call,
        )  # fmt: skip
        flops = mul(product((p.pixels, p.K, p.group)), 2 * p.C * taps)
        return k.Draft(
            self.name,
            str(config),
            self.template,
            context,
            parameters,
            skip_if_zero=p.pixels,
            flops=flops,
            packed=packed,
        )

    def _filter(
        self, node: Node, p: ConvProblem, parameters: Parameters, storage: StorageOf
    ) -> tuple[tuple[str, ...], str, dict[str, np.ndarray]]:
        """struct Filter, the expression that makes one, and what to store in place of the constant: panels, or nothing for a run-time filter."""
        taps = p.window[0] * p.window[1] * p.window[2]
        root = filter_root(node)
        if root is None:
            lines, make = strided_filter(node, p, parameters, storage)
            return lines, make, {}
        weight = node.inputs[1]
        assert weight is not None
        array = constant_array(weight)
        assert isinstance(array, np.ndarray)
        pointer = parameters.pointer(root, const=True)
        b = array.reshape(p.group, p.K, p.C, taps).transpose(0, 3, 2, 1).reshape(p.group, taps * p.C, p.K)
        panels = pack_panels(b)
        step = panels.shape[1] * panels.shape[2] * panels.shape[3]
        c_type = weight.type.dtype.c
        offset = f" + int64_t(group) * {step}" if p.group > 1 else ""
        lines = (
            "struct Filter {  // (T R S C, K) in panels", f"  using type = {c_type};", "  static constexpr bool packed = true;",
            f"  const {c_type}* data;",
            f"  AITC_FN const {c_type}* matrix(int {'group' if offset else '/*group*/'}) const {{ return data{offset}; }}", "};",
        )  # fmt: skip
        return lines, f"Filter{{{pointer}}}", {pointer: panels}


def strided_filter(
    node: Node, p: ConvProblem, parameters: Parameters, storage: StorageOf, width: int = 1
) -> tuple[tuple[str, ...], str]:
    """struct Filter over (groups, K, T R S C) in memory, and the expression that makes one, for a filter that is computed at run time."""
    filters = run_time_filter(node, storage)
    assert isinstance(filters, RunTimeFilter)
    pointer = parameters.pointer(filters.root, const=True)
    depth = p.window[0] * p.window[1] * p.window[2] * p.C
    c_type = filters.root.type.dtype.c
    offset = f" + int64_t(group) * {p.K * depth}" if p.group > 1 else ""
    begin = c_expr(filters.offset, parameters.dim)
    lines = (
        "struct Filter {  // (groups, K, T R S C)", f"  using type = {c_type};", "  static constexpr Major major = Major::K;",
        f"  static constexpr int width = {width};", f"  static constexpr int64_t stride_row = 1, stride_col = {depth};", f"  const {c_type}* data;",
        f"  AITC_FN const {c_type}* matrix(int {'group' if offset else '/*group*/'}) const {{ return data{offset}; }}", "};",
    )  # fmt: skip
    return lines, f"Filter{{{pointer if begin == '0' else f'{pointer} + {begin}'}}}"
