"""Convolution on GPUs as an implicit matrix product: mma.sync, MFMA, or plain multiply-adds (include/aitc/gpu/conv/conv_{sm80,cdna,simt}.h)."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

import numpy as np

from aitc.ir.dim import ceildiv, hint, mul, product
from aitc.ir.graph import Node
from aitc.ir.packing import by_tap
from aitc.kernels.conv.conv_cpu import conv_sizes, input_struct, strided_filter, window_struct
from aitc.kernels.conv.convolution import ConvForm, ConvProblem, conv_form, filter_root, run_time_filter
from aitc.kernels.core import kernel as k
from aitc.kernels.core.functor import Parameters, StorageOf
from aitc.kernels.core.group import Group
from aitc.kernels.core.sites import constant_array, store_functor
from aitc.kernels.core.structs import int_struct
from aitc.kernels.matmul import cdna
from aitc.kernels.matmul.cdna import MATRIX_TYPES, CdnaTile
from aitc.kernels.matmul.gemm_simt import accumulator_bytes, simt_tiles
from aitc.kernels.matmul.gemm_sm80 import tensor_core_type
from aitc.kernels.matmul.tiles import (
    HALF_TILES,
    TF32_TILES,
    SimtTile,
    Sm80Tile,
    product_us,
)
from aitc.targets.target import Target


def channel_width(problem: ConvProblem, elem_bytes: int) -> int:
    """Elements of the widest aligned load along the channels."""
    width = max(1, 16 // elem_bytes)
    common = gcd(problem.C, problem.align)
    while width > 1 and common % width:
        width //= 2
    return width


def conv_draft(
    name: str, header: str, function: str, tile: str, config: CdnaTile | Sm80Tile | SimtTile, group: Group, problem: ConvProblem, storage: StorageOf,
    target: Target, smem_bytes: int, widest: int,
) -> k.Draft:  # fmt: skip
    """An instance of a convolution header whose blocks take one BM × BN tile each."""
    assert group.anchor is not None
    form = conv_form(group.anchor, storage)
    assert isinstance(form, ConvForm)
    p = problem
    depth = p.window[0] * p.window[1] * p.window[2] * p.C
    parameters = Parameters()
    x, make_x = input_struct(form, parameters)
    width = channel_width(p, form.root.type.dtype.bytes)
    x = (x[0], x[1], f"  static constexpr int width = {width};", *x[2:])
    filters, make_filter, packed = gpu_filter(group.anchor, p, parameters, storage, width)
    window, make_window = window_struct(p, parameters)
    sizes, make_sizes = int_struct("Shape", conv_sizes(p), parameters)
    store = store_functor(
        group,
        form.index,
        form.coords,
        parameters,
        storage,
        target,
        "int group, int64_t row, int64_t col",
        widest=widest,
    )
    call = (
        f"{function}<{tile}>({make_sizes}, {make_window}, {make_x}, {make_filter}, Store{{{', '.join(store.initializers)}}});",
    )
    context = k.Context(
        "", k.banner(group), (header, "aitc/generic/element.h"), "int64_t", (), (store,), (sizes, window, x, filters),
        k.entry_parameters(parameters), config.threads, call,
    )  # fmt: skip
    blocks = product((ceildiv(p.pixels, config.BM), -(-p.K // config.BN), p.group))
    flops = mul(product((p.pixels, p.K, p.group)), 2 * depth)
    return k.Draft(
        name, str(config), "kernel", context, parameters, grid=(blocks, 1, 1), block=(config.threads, 1, 1), smem_bytes=smem_bytes,
        overlap=True, skip_if_zero=p.pixels, flops=flops, packed=packed,
    )  # fmt: skip


def gpu_filter(
    node: Node, p: ConvProblem, parameters: Parameters, storage: StorageOf, width: int
) -> tuple[tuple[str, ...], str, dict[str, np.ndarray]]:
    """struct Filter over (groups, K, T R S C), the expression that makes one, and the constant in that order (none for a run-time filter)."""
    root = filter_root(node)
    if root is None:
        lines, make = strided_filter(node, p, parameters, storage)
        return lines, make, {}
    weight = node.inputs[1]
    assert weight is not None
    array = constant_array(weight)
    assert isinstance(array, np.ndarray)
    taps = p.window[0] * p.window[1] * p.window[2]
    depth = taps * p.C
    packed = by_tap(array.reshape(p.group * p.K, p.C, taps), p.group * p.K)  # (groups K, T R S, C)
    pointer = parameters.pointer(root, const=True)
    c_type = root.type.dtype.c
    offset = f" + int64_t(group) * {p.K * depth}" if p.group > 1 else ""
    lines = (
        "struct Filter {  // (groups, K, T R S C)", f"  using type = {c_type};", "  static constexpr Major major = Major::K;",
        f"  static constexpr int width = {width};", f"  static constexpr int64_t stride_row = 1, stride_col = {depth};", f"  const {c_type}* data;",
        f"  AITC_FN const {c_type}* matrix(int {'group' if offset else '/*group*/'}) const {{ return data{offset}; }}", "};",
    )  # fmt: skip
    return lines, f"Filter{{{pointer}}}", {pointer: packed}


def conv_product(problem: ConvProblem, elem_bytes: int) -> tuple[int, int, float]:
    """Rows and depth of the convolution as a matrix product, and the bytes that it moves at least."""
    M, K = hint(problem.pixels), problem.C * problem.window[0] * problem.window[1] * problem.window[2]
    pixels_in = hint(product((problem.N, *problem.input)))
    return M, K, float(elem_bytes) * problem.group * (pixels_in * problem.C + M * problem.K + K * problem.K)


def conv_us(
    problem: ConvProblem,
    config: Sm80Tile | SimtTile,
    smem: int,
    rate: float,
    elem_bytes: int,
    target: Target,
) -> float:
    M, K, traffic = conv_product(problem, elem_bytes)
    return product_us(
        problem.group, M, problem.K, K, config.BM, config.BN, config.step, config.threads, smem, traffic, rate, target
    )


def readable(group: Group, storage: StorageOf) -> ConvProblem | k.No:
    """The problem, if input and filter lie as these kernels read them; else the copies that would help."""
    assert group.anchor is not None
    form = conv_form(group.anchor, storage)
    if isinstance(form, k.No):
        return form
    if filter_root(group.anchor) is None:
        filters = run_time_filter(group.anchor, storage)
        if isinstance(filters, k.No):
            return filters
    return form.problem


@k.register
class ConvSm80(k.Kernel):
    name = "conv_sm80"
    template = "kernel"
    requires = frozenset({"mma_sm80"})
    anchors = frozenset({"Conv"})
    priority = 10
    doc = "convolution on tensor cores by mma.sync: implicit matrix product, channels last"

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> ConvProblem | k.No:
        assert group.anchor is not None
        if tensor_core_type(group.anchor.input.type.dtype.name, target) is None or group.anchor.attrs.out is not None:
            return k.No("the tensor cores do not take this type")
        return readable(group, storage)

    def configs(self, problem: ConvProblem, target: Target) -> Sequence[Sm80Tile]:
        size = 4 if problem.dtype == "f32" else 2
        width = channel_width(problem, size)
        tiles = TF32_TILES if problem.dtype == "f32" else HALF_TILES
        return [t for t in tiles if t.smem_bytes(size) <= target.smem_bytes and t.threads % (t.BK // width) == 0]

    def score_us(self, problem: ConvProblem, config: Sm80Tile, target: Target) -> float:
        size = 4 if problem.dtype == "f32" else 2
        rate = target.tflops[tensor_core_type(problem.dtype, target) or "fp16"] * (
            0.6 if "wgmma" in target.features else 1.0
        )
        return conv_us(problem, config, config.smem_bytes(size), rate, size, target)

    def build(
        self, group: Group, problem: ConvProblem, config: Sm80Tile, storage: StorageOf, target: Target
    ) -> k.Draft:
        smem = config.smem_bytes(4 if problem.dtype == "f32" else 2)
        return conv_draft(
            self.name,
            "aitc/gpu/conv/conv_sm80.h",
            "conv_sm80",
            config.text,
            config,
            group,
            problem,
            storage,
            target,
            smem,
            8,
        )


@k.register
class ConvCdna(k.Kernel):
    name = "conv_cdna"
    template = "kernel"
    requires = frozenset({"mfma"})
    anchors = frozenset({"Conv"})
    priority = 10
    doc = "convolution by MFMA: implicit matrix product, channels last; compiled and emulated, never timed on AMD hardware"

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> ConvProblem | k.No:
        node = group.anchor
        assert node is not None
        if node.input.type.dtype.name not in MATRIX_TYPES or node.attrs.out is not None:
            return k.No("the matrix cores do not take this type")
        return readable(group, storage)

    def configs(self, problem: ConvProblem, target: Target) -> Sequence[CdnaTile]:
        size = MATRIX_TYPES[problem.dtype][1]
        width = channel_width(problem, size)
        tiles = cdna.FLOAT_TILES if size == 4 else cdna.HALF_TILES
        return [t for t in tiles if t.pieces(width) <= 8]  # where channels are few, more of them would not fit into registers

    def score_us(self, problem: ConvProblem, config: CdnaTile, target: Target) -> float:
        rate, size = MATRIX_TYPES[problem.dtype]
        M, K, traffic = conv_product(problem, size)
        return cdna.tile_us(config, problem.group, M, problem.K, K, rate, traffic, size, target)

    def build(
        self, group: Group, problem: ConvProblem, config: CdnaTile, storage: StorageOf, target: Target
    ) -> k.Draft:
        smem = config.smem_bytes(MATRIX_TYPES[problem.dtype][1])
        header = "aitc/gpu/conv/conv_cdna.h"
        draft = conv_draft(self.name, header, self.name, config.text, config, group, problem, storage, target, smem, 8)
        return cdna.claimed(draft, config.blocks)


@k.register
class ConvSimt(k.Kernel):
    name = "conv_simt"
    template = "kernel"
    requires = frozenset({"simt"})
    anchors = frozenset({"Conv"})
    doc = "convolution by plain multiply-adds: strict float32, double, integers, any GPU"

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> ConvProblem | k.No:
        return readable(group, storage)

    def configs(self, problem: ConvProblem, target: Target) -> Sequence[SimtTile]:
        return simt_tiles(problem.dtype, target)

    def score_us(self, problem: ConvProblem, config: SimtTile, target: Target) -> float:
        acc = accumulator_bytes(problem.dtype)
        return conv_us(
            problem, config, config.smem_bytes(acc), target.tflops["fp32"] * (0.5 if acc == 8 else 1.0), 4, target
        )

    def build(
        self, group: Group, problem: ConvProblem, config: SimtTile, storage: StorageOf, target: Target
    ) -> k.Draft:
        smem = config.smem_bytes(accumulator_bytes(problem.dtype))
        return conv_draft(
            self.name,
            "aitc/gpu/conv/conv_simt.h",
            "conv_simt",
            config.text,
            config,
            group,
            problem,
            storage,
            target,
            smem,
            4,
        )
