"""Depthwise convolution: one filter for each channel (include/aitc/{cpu,gpu/conv}/depthwise.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np

from aitc.ir.dim import Dim, ceildiv, hint, mul, product
from aitc.kernels.conv.conv_cpu import input_struct, window_struct
from aitc.kernels.conv.convolution import ConvForm, ConvProblem, conv_form, filter_root
from aitc.kernels.core import kernel as k
from aitc.kernels.core.functor import Parameters, StorageOf
from aitc.kernels.core.group import Group
from aitc.kernels.core.sites import constant_array, store_functor
from aitc.kernels.core.structs import int_struct
from aitc.targets.target import Target


@dataclass(frozen=True, slots=True)
class DepthwiseTile:
    """V channels and ``pixels`` neighbours along the width a thread (GPU); the processor has nothing to choose (``threads`` 0)."""

    V: int = 1
    pixels: int = 1
    threads: int = 0

    def __str__(self) -> str:
        return f"v{self.V}_p{self.pixels}_t{self.threads}" if self.threads else "auto"


@k.register
class Depthwise(k.Kernel):
    name = "depthwise"
    template = "kernel"
    anchors = frozenset({"Conv"})
    priority = 20
    doc = "depthwise convolution, channels last, one filter a channel"

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> ConvProblem | k.No:
        node = group.anchor
        assert node is not None
        w = node.inputs[1]
        assert w is not None
        if w.shape[1] != 1 or w.shape[0] != node.attrs.group or node.attrs.group == 1 or node.attrs.out is not None:
            return k.No("not one filter for each channel")
        if not isinstance(constant_array(w), np.ndarray):
            return k.No("the filter is computed at run time")
        form = conv_form(node, storage, depthwise=True)
        return form if isinstance(form, k.No) else form.problem

    def configs(self, problem: ConvProblem, target: Target) -> Sequence[DepthwiseTile]:
        if not target.gpu:
            return (DepthwiseTile(),)
        common = gcd(problem.group, problem.align)
        found = []
        for V in (8, 4, 2, 1):
            if common % V == 0 and (V < 8 or problem.dtype in ("f16", "bf16")):
                found += [DepthwiseTile(V, pixels, 128) for pixels in (4, 2, 1)]
        return found

    def score_us(self, problem: ConvProblem, config: DepthwiseTile, target: Target) -> float:
        size = 2 if problem.dtype in ("f16", "bf16") else 4
        traffic = size * problem.group * (hint(problem.pixels) + hint(product((problem.N, *problem.input))))
        memory = traffic / target.gbps * 1e-3
        if not config.threads:
            return target.launch_us + memory
        threads = hint(problem.pixels) * problem.group / (config.V * config.pixels)
        idle = max(1.0, target.units * 512 / max(threads, 1))  # fewer threads than keep memory busy
        return target.launch_us + memory * min(idle, 8) + 0.3 * config.pixels * config.V / 8 + 0.5 / config.V

    def build(
        self, group: Group, problem: ConvProblem, config: DepthwiseTile, storage: StorageOf, target: Target
    ) -> k.Draft:
        node = group.anchor
        assert node is not None
        form = conv_form(node, storage, depthwise=True)
        assert isinstance(form, ConvForm)
        weight, root = node.inputs[1], filter_root(node)
        assert weight is not None and root is not None
        array = constant_array(weight)
        assert isinstance(array, np.ndarray)
        p = problem
        parameters = Parameters()
        x, make_x = input_struct(form, parameters)
        pointer = parameters.pointer(root, const=True)
        packed = np.ascontiguousarray(array.reshape(p.group, -1).T)  # (T R S, C)
        c_type = root.type.dtype.c
        filters = ("struct Filter {  // (T R S, C)", f"  using type = {c_type};", f"  const {c_type}* data;", "};")
        window, make_window = window_struct(p, parameters)
        sizes, make_sizes = int_struct(
            "Shape",
            {
                "batch": p.N,
                "D": p.input[0],
                "H": p.input[1],
                "W": p.input[2],
                "O": p.output[0],
                "P": p.output[1],
                "Q": p.output[2],
                "C": p.group,
            },
            parameters,
        )
        store = store_functor(
            group, form.index, form.coords, parameters, storage, target, "int /*group*/, int64_t row, int64_t col",
            widest=config.V if config.threads else 16,
        )  # fmt: skip
        tile = f"<DepthwiseTile<{config.V}, {config.pixels}, {config.threads}>>" if config.threads else ""
        call = (
            f"depthwise{tile}({make_sizes}, {make_window}, {make_x}, Filter{{{pointer}}}, Store{{{', '.join(store.initializers)}}});",
        )
        header = f"aitc/{'gpu/conv' if target.gpu else 'cpu'}/depthwise.h"
        context = k.Context(
            "", k.banner(group), (header, "aitc/generic/element.h"), "int64_t", (), (store,), (sizes, window, x, filters),
            k.entry_parameters(parameters), config.threads, call,
        )  # fmt: skip
        blocks: Dim = 1
        if config.threads:
            work = product((p.N, p.output[0], p.output[1], ceildiv(p.output[2], config.pixels), p.group // config.V))
            blocks = ceildiv(work, config.threads)
        taps = p.window[0] * p.window[1] * p.window[2]
        return k.Draft(
            self.name, str(config), self.template, context, parameters, grid=(blocks, 1, 1), block=(max(config.threads, 1), 1, 1),
            overlap=True, skip_if_zero=p.pixels, flops=mul(product((p.pixels, p.group)), 2 * taps), packed={pointer: packed},
        )  # fmt: skip
