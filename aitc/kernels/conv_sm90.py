"""Convolution on Hopper: TMA im2col and wgmma (include/aitc/gpu/conv_sm90.h); of one tap and stride 1, a matrix product (gemm_sm90.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from aitc.ir.dim import Dim, divisor, hint, mul, product
from aitc.kernels import kernel as k
from aitc.kernels import sm90
from aitc.kernels.convolution import ConvForm, ConvProblem, conv_form, filter_root
from aitc.kernels.functor import Parameters, StorageOf
from aitc.kernels.group import Group
from aitc.kernels.sites import Matrix, constant_array, dense_result, result_functor, staged_operand, store_functor
from aitc.targets.target import Target


@dataclass(frozen=True, slots=True)
class ConvSm90Problem(ConvProblem):
    """``dense``: the results are one matrix that the copy engine can store; ``staged``: a matrix as large is read by the epilogue."""

    dense: bool = True
    staged: bool = False

    def __str__(self) -> str:
        return ConvProblem.__str__(self) + (" dense" if self.dense else "") + (" staged" if self.staged else "")

    @property
    def rows(self) -> bool:
        """Whether its pixels are the rows of a matrix."""
        return self.window == (1, 1, 1) and self.stride == (1, 1, 1) and self.pad == (0, 0, 0)

    @property
    def k_blocks(self) -> int:
        return self.window[1] * self.window[2] * -(-self.C // 64)


def pixel_stride(form: ConvForm) -> Dim | None:
    """Elements from pixel to pixel, where all pixels of all images lie at one stride."""
    n, d, h, w = form.strides
    p = form.problem
    steps = ((p.input[2], w, h), (p.input[1], h, d if p.input[0] != 1 else None), (mul(p.input[1], p.input[2]), w, n))
    for count, inner, outer in steps:
        if outer is not None and outer != mul(count, inner) and not (outer is n and p.N == 1):
            return None
    return w


def upper_corner(size: int, out: int, stride: int, pad: int) -> int:
    """The upper corner of the box in which ``out`` windows begin, relative to the last pixel."""
    return (out - 1) * stride - pad - (size - 1)


def dense_output(group: Group, form: ConvForm, storage: StorageOf) -> Matrix | None:
    assert group.anchor is not None
    if form.problem.K % 8:
        return None
    return dense_result(group, group.anchor.output, form.index, form.coords, storage)


def residual(group: Group, form: ConvForm, storage: StorageOf) -> Matrix | None:
    """The operand of the epilogue that the copy engine brings, where it also stores the results."""
    assert group.anchor is not None
    if dense_output(group, form, storage) is None:
        return None
    return staged_operand(group, group.anchor.output, form.index, form.coords, storage)


def im2col_reason(p: ConvProblem) -> str:
    """Why the copy engine cannot gather the pixels; "" if it can."""
    if p.window[0] != 1 or p.input[0] != 1 or p.output[0] != 1:
        return "three axes of space"
    spatial = (*p.input[1:], *p.output[1:], *p.pad[1:])
    if not all(isinstance(d, int) for d in spatial):
        return "height, width or border are known only at run time"
    for n in (1, 2):
        lower, upper = -int(p.pad[n]), upper_corner(int(p.input[n]), int(p.output[n]), p.stride[n], int(p.pad[n]))  # type: ignore[arg-type]
        if not (-128 <= lower <= 127 and -128 <= upper <= 127) or (p.window[n] - 1) * p.dilation[n] > 255 or p.stride[n] > 8:
            return "a window, border or stride beyond what the copy engine takes"
    return ""


@k.register
class ConvSm90(k.Kernel):
    name = "conv_sm90"
    template = "kernel"
    requires = frozenset({"wgmma", "tma"})
    anchors = frozenset({"Conv"})
    priority = 20
    doc = "convolution on Hopper: pixels gathered by TMA, wgmma, persistent or split among clusters; fp16 and bf16, channels a multiple of 8"

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> ConvSm90Problem | k.No:
        assert group.anchor is not None
        if {v.type.dtype.name for v in group.anchor.inputs if v is not None} not in ({"f16"}, {"bf16"}) or group.anchor.attrs.out is not None:
            return k.No("wgmma takes two operands of fp16 or bf16")
        form = conv_form(group.anchor, storage)
        if isinstance(form, k.No):
            return form
        p = form.problem
        if p.group != 1 or p.C % 8 or any(divisor(d) % 8 for d in (form.offset, *form.strides)):
            return k.No(f"{p.group} groups of {p.C} channels, which the copy engine cannot read")
        if not isinstance(constant_array(group.anchor.inputs[1]), np.ndarray):  # type: ignore[arg-type]
            return k.No("the filter is computed at run time")
        values = {f: getattr(p, f) for f in ConvProblem.__dataclass_fields__}
        problem = ConvSm90Problem(**values, dense=dense_output(group, form, storage) is not None, staged=residual(group, form, storage) is not None)
        if not (problem.rows and pixel_stride(form) is not None):
            reason = im2col_reason(p)
            if reason:
                return k.No(reason)
        return problem

    def configs(self, problem: ConvSm90Problem, target: Target) -> Sequence[sm90.Sm90Tile | sm90.Sm90Split]:
        pixels = problem.pixels
        splits = [replace(c, rows=-(-pixels // 8) * 8) if isinstance(pixels, int) and pixels < c.BM else c for c in sm90.SPLITS]
        tiles = (*sm90.TILES, *(sm90.DENSE_TILES if problem.dense else ()))
        staged = sm90.staged_tiles(tiles, target.smem_bytes) if problem.staged else tiles
        return [c for c in (*staged, *splits) if c.smem_bytes <= target.smem_bytes]

    def score_us(self, problem: ConvSm90Problem, config: sm90.Sm90Tile | sm90.Sm90Split, target: Target) -> float:
        p = problem
        M = hint(p.pixels)
        inputs = hint(product((p.N, *p.input)))
        depth = p.C * p.window[1] * p.window[2]
        traffic = 2.0 * (inputs * p.C + M * p.K * 1.3 + depth * p.K)
        return sm90.tile_us(config, 1, M, p.K, p.k_blocks, target.tflops["fp16"], traffic, True, target)

    def build(
        self, group: Group, problem: ConvSm90Problem, config: sm90.Sm90Tile | sm90.Sm90Split, storage: StorageOf, target: Target
    ) -> k.Draft:
        assert group.anchor is not None
        form = conv_form(group.anchor, storage)
        assert isinstance(form, ConvForm)
        p = problem
        root = filter_root(group.anchor)
        array = constant_array(group.anchor.inputs[1])  # type: ignore[arg-type]
        assert root is not None and isinstance(array, np.ndarray)
        taps = p.window[1] * p.window[2]
        parameters = Parameters()
        split = isinstance(config, sm90.Sm90Split)
        dense = None if split else dense_output(group, form, storage)
        signature = "int group, int64_t row, int64_t col"
        staged = residual(group, form, storage) if isinstance(config, sm90.Sm90Tile) and config.staged else None
        if dense is not None:
            store = result_functor(group, group.anchor.output, form.index, form.coords, parameters, storage, signature, staged=staged)
        else:
            store = store_functor(group, form.index, form.coords, parameters, storage, target, signature, widest=8)
        declared = dict(parameters.pointers)
        parameters.pointer(form.root, const=True)
        assert (id(root), True) not in declared, "a filter is no operand of its own epilogue"
        weights = parameters.pointer(root, const=True)
        packed = np.ascontiguousarray(array.reshape(p.K, p.C, taps).transpose(0, 2, 1))  # (K, R S, C)
        slice_a, slice_b = config.slices
        stride = pixel_stride(form) if p.rows else None
        filters = k.MapSpec("map_w", root, 0, (p.C, taps, p.K), (p.C * 2, taps * p.C * 2), (64, 1, slice_b), (1, 1, 1))
        c_type = root.type.dtype.c
        structs: list[tuple[str, ...]] = []
        if stride is not None:
            flat, box = (mul(stride, 2), mul(mul(stride, p.pixels), 2)), (64, slice_a, 1)
            pixels = k.MapSpec("map_x", form.root, form.offset, (p.C, p.pixels, 1), flat, box, (1, 1, 1))
            filters = k.MapSpec("map_w", root, 0, (p.C, p.K, 1), (p.C * 2, p.K * p.C * 2), (64, slice_b, 1), (1, 1, 1))
            operands = [f"MatrixSm90<{c_type}, false, false, {constant}>{{&{name}}}" for name, constant in (("map_x", "false"), ("map_w", "true"))]
        else:
            sizes = [int(d) for d in p.input[1:]]  # type: ignore[arg-type]
            out = [int(d) for d in p.output[1:]]  # type: ignore[arg-type]
            pad = [int(d) for d in p.pad[1:]]  # type: ignore[arg-type]
            upper = [upper_corner(*v) for v in zip(sizes, out, p.stride[1:], pad, strict=True)]
            n, _, h, w = form.strides
            strides = tuple(mul(d, 2) for d in (w if sizes[1] != 1 else p.C, h if sizes[0] != 1 else mul(w, sizes[1]), n))
            pixels = k.MapSpec(
                "map_x", form.root, form.offset, (p.C, sizes[1], sizes[0], p.N), strides, (), (1, p.stride[2], p.stride[1], 1),
                im2col=((-pad[1], -pad[0]), (upper[1], upper[0]), 64, slice_a),
            )  # fmt: skip
            values = {"C": p.C, "R": p.window[1], "S": p.window[2], "P": out[0], "Q": out[1], "stride_h": p.stride[1], "stride_w": p.stride[2],
                      "dilation_h": p.dilation[1], "dilation_w": p.dilation[2], "pad_h": pad[0], "pad_w": pad[1]}  # fmt: skip
            structs.append(("struct Window {", "  static constexpr int " + ", ".join(f"{a} = {b}" for a, b in values.items()) + ";", "};"))
            operands = [f"PixelsSm90<{c_type}, Window>{{&map_x}}", f"FilterSm90<{c_type}, Window>{{&map_w}}"]
        maps = [pixels, filters]
        if dense is not None:
            parameters.pointer(dense.root, const=False)
            maps.append(sm90.result_map("map_d", dense, form.coords[0], p.pixels, p.K, 1))
        if staged is not None:
            parameters.pointer(staged.root, const=True)
            maps.append(sm90.result_map("map_s", staged, form.coords[0], p.pixels, p.K, 1))
        kind = "gemm" if stride is not None else "conv"
        members: dict[str, Dim] = {"batch": 1, "M": p.pixels, "N": p.K, "K": p.C}
        shape = k.shape_members(parameters, **members)
        arguments = ["shape", *operands, f"Store{{{', '.join(store.initializers)}}}"]
        if not split:
            arguments += ["map_d" if dense is not None else "map_x", "map_s" if staged is not None else "map_x"]
        call = (f"{kind}{'_split' if split else ''}_sm90<{config.text}>({', '.join(arguments)});",)
        visible = Parameters()
        visible.pointers, visible.dims = declared, parameters.dims
        context = k.Context(
            "", k.banner(group), (f"aitc/gpu/{kind}_sm90.h", "aitc/generic/element.h"), "int64_t", shape, (store,), tuple(structs),
            k.entry_parameters(visible, [sm90.MAP.format(m.parameter) for m in maps]), config.threads, call, min_blocks=1,
        )  # fmt: skip
        blocks = config.blocks(p.pixels, p.K, 1, target)
        return k.Draft(
            self.name, str(config), "kernel", context, parameters, grid=(blocks, 1, 1), block=(config.threads, 1, 1),
            smem_bytes=config.smem_bytes, cluster=config.cluster, overlap=True, skip_if_zero=p.pixels,
            flops=mul(product((p.pixels, p.K)), 2 * taps * p.C), maps=tuple(maps), packed={weights: packed},
        )  # fmt: skip
