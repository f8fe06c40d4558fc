"""Convolution on Hopper: TMA im2col and wgmma (include/aitc/gpu/hopper/conv_sm90.h); of one tap and stride 1, a matrix product (gemm_sm90.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aitc.ir.dim import Dim, divisor, hint, mul, product
from aitc.ir.graph import Value
from aitc.ir.index import unflatten
from aitc.ir.packing import by_tap
from aitc.kernels.conv.convolution import ConvForm, ConvProblem, conv_form, filter_root
from aitc.kernels.core import kernel as k
from aitc.kernels.core.functor import Parameters, StorageOf
from aitc.kernels.core.group import Group
from aitc.kernels.core.sites import Matrix, constant_array, dense_result, linear, staged_operand
from aitc.kernels.hopper import sm90
from aitc.kernels.hopper.product_sm90 import (
    Config,
    Lines,
    Operands,
    ProductSm90,
    Work,
    operand_reason,
    product_configs,
    second_root,
)
from aitc.targets.target import Target


@dataclass(frozen=True, slots=True)
class ConvSm90Problem(ConvProblem):
    """``dense``: the results are one matrix that the copy engine can store; ``staged``: a matrix as large is read by the epilogue; ``also``: the
    convolution whose results are added."""

    dense: bool = True
    staged: bool = False
    also: ConvProblem | None = None

    def __str__(self) -> str:
        also = f" + {' '.join(str(self.also).split()[2:])}" if self.also is not None else ""
        return ConvProblem.__str__(self) + also + (" dense" if self.dense else "") + (" staged" if self.staged else "")

    @property
    def parts(self) -> tuple[ConvProblem, ...]:
        """The convolutions that add up, of which there may be one."""
        return (self,) if self.also is None else (self, self.also)


def in_rows(p: ConvProblem) -> bool:
    """Whether its pixels are the rows of a matrix."""
    return p.window == (1, 1, 1) and p.stride == (1, 1, 1) and p.pad == (0, 0, 0)


def blocks_of(p: ConvProblem) -> int:
    """Its K-blocks."""
    return p.window[1] * p.window[2] * -(-p.C * sm90.elem_bytes(p.dtype) // sm90.BLOCK_BYTES)


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


def dense_lines(group: Group, form: ConvForm, storage: StorageOf) -> tuple[Matrix, Lines] | None:
    """The results as lines of pixels that lie at one stride, where they are no one matrix: a part of an image whose pixels interleave with others'."""
    assert group.anchor is not None
    p = form.problem
    pixels = p.output[2]
    if p.K % 8 or not isinstance(pixels, int) or pixels % 16 or p.output[0] != 1 or p.group != 1 or len(group.anchor.output.shape) != 4:
        return None
    count = mul(p.N, p.output[1])
    line, pixel = k.coordinate("line", count), k.coordinate("pixel", pixels)
    n, h = unflatten(k.dim_of(line), (p.N, p.output[1]))
    outputs = k.output_indices(group, group.anchor.output, (n, k.dim_of(form.coords[2]), h, k.dim_of(pixel)))
    if outputs is None or len(outputs) != 1:
        return None
    ((o, at),) = outputs.items()
    place = storage(o)
    found = linear(place.at(at), (line, pixel, form.coords[2]))
    if o.type.dtype.name not in ("f16", "bf16") or found is None:
        return None
    rest, (line_stride, pixel_stride_, column) = found
    if column != 1 or any(divisor(d) % 8 for d in (rest, line_stride, pixel_stride_)) or not (sm90.positive(line_stride) and sm90.positive(pixel_stride_)):
        return None
    return Matrix(o, place.root, rest, pixel_stride_, column), Lines(pixels, count, line_stride)


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
class ConvSm90(ProductSm90):
    name = "conv_sm90"
    anchors = frozenset({"Conv"})
    priority = 20
    doc = "convolution on Hopper: pixels gathered by TMA, wgmma, persistent or split among clusters; fp16, bf16, TF32, pixels of whole 16 bytes"

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> ConvSm90Problem | k.No:
        assert group.anchor is not None
        reason = operand_reason(group, target)
        if reason or group.anchor.attrs.out is not None:
            return k.No(reason or "sums of another type")
        forms: list[ConvForm] = []
        for part in range(2 if group.anchor.attrs.also else 1):
            form = conv_form(group.anchor, storage, part=part)
            if isinstance(form, k.No):
                return form
            p = form.problem
            unit = 16 // form.root.type.dtype.bytes
            if p.group != 1 or p.C % unit or any(divisor(d) % unit for d in (form.offset, *form.strides)):
                return k.No(f"{p.group} groups of {p.C} channels, which the copy engine cannot read")
            if not isinstance(constant_array(group.anchor.inputs[2 * part + 1]), np.ndarray):  # type: ignore[arg-type]
                return k.No("the filter is computed at run time")
            reason = "" if in_rows(p) and pixel_stride(form) is not None else im2col_reason(p)
            if reason:
                return k.No(reason)
            forms.append(form)
        values = {f: getattr(forms[0].problem, f) for f in ConvProblem.__dataclass_fields__}
        return ConvSm90Problem(
            **values, dense=dense_output(group, forms[0], storage) is not None or dense_lines(group, forms[0], storage) is not None,
            staged=residual(group, forms[0], storage) is not None,
            also=forms[1].problem if len(forms) > 1 else None,
        )  # fmt: skip

    def configs(self, problem: ConvSm90Problem, target: Target) -> Sequence[Config]:
        pixels = problem.pixels
        return product_configs(problem.dtype, problem.dense, problem.staged, pixels if isinstance(pixels, int) else None, target)

    def extent(self, problem: ConvSm90Problem) -> sm90.Extent:
        M, K = hint(problem.pixels), problem.K
        traffic = M * K * (2.3 if problem.staged else 1.3)
        for p in problem.parts:
            read = min(hint(product((p.N, *p.input))), M * p.window[1] * p.window[2])  # one tap with a stride skips pixels
            traffic += read * p.C + p.C * p.window[1] * p.window[2] * K
        blocks = sum(blocks_of(p) for p in problem.parts)
        return sm90.Extent(1, M, K, blocks, sm90.elem_bytes(problem.dtype) * traffic, True)

    def rows(self, group: Group, storage: StorageOf) -> Matrix | None:
        assert group.anchor is not None
        form = conv_form(group.anchor, storage)
        stride = pixel_stride(form) if isinstance(form, ConvForm) and in_rows(form.problem) else None
        return Matrix(form.root, form.root, form.offset, stride, 1) if isinstance(form, ConvForm) and stride is not None else None

    def weights(self, group: Group, storage: StorageOf) -> tuple[Value, np.ndarray] | None:
        assert group.anchor is not None
        form, array = conv_form(group.anchor, storage), constant_array(group.anchor.inputs[1])  # type: ignore[arg-type]
        if not isinstance(form, ConvForm) or not in_rows(form.problem) or not isinstance(array, np.ndarray):
            return None
        return second_root(group), array.reshape(form.problem.K, form.problem.C).T

    def slowness(self, problem: ConvSm90Problem, config: Config) -> float:
        """Gathered pixels come at a lower rate than rows of a matrix, which small tiles wait for: of 190 measurements of single convolutions on one H200, and
        of what those of ResNet-50 and Stable Diffusion took in the models (bench/results/score_h200.json)."""
        if all(in_rows(p) for p in problem.parts):
            return 1.0
        if isinstance(config, sm90.Sm90Split):
            if config.BM == 64:
                return 1.05 if config.BN >= 128 else 1.15
            return 1.05 if config.BN <= 96 else 1.0
        if config.cluster_n > 1:  # gathered once and sent to two
            return 1.6 if config.BM == 64 else 1.2
        if config.BM == 64:  # wide tiles gather few pixels for each product
            return 1.1 if config.BN >= 128 else 1.35
        return 1.2 if config.BN <= 96 else 1.0

    def work(self, group: Group, storage: StorageOf) -> Work:
        assert group.anchor is not None
        form = conv_form(group.anchor, storage, part=0)
        assert isinstance(form, ConvForm)
        p = form.problem
        node = group.anchor
        flops = node.op.flops([v.type for v in node.inputs if v is not None], node.attrs) if node.op.flops else 0
        dense, staged = dense_output(group, form, storage), residual(group, form, storage)
        in_lines = dense_lines(group, form, storage) if dense is None else None
        dense, lines = (dense, None) if in_lines is None else in_lines
        return Work(form.index, form.coords, "int group, int64_t row, int64_t col", (1, p.pixels, p.K, p.C), flops, dense, staged, lines)

    def operands(
        self, group: Group, problem: ConvSm90Problem, config: Config, storage: StorageOf, parameters: Parameters, declared: Parameters, suffix: str
    ) -> Operands:
        assert group.anchor is not None
        made = [
            self._part(group, n, p, config, storage, parameters, declared, suffix + "b" * n) for n, p in enumerate(problem.parts)
        ]
        first = made[0]
        if len(made) == 1:
            return first
        counts = ", ".join(str(blocks_of(p)) for p in problem.parts)
        texts = []
        for side, name in ((0, "SumPixelsSm90"), (1, "SumSm90")):
            types = ", ".join(m.texts[side].partition("{")[0] for m in made)
            texts.append(f"{name}<{types}, {counts}>{{{', '.join(m.texts[side] for m in made)}}}")
        maps, structs = tuple(m for o in made for m in o.maps), tuple(s for o in made for s in o.structs)
        return Operands("conv_sum", (texts[0], texts[1]), maps, structs, {**made[0].packed, **made[1].packed})

    def _part(
        self, group: Group, part: int, p: ConvProblem, config: Config, storage: StorageOf, parameters: Parameters, declared: Parameters, suffix: str
    ) -> Operands:
        """The operands of one of the convolutions that add up."""
        assert group.anchor is not None
        form = conv_form(group.anchor, storage, part=part)
        assert isinstance(form, ConvForm)
        root = filter_root(group.anchor, part)
        array = constant_array(group.anchor.inputs[2 * part + 1])  # type: ignore[arg-type]
        assert root is not None and isinstance(array, np.ndarray)
        taps = p.window[1] * p.window[2]
        parameters.pointer(form.root, const=True)
        assert suffix or (id(root), True) not in declared.pointers, "a filter is no operand of its own epilogue"
        weights = parameters.pointer(root, const=True)
        slice_a, slice_b = config.slices
        rows = max(p.K, config.BN)  # few filters, then zeros: what lies outside of a map costs the copy engine more than what is there
        packed = by_tap(array.reshape(p.K, p.C, taps), rows)
        stride = pixel_stride(form) if in_rows(p) else None
        size, c_type = root.type.dtype.bytes, root.type.dtype.c
        depth, tf32 = sm90.BLOCK_BYTES // size, size == 4
        filters = k.MapSpec(f"map_w{suffix}", root, 0, (p.C, taps, rows), (p.C * size, taps * p.C * size), (depth, 1, slice_b), (1, 1, 1), tf32=tf32)
        structs: list[tuple[str, ...]] = []
        if stride is not None:
            flat, box = (mul(stride, size), mul(mul(stride, p.pixels), size)), (depth, slice_a, 1)
            pixels = k.MapSpec(f"map_x{suffix}", form.root, form.offset, (p.C, p.pixels, 1), flat, box, (1, 1, 1), tf32=tf32)
            filters = k.MapSpec(f"map_w{suffix}", root, 0, (p.C, rows, 1), (p.C * size, rows * p.C * size), (depth, slice_b, 1), (1, 1, 1), tf32=tf32)
            texts = [f"MatrixSm90<{c_type}, false, false, {weight}>{{&map_{name}{suffix}}}" for name, weight in (("x", "false"), ("w", "true"))]
        else:
            sizes = [int(d) for d in p.input[1:]]  # type: ignore[arg-type]
            out = [int(d) for d in p.output[1:]]  # type: ignore[arg-type]
            pad = [int(d) for d in p.pad[1:]]  # type: ignore[arg-type]
            upper = [upper_corner(*v) for v in zip(sizes, out, p.stride[1:], pad, strict=True)]
            n, _, h, w = form.strides
            strides = tuple(mul(d, size) for d in (w if sizes[1] != 1 else p.C, h if sizes[0] != 1 else mul(w, sizes[1]), n))
            pixels = k.MapSpec(
                f"map_x{suffix}", form.root, form.offset, (p.C, sizes[1], sizes[0], p.N), strides, (), (1, p.stride[2], p.stride[1], 1),
                im2col=((-pad[1], -pad[0]), (upper[1], upper[0]), depth, slice_a), tf32=tf32,
            )  # fmt: skip
            values = {"C": p.C, "R": p.window[1], "S": p.window[2], "P": out[0], "Q": out[1], "stride_h": p.stride[1], "stride_w": p.stride[2],
                      "dilation_h": p.dilation[1], "dilation_w": p.dilation[2], "pad_h": pad[0], "pad_w": pad[1]}  # fmt: skip
            structs.append((f"struct Window{suffix} {{", "  static constexpr int " + ", ".join(f"{a} = {b}" for a, b in values.items()) + ";", "};"))
            texts = [f"PixelsSm90<{c_type}, Window{suffix}>{{&map_x{suffix}}}", f"FilterSm90<{c_type}, Window{suffix}>{{&map_w{suffix}}}"]
        kind = "gemm" if stride is not None else "conv"
        return Operands(kind, (texts[0], texts[1]), (pixels, filters), tuple(structs), {weights: packed})
