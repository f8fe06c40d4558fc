"""Reductions over axes, cumulative sums and products, and arg-reductions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aitc.ir.dim import Dim
from aitc.ir.dtype import BOOL, I64
from aitc.ir.graph import Value
from aitc.ir.op import OPS, Kind, Op
from aitc.ir.types import Shape, TensorType
from aitc.ops import declare, runtime
from aitc.ops.attribute import Positive
from aitc.ops.declare import Scope, add_importer, ints, normalize_axes, normalize_axis, numbers, onnx_op, scalar
from aitc.ops.pointwise import widen

Types = Sequence["TensorType | None"]
FUNCTIONS = ("sum", "mean", "max", "min", "prod", "sumsquare", "l1", "l2", "logsum", "logsumexp", "any", "all")


@dataclass(frozen=True, slots=True)
class ReduceAttrs:
    function: str
    axes: tuple[int, ...]  # sorted, from the front; all axes listed, never empty unless nothing is reduced
    keepdims: bool = True


@dataclass(frozen=True, slots=True)
class ArgReduceAttrs:
    function: str  # max or min
    axis: int
    keepdims: bool = True
    select_last: bool = False


@dataclass(frozen=True, slots=True)
class CumulateAttrs:
    axis: int
    exclusive: bool = False
    reverse: bool = False
    function: str = "sum"  # or "prod"


def reduced_shape(shape: Shape, axes: tuple[int, ...], keepdims: bool) -> Shape:
    kept: list[Dim] = []
    for i, s in enumerate(shape):
        if i not in axes:
            kept.append(s)
        elif keepdims:
            kept.append(1)
    return tuple(kept)


def infer_reduce(types: Types, a: ReduceAttrs) -> tuple[TensorType, ...]:
    (x,) = types
    assert x is not None
    if a.function not in FUNCTIONS:
        raise ValueError(f"no reduction {a.function!r}")
    if a.function in ("any", "all") and x.dtype is not BOOL:
        raise ValueError(f"{a.function} of {x}")
    return (TensorType(x.dtype, reduced_shape(x.shape, normalize_axes(a.axes, x.rank), a.keepdims)),)


def reduce_array(x: np.ndarray, a: ReduceAttrs) -> np.ndarray:
    w = widen(x)
    how: dict[str, Any] = {"axis": a.axes, "keepdims": a.keepdims}
    size = int(np.prod([x.shape[i] for i in a.axes], dtype=np.int64))
    with np.errstate(all="ignore"):
        if a.function == "max":
            y = np.max(w, **how, initial=lowest(x.dtype)) if size == 0 else np.max(w, **how)
        elif a.function == "min":
            y = np.min(w, **how, initial=highest(x.dtype)) if size == 0 else np.min(w, **how)
        elif a.function == "mean":
            y = np.mean(w, **how) if w.dtype.kind == "f" else _whole_mean(w, size, how)
        elif a.function in ("l2", "logsum", "logsumexp"):
            f = w if w.dtype.kind == "f" else w.astype(np.float64)
            if a.function == "l2":
                y = np.sqrt(np.sum(f * f, **how))
            elif a.function == "logsum":
                y = np.log(np.sum(f, **how))
            else:
                y = _log_sum_exp(f, a, size)
        else:
            y = {
                "sum": lambda: np.sum(w, **how, dtype=w.dtype), "prod": lambda: np.prod(w, **how, dtype=w.dtype),
                "sumsquare": lambda: np.sum(w * w, **how, dtype=w.dtype), "l1": lambda: np.sum(np.abs(w), **how,
                dtype=w.dtype), "any": lambda: np.any(w, **how), "all": lambda: np.all(w, **how),
            }[a.function]()  # fmt: skip
        return np.asarray(y).astype(x.dtype)


def _whole_mean(w: np.ndarray, size: int, how: dict[str, Any]) -> np.ndarray:
    """The mean of integers, truncated."""
    return np.trunc(np.sum(w.astype(np.int64), **how) / max(size, 1))


def _log_sum_exp(x: np.ndarray, a: ReduceAttrs, size: int) -> np.ndarray:
    if size == 0:
        return np.full([int(s) for s in reduced_shape(x.shape, a.axes, a.keepdims)], -np.inf, x.dtype)  # type: ignore[arg-type]
    top = np.max(x, axis=a.axes, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    total = np.log(np.sum(np.exp(x - top), axis=a.axes, keepdims=True)) + top
    return total if a.keepdims else total.reshape([int(s) for s in reduced_shape(x.shape, a.axes, False)])  # type: ignore[arg-type]


def lowest(dtype: np.dtype) -> Any:
    """The neutral element of a maximum."""
    return False if dtype.kind == "b" else np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def highest(dtype: np.dtype) -> Any:
    """The neutral element of a minimum."""
    return True if dtype.kind == "b" else np.iinfo(dtype).max if dtype.kind in "iu" else np.inf


def infer_arg_reduce(types: Types, a: ArgReduceAttrs) -> tuple[TensorType, ...]:
    (x,) = types
    assert x is not None
    return (TensorType(I64, reduced_shape(x.shape, (normalize_axis(a.axis, x.rank),), a.keepdims)),)


def arg_reduce_array(x: np.ndarray, a: ArgReduceAttrs) -> np.ndarray:
    find = np.argmax if a.function == "max" else np.argmin
    w = widen(x)
    if a.select_last:
        index = x.shape[a.axis] - 1 - find(np.flip(w, a.axis), axis=a.axis)
    else:
        index = find(w, axis=a.axis)
    index = np.asarray(index, dtype=np.int64)
    return np.expand_dims(index, a.axis) if a.keepdims else index


def infer_same(types: Types, a: Any) -> tuple[TensorType, ...]:
    (x,) = types
    assert x is not None
    return (TensorType(x.dtype, x.shape),)


def cumulate_array(x: np.ndarray, a: CumulateAttrs) -> np.ndarray:
    w = np.flip(widen(x), a.axis) if a.reverse else widen(x)
    neutral = 0 if a.function == "sum" else 1
    y = (np.cumsum if a.function == "sum" else np.cumprod)(w, axis=a.axis, dtype=w.dtype)
    if a.exclusive:
        y = np.roll(y, 1, axis=a.axis)
        first: list[Any] = [slice(None)] * x.ndim
        first[a.axis] = slice(0, 1)
        y[tuple(first)] = neutral
    return (np.flip(y, a.axis) if a.reverse else y).astype(x.dtype)


OPS.add(
    "Reduce",
    Op(
        "Reduce",
        Kind.REDUCE,
        infer_reduce,
        reduce_array,
        ReduceAttrs,
        tolerance=4.0,
        doc="One of the functions sum, mean, max, min, prod, sumsquare, l1, l2, logsum, logsumexp, any, all over axes.",
    ),
)
OPS.add(
    "ArgReduce",
    Op(
        "ArgReduce",
        Kind.SEARCH,
        infer_arg_reduce,
        arg_reduce_array,
        ArgReduceAttrs,
        doc="Where the maximum or minimum along an axis is; of equal ones the first or the last.",
    ),
)
OPS.add("CumSum", Op("CumSum", Kind.REDUCE, infer_same, cumulate_array, CumulateAttrs, tolerance=4.0,
                     doc="Running sums (or products) along an axis."))  # fmt: skip


# --- ONNX -------------------------------------------------------------------------------------------------------------


def reduce(b: Scope, x: Value, function: str, axes: Sequence[int] | None, keepdims: bool, noop: bool = False) -> Value:
    """Reduces over ``axes``: all of them for None or an empty list, unless ``noop`` says that an empty list
    means none."""
    if not axes:
        if noop:
            axes = ()
        else:
            axes = range(x.type.rank)
    where = normalize_axes(axes, x.type.rank)
    function = boolean(function, x)
    if not where and function in ("sum", "mean", "max", "min", "prod"):
        return x
    return b.op("Reduce", x, function=function, axes=where, keepdims=keepdims)


def boolean(function: str, x: Value) -> str:
    """The reduction's name for bools, whose maximum is "any" and minimum "all"."""
    return {"max": "any", "min": "all"}.get(function, function) if x.type.dtype is BOOL else function


def _importers(function: str) -> tuple[Any, Any]:
    def with_attribute(b: Scope, x: Value, *, axes: tuple[int, ...] | None = None, keepdims: int = 1) -> Value:
        return reduce(b, x, function, axes, bool(keepdims))

    def with_input(
        b: Scope, x: Value, axes: Value | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Value:
        if axes is not None and numbers(axes) is None:
            return runtime.reduce(b, x, boolean(function, x), axes, bool(keepdims))
        return reduce(
            b, x, function, None if axes is None else ints(axes, "axes"), bool(keepdims), bool(noop_with_empty_axes)
        )

    return with_attribute, with_input


for _name, _function in {
    "ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min", "ReduceProd": "prod",
    "ReduceSumSquare": "sumsquare", "ReduceL1": "l1", "ReduceL2": "l2", "ReduceLogSum": "logsum",
    "ReduceLogSumExp": "logsumexp",
}.items():  # fmt: skip
    _attribute, _input = _importers(_function)
    add_importer(_name, _attribute)
    add_importer(_name, _input, since=13 if _name == "ReduceSum" else 18)


def _arg_importer(function: str) -> Any:
    def importer(b: Scope, x: Value, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Value:
        return b.op(
            "ArgReduce",
            x,
            function=function,
            axis=normalize_axis(axis, x.type.rank),
            keepdims=bool(keepdims),
            select_last=bool(select_last_index),
        )

    return importer


add_importer("ArgMax", _arg_importer("max"))
add_importer("ArgMin", _arg_importer("min"))


def _cumulative(function: str) -> Any:
    def importer(b: Scope, x: Value, axis: Value, *, exclusive: int = 0, reverse: int = 0) -> Value:
        how: dict[str, Any] = {"exclusive": bool(exclusive), "reverse": bool(reverse), "function": function}
        if numbers(axis) is None:
            y = declare.reshape(b, x, runtime.around(b, x, axis))
            return declare.reshape(b, b.op("CumSum", y, axis=1, **how), x.shape)
        return b.op("CumSum", x, axis=normalize_axis(int(scalar(axis, "axis")), x.type.rank), **how)

    return importer


add_importer("CumSum", _cumulative("sum"))
add_importer("CumProd", _cumulative("prod"))


def _global(function: str) -> Any:
    def importer(b: Scope, x: Value) -> Value:
        return b.op("Reduce", x, function=function, axes=tuple(range(2, x.type.rank)), keepdims=True)

    return importer


add_importer("GlobalAveragePool", _global("mean"))
add_importer("GlobalMaxPool", _global("max"))


@onnx_op("GlobalLpPool")
def global_lp_pool(b: Scope, x: Value, *, p: Positive = 2) -> Value:
    axes = tuple(range(2, x.type.rank))
    if p in (1, 2):
        return b.op("Reduce", x, function=f"l{p}", axes=axes, keepdims=True)
    powers = b.op("Pow", b.op("Abs", x), b.like(p, x))
    return b.op("Pow", b.op("Reduce", powers, function="sum", axes=axes, keepdims=True), b.like(1 / p, x))
