"""Contractions: MatMul, Conv, ConvTranspose, and what ONNX makes of them (Gemm ...)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from aitc.ir import dim as d
from aitc.ir.dim import Dim
from aitc.ir.dtype import DType
from aitc.ir.graph import Value
from aitc.ir.op import OPS, Kind, Op
from aitc.ir.types import TensorType, broadcast
from aitc.ops import declare
from aitc.ops.attribute import AutoPad, Counts, Positive, Positives
from aitc.ops.declare import Scope, Unsupported, along_channel, onnx_op
from aitc.ops.pointwise import same_dtype, widen
from aitc.ops.windows import check_lengths, resolve_pads, spatial, taps

Types = Sequence["TensorType | None"]


@dataclass(frozen=True, slots=True)
class MatMulAttrs:
    """``out`` is the result's element type where it is not the operands' (int8 operands, int32 result)."""

    out: DType | None = None


@dataclass(frozen=True, slots=True)
class ConvAttrs:
    """One entry an axis of space; ``pads`` begins, then ends.

    ``also``: strides, pads and dilations of a convolution of inputs 2 and 3, whose results are added before they are rounded (schedule/sum_convs.py).
    """

    strides: tuple[int, ...]
    pads: tuple[Dim, ...]
    dilations: tuple[int, ...]
    group: int = 1
    out: DType | None = None
    also: tuple[tuple[int, ...], ...] = ()

    def part(self, index: int) -> ConvAttrs:
        """The attributes of the first or the second convolution alone."""
        return replace(self, also=()) if index == 0 else ConvAttrs(self.also[0], self.also[1], self.also[2])


@dataclass(frozen=True, slots=True)
class ConvTransposeAttrs:
    """``pads`` may be negative; ``output_padding`` adds rows at the end that only the bias reaches."""

    strides: tuple[int, ...]
    pads: tuple[Dim, ...]
    dilations: tuple[int, ...]
    group: int = 1
    output_padding: tuple[int, ...] = ()


def infer_matmul(types: Types, a: MatMulAttrs) -> tuple[TensorType, ...]:
    x, y = types
    assert x is not None and y is not None
    if a.out is None:
        same_dtype(types)
    if x.rank < 2 or y.rank < 2:
        raise ValueError(f"matrices needed, got {x} and {y}")
    if isinstance(x.shape[-1], int) and isinstance(y.shape[-2], int) and x.shape[-1] != y.shape[-2]:
        raise ValueError(f"inner dims differ: {x} times {y}")
    batch = broadcast(x.shape[:-2], y.shape[:-2])
    return (TensorType(a.out or x.dtype, (*batch, x.shape[-2], y.shape[-1])),)


def matmul_array(x: np.ndarray, y: np.ndarray, a: MatMulAttrs) -> np.ndarray:
    if a.out is not None:
        return np.matmul(widen(x).astype(a.out.numpy), widen(y).astype(a.out.numpy))
    with np.errstate(all="ignore"):
        return np.matmul(widen(x), widen(y)).astype(x.dtype)


def _matmul_flops(types: Sequence[TensorType], a: Any) -> Any:
    x, y = types
    return d.mul(d.mul(d.product((*broadcast(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-1])), x.shape[-1]), 2)


def _conv_types(types: Types, n_space: int, group: int) -> tuple[TensorType, TensorType]:
    x, w = types
    assert x is not None and w is not None
    if x.rank < 3 or w.rank != x.rank or n_space != x.rank - 2:
        raise ValueError(f"input {x} and filter {w} do not fit together")
    return x, w


def infer_conv(types: Types, a: ConvAttrs) -> tuple[TensorType, ...]:
    if a.also:
        first, second = infer_conv(types[:2], a.part(0)), infer_conv(types[2:], a.part(1))
        if len(types) != 4 or first != second:
            raise ValueError(f"{first[0]} and {second[0]} do not add up")
        return first
    x, w = _conv_types(types, len(a.strides), a.group)
    if a.out is None:
        same_dtype(types)
    c, per_group, k = x.shape[1], w.shape[1], w.shape[0]
    if isinstance(c, int) and isinstance(per_group, int) and c != per_group * a.group:
        raise ValueError(f"{c} input channels, but the filter {w} in {a.group} groups reads {per_group * a.group}")
    if isinstance(k, int) and k % a.group:
        raise ValueError(f"{k} filters do not divide into {a.group} groups")
    n = len(a.strides)
    out: list[Dim] = []
    for i in range(n):
        extent = d.add(d.mul(d.add(w.shape[2 + i], -1), a.dilations[i]), 1)
        padded = d.sum_((x.shape[2 + i], a.pads[i], a.pads[n + i]))
        room = d.add(padded, d.mul(extent, -1))
        if d.bounds(room)[1] < 0:
            raise ValueError(f"a window of {extent} does not fit into {padded} on axis {2 + i} of {x}")
        out.append(d.add(d.floordiv(room, a.strides[i]), 1))
    return (TensorType(a.out or x.dtype, (x.shape[0], k, *out)),)


def conv_array(*given: Any) -> np.ndarray:
    """Of (x, w, attrs), or of (x, w, x2, w2, attrs) where there is a second one."""
    x, w, *others, a = given
    if others:
        first, second = (conv_array(*(widen(y) for y in pair), a.part(n)) for n, pair in enumerate(((x, w), others)))
        total: np.ndarray = first + second
        return total.astype(x.dtype)
    wide = a.out.numpy if a.out is not None else None
    xs, ws = (widen(x), widen(w)) if wide is None else (widen(x).astype(wide), widen(w).astype(wide))
    n = len(a.strides)
    pads = [(0, 0), (0, 0), *((int(a.pads[i]), int(a.pads[n + i])) for i in range(n))]
    xs = spatial(xs, pads, 0)
    k, per_group, *window = w.shape
    batch = x.shape[0]
    views = taps(xs, tuple(window), a.strides, a.dilations)  # (N, C, out..., window...)
    out = views.shape[2 : 2 + n]
    result = np.empty((batch, k, *out), dtype=xs.dtype)
    filters = k // a.group
    for g in range(a.group):
        part = views[:, g * per_group : (g + 1) * per_group]
        axes = [1, *range(2 + n, 2 + 2 * n)]
        result[:, g * filters : (g + 1) * filters] = np.moveaxis(
            np.tensordot(part, ws[g * filters : (g + 1) * filters], axes=(axes, list(range(1, n + 2)))), -1, 1
        )
    return result if wide is not None else result.astype(x.dtype)


def _conv_flops(types: Sequence[TensorType], a: ConvAttrs) -> Any:
    (y,) = infer_conv(types, a)
    depth = d.sum_(d.product(w.shape[1:]) for w in types[1::2])
    return d.mul(d.mul(y.elems, depth), 2)


def infer_conv_transpose(types: Types, a: ConvTransposeAttrs) -> tuple[TensorType, ...]:
    x, w = _conv_types(types, len(a.strides), a.group)
    same_dtype(types)
    if isinstance(x.shape[1], int) and isinstance(w.shape[0], int) and x.shape[1] != w.shape[0]:
        raise ValueError(f"{x.shape[1]} input channels, but the filter is {w}")
    if isinstance(x.shape[1], int) and x.shape[1] % a.group:
        raise ValueError(f"{x.shape[1]} input channels do not divide into {a.group} groups")
    n = len(a.strides)
    out: list[Dim] = []
    for i in range(n):
        extent = d.add(d.mul(d.add(w.shape[2 + i], -1), a.dilations[i]), 1)
        full = d.add(d.mul(d.add(x.shape[2 + i], -1), a.strides[i]), extent)
        out.append(
            d.sum_((full, a.output_padding[i] if a.output_padding else 0, d.mul(d.add(a.pads[i], a.pads[n + i]), -1)))
        )
    return (TensorType(x.dtype, (x.shape[0], d.mul(w.shape[1], a.group), *out)),)


def conv_transpose_array(x: np.ndarray, w: np.ndarray, a: ConvTransposeAttrs) -> np.ndarray:
    xs, ws = widen(x), widen(w)
    n = len(a.strides)
    c, per_group, *window = w.shape
    batch, _, *space = x.shape
    extra = a.output_padding or (0,) * n
    full = [(s - 1) * st + (k - 1) * dl + 1 for s, st, k, dl in zip(space, a.strides, window, a.dilations)]
    room = [f + max(0, e) for f, e in zip(full, extra)]
    result = np.zeros((batch, per_group * a.group, *room), dtype=xs.dtype)
    inputs = c // a.group
    for g in range(a.group):
        part = xs[:, g * inputs : (g + 1) * inputs]
        target = result[:, g * per_group : (g + 1) * per_group]
        for tap in np.ndindex(*window):
            at = (slice(g * inputs, (g + 1) * inputs), slice(None), *tap)
            value = np.moveaxis(np.tensordot(part, ws[at], axes=([1], [0])), -1, 1)
            steps = zip(tap, a.dilations, space, a.strides)
            where = (
                slice(None),
                slice(None),
                *(slice(t * dl, t * dl + (s - 1) * st + 1, st) for t, dl, s, st in steps),
            )
            target[where] += value
    pads = [(0, 0), (0, 0)]
    for i in range(n):
        end = int(a.pads[n + i]) + (max(0, extra[i]) - extra[i])  # type: ignore[arg-type]
        pads.append((-int(a.pads[i]), -end))  # type: ignore[arg-type]
    return spatial(result, pads, 0).astype(x.dtype)


OPS.add(
    "MatMul",
    Op(
        "MatMul",
        Kind.CONTRACT,
        infer_matmul,
        matmul_array,
        MatMulAttrs,
        arity=(2, 2),
        tolerance=8.0,
        flops=_matmul_flops,
    ),
)
OPS.add(
    "Conv", Op("Conv", Kind.CONTRACT, infer_conv, conv_array, ConvAttrs, arity=(2, 4), tolerance=8.0, flops=_conv_flops)
)
OPS.add(
    "ConvTranspose",
    Op(
        "ConvTranspose",
        Kind.CONTRACT,
        infer_conv_transpose,
        conv_transpose_array,
        ConvTransposeAttrs,
        arity=(2, 2),
        tolerance=8.0,
        flops=lambda types, a: d.mul(d.mul(types[0].elems, d.product(types[1].shape[1:])), 2),
    ),
)


# --- ONNX -------------------------------------------------------------------------------------------------------------


def matmul(b: Scope, x: Value, y: Value, out: DType | None = None) -> Value:
    """numpy's matmul: a vector is a row on the left and a column on the right, and its axis vanishes from the
    result."""
    if not x.type.rank or not y.type.rank:
        raise ValueError(f"matmul of a scalar: {x.type} and {y.type}")
    row, column = x.type.rank == 1, y.type.rank == 1
    if row:
        x = declare.reshape(b, x, (1, x.shape[0]))
    if column:
        y = declare.reshape(b, y, (y.shape[0], 1))
    z = b.op("MatMul", x, y, out=out)
    shape = list(z.shape)
    if column:
        shape.pop()
    if row:
        shape.pop(len(shape) - 1 if column else len(shape) - 2)
    return declare.reshape(b, z, shape)


@onnx_op("MatMul")
def matmul_(b: Scope, x: Value, y: Value) -> Value:
    return matmul(b, x, y)


def gemm_of(
    b: Scope, x: Value, y: Value, c: Value | None, alpha: float, beta: float, trans_a: bool, trans_b: bool
) -> Value:
    if x.type.rank != 2 or y.type.rank != 2:
        raise ValueError(f"matrices needed, got {x.type} and {y.type}")
    x = declare.transpose(b, x, (1, 0)) if trans_a else x
    y = declare.transpose(b, y, (1, 0)) if trans_b else y
    z = b.op("MatMul", x, y)
    if alpha != 1:
        z = b.op("Mul", z, b.like(alpha, z))
    if c is None or beta == 0:
        return z
    if beta != 1:
        c = b.op("Mul", c, b.like(beta, c))
    return b.op("Add", z, c)


@onnx_op("Gemm", since=7)
def gemm(
    b: Scope,
    x: Value,
    y: Value,
    c: Value | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Value:
    return gemm_of(b, x, y, c, alpha, beta, bool(transA), bool(transB))


@onnx_op("Gemm", since=1)
def gemm_old(
    b: Scope,
    x: Value,
    y: Value,
    c: Value,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    broadcast: int = 0,
    transA: int = 0,
    transB: int = 0,
) -> Value:
    return gemm_of(b, x, y, c, alpha, beta, bool(transA), bool(transB))


def check_kernel_shape(w: Value, kernel_shape: Positives | None) -> None:
    check_lengths(w.type.rank - 2, kernel_shape=kernel_shape)
    if kernel_shape is not None and any(isinstance(s, int) and s != k for s, k in zip(w.shape[2:], kernel_shape)):
        raise ValueError(f"kernel_shape {list(kernel_shape)} does not fit the filter {w.type}")


def convolution(
    b: Scope, x: Value, w: Value, bias: Value | None, auto_pad: str, dilations: Positives | None, group: int,
    kernel_shape: Positives | None, pads: Counts | None, strides: Positives | None,
    out: DType | None = None,
) -> Value:  # fmt: skip
    """A convolution as ONNX parametrises it; the bias becomes an Add."""
    n = x.type.rank - 2
    if n < 1 or w.type.rank != n + 2:
        raise ValueError(f"input {x.type} and filter {w.type} do not fit together")
    check_kernel_shape(w, kernel_shape)
    strides, dilations = strides or (1,) * n, dilations or (1,) * n
    check_lengths(n, pads, strides=strides, dilations=dilations)
    padding = resolve_pads(auto_pad, x.shape[2:], w.shape[2:], strides, dilations, pads)
    y = b.op("Conv", x, w, strides=strides, pads=padding, dilations=dilations, group=group, out=out)
    return y if bias is None else b.op("Add", y, along_channel(b, bias, y.type.rank))


@onnx_op("Conv")
def conv(
    b: Scope, x: Value, w: Value, bias: Value | None = None, *, auto_pad: AutoPad = "NOTSET",
    dilations: Positives | None = None, group: Positive = 1, kernel_shape: Positives | None = None,
    pads: Counts | None = None, strides: Positives | None = None,
) -> Value:  # fmt: skip
    return convolution(b, x, w, bias, auto_pad, dilations, group, kernel_shape, pads, strides)


@onnx_op("CausalConvWithState")
def causal_conv_with_state(
    b: Scope, x: Value, w: Value, bias: Value | None = None, past: Value | None = None, *, activation: Literal["none", "silu", "swish"] = "none"
) -> tuple[Value, ...]:
    """A depthwise convolution over x [B, C, L] with the k - 1 positions before it in front; gives them for the
    next call too."""
    channels = x.shape[1]
    if not isinstance(channels, int):
        raise Unsupported(f"{channels} channels, a symbolic number", declare.binding(channels))
    before = d.add(w.shape[2], -1)
    if past is None:
        padded = x if before == 0 else b.op("Pad", x, b.like(0, x), pads=(0, 0, before, 0, 0, 0), mode="constant")
    else:
        padded = b.op("Concat", past, x, axis=2)
    y = b.op("Conv", padded, w, strides=(1,), pads=(0, 0), dilations=(1,), group=channels)
    if bias is not None:
        y = b.op("Add", y, along_channel(b, bias, 3))
    if activation != "none":
        y = b.op("Silu", y)
    start = d.add(padded.shape[2], d.mul(before, -1))
    return y, declare.slice_axis(b, padded, 2, start, before)


@onnx_op("ConvTranspose")
def conv_transpose(
    b: Scope, x: Value, w: Value, bias: Value | None = None, *, auto_pad: AutoPad = "NOTSET",
    dilations: Positives | None = None, group: Positive = 1, kernel_shape: Positives | None = None,
    output_padding: Counts | None = None, output_shape: Counts | None = None,
    pads: Counts | None = None, strides: Positives | None = None,
) -> Value:  # fmt: skip
    n = x.type.rank - 2
    if n < 1 or w.type.rank != n + 2:
        raise ValueError(f"input {x.type} and filter {w.type} do not fit together")
    check_kernel_shape(w, kernel_shape)
    strides, dilations, extra = strides or (1,) * n, dilations or (1,) * n, output_padding or (0,) * n
    check_lengths(n, pads or None, strides=strides, dilations=dilations, output_padding=extra)
    if output_shape is not None and len(output_shape) not in (n, n + 2):
        raise ValueError(f"output_shape has {len(output_shape)} entries for {n} axes of space")
    begin: list[Dim] = list(pads[:n]) if pads else [0] * n
    end: list[Dim] = list(pads[n:]) if pads else [0] * n
    if output_shape is not None or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        for i in range(n):
            full = d.sum_(
                (
                    d.mul(d.add(x.shape[2 + i], -1), strides[i]),
                    d.mul(d.add(w.shape[2 + i], -1), dilations[i]),
                    1,
                    extra[i],
                )
            )
            wanted: Dim = output_shape[-n:][i] if output_shape is not None else d.mul(x.shape[2 + i], strides[i])
            total = d.add(full, d.mul(wanted, -1))
            if output_shape is None:
                total = d.max_(total, 0)
            half = d.floordiv(total, 2)
            rest = d.add(total, d.mul(half, -1))
            begin[i], end[i] = (half, rest) if auto_pad == "SAME_UPPER" else (rest, half)
    elif auto_pad not in ("NOTSET", "VALID", ""):
        raise ValueError(f"auto_pad {auto_pad!r}")
    if not all(isinstance(p, int) for p in (*begin, *end)) and output_shape is None:
        raise Unsupported(f"auto_pad = {auto_pad!r} of {x.type}, where it depends on symbolic dims", f"{declare.binding(*begin, *end)}, or give pads")
    y = b.op(
        "ConvTranspose",
        x,
        w,
        strides=strides,
        pads=(*begin, *end),
        dilations=dilations,
        group=group,
        output_padding=tuple(extra),
    )
    return y if bias is None else b.op("Add", y, along_channel(b, bias, y.type.rank))
