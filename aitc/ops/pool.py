"""Pools: the maximum, average or norm of a window at every place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aitc.ir import dim as d
from aitc.ir.dim import Dim
from aitc.ir.dtype import I64
from aitc.ir.graph import Value
from aitc.ir.op import OPS, Kind, Op
from aitc.ir.types import TensorType
from aitc.ops import declare
from aitc.ops.attribute import AutoPad, Counts, Positive, Positives
from aitc.ops.declare import Scope, Unsupported, numbers, onnx_op
from aitc.ops.indices import check_bounds
from aitc.ops.pointwise import widen
from aitc.ops.reduce import lowest
from aitc.ops.windows import check_lengths, resolve_pads, spatial, taps

Types = Sequence["TensorType | None"]


@dataclass(frozen=True, slots=True)
class PoolAttrs:
    """One entry an axis of space; ``pads`` begins, then ends. The last window of an axis may reach beyond the
    end pad (ONNX's ceil_mode): what lies there counts for nothing, not even for ``count_include_pad``. ``out``
    are the sizes of the result's axes of space."""

    function: str  # max, average, lp
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[Dim, ...]
    dilations: tuple[int, ...]
    out: tuple[Dim, ...]
    count_include_pad: bool = False
    p: int = 2


@dataclass(frozen=True, slots=True)
class MaxPoolIndicesAttrs:
    """As ``PoolAttrs``; the indices are into the flattened input, in column-major order of space if so wished."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[Dim, ...]
    dilations: tuple[int, ...]
    out: tuple[Dim, ...]
    column_major: bool = False


def infer_pool(types: Types, a: PoolAttrs) -> tuple[TensorType, ...]:
    (x,) = types
    assert x is not None
    if x.rank != len(a.kernel) + 2:
        raise ValueError(f"a window over {len(a.kernel)} axes on {x}")
    return (TensorType(x.dtype, (*x.shape[:2], *a.out)),)


def infer_pool_indices(types: Types, a: MaxPoolIndicesAttrs) -> tuple[TensorType, ...]:
    (x,) = types
    assert x is not None
    return (TensorType(I64, (*x.shape[:2], *a.out)),)


def _windows(x: np.ndarray, a: PoolAttrs | MaxPoolIndicesAttrs, fill: object) -> np.ndarray:
    """(N, C, out..., window...) of the padded input, with room for windows that reach beyond it."""
    n = len(a.kernel)
    pads = [(0, 0), (0, 0)]
    for i in range(n):
        begin, end = int(a.pads[i]), int(a.pads[n + i])  # type: ignore[arg-type]
        reach = (int(a.out[i]) - 1) * a.strides[i] + (a.kernel[i] - 1) * a.dilations[i] + 1  # type: ignore[arg-type]
        pads.append((begin, max(end, reach - begin - x.shape[2 + i])))
    views = taps(spatial(x, pads, fill), a.kernel, a.strides, a.dilations)
    places = (slice(None), slice(None), *(slice(0, int(o)) for o in a.out))  # type: ignore[arg-type]
    return views[places]


def pool_array(x: np.ndarray, a: PoolAttrs) -> np.ndarray:
    n = len(a.kernel)
    axes = tuple(range(2 + n, 2 + 2 * n))
    w = widen(x)
    if a.function == "max":
        return _windows(w, a, lowest(w.dtype)).max(axis=axes).astype(x.dtype)
    if a.function == "lp":
        return (np.sum(np.abs(_windows(w, a, 0)) ** a.p, axis=axes) ** (1 / a.p)).astype(x.dtype)
    total = _windows(w, a, 0).sum(axis=axes)
    ones = np.ones((1, 1, *x.shape[2:]), w.dtype)
    if a.count_include_pad:
        ones = spatial(ones, [(0, 0), (0, 0), *((int(a.pads[i]), int(a.pads[n + i])) for i in range(n))], 1)  # type: ignore[arg-type]
        plain = PoolAttrs(a.function, a.kernel, a.strides, (0,) * (2 * n), a.dilations, a.out)
        return (total / _windows(ones, plain, 0).sum(axis=axes)).astype(x.dtype)
    with np.errstate(all="ignore"):
        return (total / _windows(ones, a, 0).sum(axis=axes)).astype(x.dtype)


def pool_indices_array(x: np.ndarray, a: MaxPoolIndicesAttrs) -> np.ndarray:
    n = len(a.kernel)
    w = widen(x)
    places = np.arange(int(np.prod(x.shape[2:], dtype=np.int64)), dtype=np.int64).reshape(
        x.shape[2:], order="F" if a.column_major else "C"
    )
    planes = np.arange(x.shape[0] * x.shape[1], dtype=np.int64).reshape(*x.shape[:2], *([1] * n)) * places.size
    values = _windows(w, a, lowest(w.dtype))
    flat = values.reshape(*values.shape[: 2 + n], -1)
    best = flat.argmax(axis=-1)[..., None]
    where = _windows(places[None, None], a, -1)
    where = np.broadcast_to(where.reshape(*where.shape[: 2 + n], -1), flat.shape)
    return np.take_along_axis(where, best, axis=-1)[..., 0] + planes


OPS.add("Pool", Op("Pool", Kind.WINDOW, infer_pool, pool_array, PoolAttrs, tolerance=2.0))
OPS.add("MaxPoolIndices", Op("MaxPoolIndices", Kind.WINDOW, infer_pool_indices, pool_indices_array, MaxPoolIndicesAttrs,
                             doc="Where the maximum of each window is; the first of equal ones."))  # fmt: skip


# --- ONNX -------------------------------------------------------------------------------------------------------------


def pooled_sizes(
    space: Sequence[Dim],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[Dim],
    ceil_mode: bool,
) -> tuple[Dim, ...]:
    """The sizes of a pool's result. With ``ceil_mode`` a last window that starts inside the input or its begin
    pad is kept."""
    n = len(space)
    out: list[Dim] = []
    for i, size in enumerate(space):
        extent = (kernel[i] - 1) * dilations[i] + 1
        room = d.sum_((size, pads[i], pads[n + i], -extent))
        if d.bounds(room)[1] < 0 and not ceil_mode:
            raise ValueError(f"a window of {extent} does not fit into {d.sum_((size, pads[i], pads[n + i]))}")
        if not ceil_mode:
            out.append(d.add(d.floordiv(room, strides[i]), 1))
            continue
        count = d.add(d.ceildiv(room, strides[i]), 1)
        last = d.floordiv(d.sum_((size, pads[i], strides[i] - 1)), strides[i])  # windows that start before the end
        out.append(d.min_(count, last))
    return tuple(out)


def _window(
    x: Value, kernel_shape: Positives, strides: Positives | None, dilations: Positives | None,
    auto_pad: str, pads: Counts | None, ceil_mode: int,
) -> dict[str, Any]:  # fmt: skip
    n = x.type.rank - 2
    if n < 1 or len(kernel_shape) != n:
        raise ValueError(f"kernel_shape {list(kernel_shape)} does not fit {x.type}")
    strides, dilations = strides or (1,) * n, dilations or (1,) * n
    padding = resolve_pads(auto_pad, x.shape[2:], kernel_shape, strides, dilations, pads)
    for k, dilation, *both in zip(kernel_shape, dilations, padding[:n], padding[n:]):
        if any(isinstance(p, int) and p > (k - 1) * dilation for p in both):
            raise ValueError(f"pads {list(padding)} of a window {list(kernel_shape)}: a window would lie beside its input")
    ceil = bool(ceil_mode) and auto_pad in ("NOTSET", "")
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        out = tuple(d.ceildiv(s, st) for s, st in zip(x.shape[2:], strides))
    else:
        out = pooled_sizes(x.shape[2:], kernel_shape, strides, dilations, padding, ceil)
    return {"kernel": kernel_shape, "strides": strides, "pads": padding, "dilations": dilations, "out": out}


@onnx_op("MaxPool")
def max_pool(
    b: Scope, x: Value, *, kernel_shape: Positives, auto_pad: AutoPad = "NOTSET", ceil_mode: int = 0,
    dilations: Positives | None = None, pads: Counts | None = None, storage_order: int = 0,
    strides: Positives | None = None,
) -> tuple[Value | None, ...]:  # fmt: skip
    window = _window(x, kernel_shape, strides, dilations, auto_pad, pads, ceil_mode)
    y = b.op("Pool", x, function="max", **window)
    return y, b.op("MaxPoolIndices", x, column_major=bool(storage_order), **window) if b.wants(1) else None


@onnx_op("AveragePool")
def average_pool(
    b: Scope, x: Value, *, kernel_shape: Positives, auto_pad: AutoPad = "NOTSET", ceil_mode: int = 0,
    count_include_pad: int = 0, dilations: Positives | None = None, pads: Counts | None = None,
    strides: Positives | None = None,
) -> Value:  # fmt: skip
    window = _window(x, kernel_shape, strides, dilations, auto_pad, pads, ceil_mode)
    return b.op("Pool", x, function="average", count_include_pad=bool(count_include_pad), **window)


@onnx_op("LpPool")
def lp_pool(
    b: Scope, x: Value, *, kernel_shape: Positives, auto_pad: AutoPad = "NOTSET", ceil_mode: int = 0,
    dilations: Positives | None = None, p: Positive = 2, pads: Counts | None = None,
    strides: Positives | None = None,
) -> Value:  # fmt: skip
    return b.op(
        "Pool", x, function="lp", p=p, **_window(x, kernel_shape, strides, dilations, auto_pad, pads, ceil_mode)
    )


@onnx_op("LRN")
def lrn(b: Scope, x: Value, *, size: Positive, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Value:
    """x / (bias + alpha * mean of squares over ``size`` neighbouring channels) ^ beta."""
    n, c, *space = x.shape
    rows = declare.reshape(b, b.op("Mul", x, x), (n, 1, c, d.product(space)))
    pads = ((size - 1) // 2, 0, size // 2, 0)
    window = {"kernel": (size, 1), "strides": (1, 1), "pads": pads, "dilations": (1, 1), "out": (c, d.product(space))}
    mean = b.op("Pool", rows, function="average", count_include_pad=True, **window)  # type: ignore[arg-type]
    scale = b.op("Add", b.op("Mul", declare.reshape(b, mean, x.shape), b.like(alpha, x)), b.like(bias, x))
    return b.op("Div", x, b.op("Pow", scale, b.like(beta, x)))


@onnx_op("MaxUnpool")
def max_unpool(
    b: Scope, x: Value, indices: Value, output_shape: Value | None = None, *, kernel_shape: Positives,
    pads: Counts | None = None, strides: Positives | None = None,
) -> Value:  # fmt: skip
    n = x.type.rank - 2
    strides, pads = strides or (1,) * n, pads or (0,) * (2 * n)
    check_lengths(n, pads, kernel_shape=kernel_shape, strides=strides)
    natural: list[Dim] = list(x.shape[:2])
    for i in range(n):
        natural.append(d.sum_((d.mul(d.add(x.shape[2 + i], -1), strides[i]), kernel_shape[i], -pads[i], -pads[n + i])))
    shape = tuple(natural) if output_shape is None else b.dims(output_shape, "output_shape")
    if not all(isinstance(s, int) for s in natural):
        raise Unsupported(f"a result of symbolic size {natural} of {x.type}", declare.binding(*natural))
    count = d.product(natural)
    known = numbers(indices)
    if known is not None:
        check_bounds(known, count, "the result", least=0)
    flat = b.op("Fill", value=0.0, shape=(count,), dtype=x.type.dtype)
    placed = b.op(
        "ScatterElements",
        flat,
        declare.reshape(b, indices, (x.type.elems,)),
        declare.reshape(b, x, (x.type.elems,)),
        axis=0,
        reduction="none",
    )
    y = declare.reshape(b, placed, natural)
    if tuple(natural) == shape:
        return y
    ends = [d.add(s, d.mul(m, -1)) for s, m in zip(shape, natural)]
    return b.op("Pad", y, b.like(0, y), pads=(*([0] * x.type.rank), *ends), mode="constant")
