"""Sources: tensors that are made, not computed from others (Dims, Range, Fill), ReadDims, and ONNX's Constant,
Shape, Range ..."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aitc.ir import content as contents
from aitc.ir import dim as d
from aitc.ir.dim import Dim
from aitc.ir.dtype import F32, I64, DType
from aitc.ir.graph import Value
from aitc.ir.op import OPS, Kind, Op
from aitc.ir.scalar import Ratio
from aitc.ir.types import Shape, TensorType
from aitc.ops import declare, runtime
from aitc.ops.attribute import Datum, Words
from aitc.ops.declare import Scope, Unsupported, dtype_of, numbers, onnx_op

Types = Sequence["TensorType | None"]


@dataclass(frozen=True, slots=True)
class DimsAttrs:
    content: Shape  # the elements, flattened
    shape: tuple[int, ...]
    dtype: DType = I64


@dataclass(frozen=True, slots=True)
class RangeAttrs:
    """Element i is start + i * step, for i < size. ``start`` and ``step`` are Dims, or numbers for float ranges."""

    start: Any
    step: Any
    size: Dim
    dtype: DType = I64


@dataclass(frozen=True, slots=True)
class FillAttrs:
    value: Any  # a Python number
    shape: Shape
    dtype: DType = F32


@dataclass(frozen=True, slots=True)
class ReadDimsAttrs:
    """The symbols that the elements of the input define. From this node on they are known to the host."""

    dims: Shape


def infer_read_dims(types: Types, a: ReadDimsAttrs) -> tuple[TensorType, ...]:
    (x,) = types
    assert x is not None
    if not x.dtype.is_integer or x.elems != len(a.dims):
        raise ValueError(f"ReadDims needs {len(a.dims)} integers, got {x}")
    return (x,)


def _dims_array(a: DimsAttrs) -> np.ndarray:
    return np.array([int(e) for e in a.content], dtype=a.dtype.numpy).reshape(a.shape)  # type: ignore[arg-type]


def _range_array(a: RangeAttrs) -> np.ndarray:
    wide = np.float64 if a.dtype.is_float else np.int64
    return (np.arange(int(a.size), dtype=wide) * a.step + a.start).astype(a.dtype.numpy)  # type: ignore[arg-type]


def _infer_shape(types: Types, a: Any) -> tuple[TensorType, ...]:
    return (TensorType(a.dtype, a.shape),)


def _source(name: str, infer: Any, reference: Any, attrs: type, doc: str) -> None:
    OPS.add(name, Op(name, Kind.SOURCE, infer, reference, attrs, arity=(0, 0), doc=doc))


_source("Dims", _infer_shape, _dims_array, DimsAttrs, "A small tensor whose elements are Dims, made at run time.")
_source("Range", lambda t, a: (TensorType(a.dtype, (a.size,)),), _range_array, RangeAttrs, "start + i * step.")
_source("Fill", _infer_shape, lambda a: np.full(a.shape, a.value, a.dtype.numpy), FillAttrs, "One number everywhere.")

_READS = "The input itself; its elements become the values of symbols, read back by the host when the model runs."
OPS.add("ReadDims", Op("ReadDims", Kind.CONTROL, infer_read_dims, lambda x, a: x, ReadDimsAttrs, doc=_READS))


# --- ONNX -------------------------------------------------------------------------------------------------------------


@onnx_op("Constant")
def constant(
    b: Scope, *, value: np.ndarray | None = None, value_float: float | None = None,
    value_floats: tuple[float, ...] | None = None, value_int: int | None = None,
    value_ints: tuple[int, ...] | None = None, value_string: Datum | None = None,
    value_strings: Words | None = None, sparse_value: np.ndarray | None = None,
) -> Value:  # fmt: skip
    if value is not None:
        return b.constant(value)
    if sparse_value is not None:
        return b.constant(sparse_value)
    for floats in (value_float, value_floats):
        if floats is not None:
            return b.constant(floats, np.float32)
    for integers in (value_int, value_ints):
        if integers is not None:
            return b.constant(integers, np.int64)
    if value_string is not None or value_strings is not None:
        said = repr(value_string) if value_strings is None else str(list(value_strings))
        raise Unsupported(f"a constant of strings, {said[:60]}", "replace the strings by integers before the export")
    raise ValueError("Constant without a value")


@onnx_op("Shape")
def shape(b: Scope, x: Value, *, start: int = 0, end: int | None = None) -> Value:
    dims = x.shape[slice(start, end)]
    return b.op("Dims", content=dims, shape=(len(dims),))


@onnx_op("Size")
def size(b: Scope, x: Value) -> Value:
    return b.op("Dims", content=(x.type.elems,), shape=())


@onnx_op("ConstantOfShape")
def constant_of_shape(b: Scope, shape: Value, *, value: np.ndarray | None = None) -> Value:
    fill = np.zeros(1, np.float32) if value is None else value
    return fill_like(b, b.dims(shape, "the shape"), fill)


def fill_like(b: Scope, shape: Shape, value: np.ndarray) -> Value:
    """A tensor of ``shape`` whose elements are all the one element of ``value``."""
    from aitc.ir import dtype as dt

    dtype = dt.of(value)
    element = value.reshape(-1)[0]
    number: Any = (
        bool(element)
        if dtype.kind == "bool"
        else int(element)
        if dtype.is_integer
        else complex(element)
        if dtype.kind == "complex"
        else float(element)
    )
    return b.op("Fill", value=number, shape=tuple(shape), dtype=dtype)


@onnx_op("Range")
def range_(b: Scope, start: Value, limit: Value, delta: Value, *, stash_type: int = 1) -> Value:
    dtype = start.type.dtype
    known = [numbers(v) for v in (start, limit, delta)]
    if all(k is not None for k in known):
        first, last, step = (k.reshape(()).item() for k in known if k is not None)
        if step == 0:
            raise ValueError("delta is 0")
        count = max(0, int(np.ceil((last - first) / step)))
        return b.op("Range", start=first, step=step, size=count, dtype=dtype)
    if not dtype.is_integer:
        return _float_range(b, start, limit, delta)
    given = contents.elements(delta)
    if given is None or not isinstance(given[0], int):
        return runtime.range_(b, start, limit, delta)
    step_dim = given[0]
    (first_dim,) = b.dims(start, "start", lo=-(1 << 62))
    (last_dim,) = b.dims(limit, "limit", lo=-(1 << 62))
    span = d.add(last_dim, d.mul(first_dim, -1))
    if step_dim < 0:
        span, magnitude = d.mul(span, -1), -step_dim
    else:
        magnitude = step_dim
    count_dim = d.max_(d.ceildiv(span, magnitude), 0)
    return b.op("Range", start=first_dim, step=step_dim, size=count_dim, dtype=dtype)


def _float_range(b: Scope, start: Value, limit: Value, delta: Value) -> Value:
    """A float range whose bounds are sizes: Cast of an integer range, where they are whole numbers."""
    bounds = [v.content.reshape(-1)[0] if v.content is not None else None for v in (start, limit, delta)]
    if any(e is None or isinstance(e, Ratio) or (isinstance(e, float) and not e.is_integer()) for e in bounds):
        count = b.op("Ceil", b.op("Div", b.op("Sub", limit, start), delta))
        (size,) = b.dims(
            declare.reshape(b, declare.cast(b, b.op("Max", count, b.like(0, count)), I64), (1,)),
            "the number of elements",
        )
        index = b.op("Cast", b.op("Range", start=0, step=1, size=size), to=start.type.dtype)
        return b.op("Add", b.op("Mul", index, declare.reshape(b, delta, ())), declare.reshape(b, start, ()))
    first, last, step = (int(e) if isinstance(e, float) else e for e in bounds if e is not None)
    if not isinstance(step, int) or step == 0:
        raise Unsupported(f"delta of {delta.type} with start and limit of known size must be known at compile time", "make delta a constant")
    span = d.mul(d.add(last, d.mul(first, -1)), 1 if step > 0 else -1)
    count_dim = d.max_(d.ceildiv(span, abs(step)), 0)
    whole = b.op("Range", start=first, step=step, size=count_dim, dtype=I64)
    return b.op("Cast", whole, to=start.type.dtype)


@onnx_op("EyeLike")
def eye_like(b: Scope, x: Value, *, dtype: int | None = None, k: int = 0) -> Value:
    to = x.type.dtype if dtype is None else dtype_of(dtype, "dtype")
    rows, columns = x.shape
    i = declare.reshape(b, b.op("Range", start=0, step=1, size=rows), (rows, 1))
    j = declare.reshape(b, b.op("Range", start=-k, step=1, size=columns), (1, columns))
    return declare.cast(b, b.op("Equal", i, j), to)
