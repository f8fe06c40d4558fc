"""What small tensors hold, as far as it is known at compile time: numbers, or Dims.

``Value.content`` is a numpy object array whose elements are Python ints, bools, floats, Dims (``Sum``) or, in float
tensors, ``Ratio``s of a Dim (``scalar.py``). Exporters compute shapes with chains of Shape, Gather, Concat, Mul, Div, Floor, Cast ...;
``propagate`` runs them symbolically while the graph is built, so that whoever needs a shape reads it off the tensor.
Comparisons are decided only where the bounds of the dims prove them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aitc.ir import dim as d
from aitc.ir import scalar
from aitc.ir.dim import Dim, Sum
from aitc.ir.dtype import DType
from aitc.ir.graph import Content, Node, Value
from aitc.ir.scalar import Ratio, Undecided

LIMIT = 256  # elements: shapes and bounds are far smaller, tables of weights larger


def of_constant(value: Value) -> None:
    """Sets the content of a small constant."""
    array = value.const
    if array is not None and array.size <= LIMIT and value.type.dtype.kind in ("int", "uint", "bool", "float"):
        value.content = _objects(array)


def elements(value: Value) -> tuple[Dim, ...] | None:
    """The elements of an integer tensor as Dims, flattened; None if they are not known."""
    if 0 in value.shape and value.type.is_static:
        return ()
    if value.content is None:
        if value.const is None or value.type.dtype.kind not in ("int", "uint", "bool"):
            return None
        return tuple(int(i) for i in value.const.ravel())
    flat = value.content.ravel().tolist()
    if any(isinstance(e, (Ratio, float)) for e in flat):
        return None
    return tuple(int(e) if isinstance(e, bool) else e for e in flat)


def is_numeric(content: Content) -> bool:
    """Whether no element is symbolic."""
    return not any(isinstance(e, (Sum, Ratio)) for e in content.ravel().tolist())


def as_numpy(content: Content, dtype: DType) -> np.ndarray:
    """A numeric content as an array of ``dtype``."""
    if content.size == 0:
        return np.zeros(content.shape, dtype.numpy)
    flat = content.ravel().tolist()
    wide: Any = np.float64 if dtype.kind == "float" else (np.uint64 if dtype.kind == "uint" else np.int64)
    if dtype.kind == "bool":
        wide = np.bool_
    return np.array(flat, dtype=wide).astype(dtype.numpy).reshape(content.shape)


def propagate(node: Node) -> None:
    """Sets the contents of the node's outputs where its inputs' contents and its attributes decide them."""
    for out in node.outputs:
        if out.type.dtype.kind not in ("int", "uint", "bool", "float"):
            return
        size = 1
        for s in out.type.shape:
            if not isinstance(s, int):
                return
            size *= s
        if size > LIMIT:
            return
    source = _SOURCES.get(node.op.name)
    if source is not None:
        node.outputs[0].content = source(node)
        return
    if node.bodies or not node.inputs:
        return
    inputs: list[Content] = []
    for v in node.inputs:
        if v is None or v.content is None:
            return
        inputs.append(v.content)
    if all(is_numeric(c) for c in inputs) and not _has_symbols(node.attrs):
        arrays = [as_numpy(c, v.type.dtype) for c, v in zip(inputs, node.inputs) if v is not None]
        try:
            results = node.op.reference(*arrays, node.attrs)
        except (ValueError, IndexError, OverflowError, ZeroDivisionError, TypeError, NotImplementedError):
            return  # the reference refuses: the node will say so when it runs
        for out, result in zip(node.outputs, results if isinstance(results, tuple) else (results,)):
            if isinstance(result, np.ndarray) and result.shape == out.type.shape:
                out.content = _objects(result)
        return
    symbolic = _SYMBOLIC.get(node.op.name)
    if symbolic is None:
        return
    try:
        result = symbolic(node, *inputs)
    except Undecided:
        return
    if result is not None and result.shape == node.outputs[0].type.shape:
        node.outputs[0].content = result


# --- pieces -----------------------------------------------------------------------------------------------------------


def _objects(array: np.ndarray) -> Content:
    """Python numbers of an array of any element type."""
    result = np.empty(array.size, dtype=object)
    if array.dtype.kind not in "iufb":  # ml_dtypes: bfloat16, float8, int4
        wide = (
            np.float64
            if array.size and isinstance(float(array.ravel()[0]), float) and not _is_small_int(array.dtype)
            else np.int64
        )
        array = array.astype(wide)
    result[:] = array.ravel().tolist()
    return result.reshape(array.shape)


def _is_small_int(dtype: np.dtype) -> bool:
    return dtype.name in ("int4", "uint4", "int2", "uint2")


def _has_symbols(attrs: Any) -> bool:
    for name in getattr(attrs, "__dataclass_fields__", ()):
        value = getattr(attrs, name)
        if isinstance(value, Sum) or (isinstance(value, tuple) and any(isinstance(e, Sum) for e in value)):
            return True
    return False


def _apply(function: Callable[..., Any], *contents: Content) -> Content:
    """``function`` on each element, broadcasting."""
    arrays = np.broadcast_arrays(*contents)
    result = np.empty(arrays[0].size, dtype=object)
    result[:] = [function(*row) for row in zip(*(a.ravel().tolist() for a in arrays))]
    return result.reshape(arrays[0].shape)


def _cast(node: Node, x: Content) -> Content:
    source = node.inputs[0]
    assert source is not None
    target = node.outputs[0].type.dtype

    def one(e: Any) -> Any:
        if target.kind == "bool":
            return not scalar.equal(e, 0)
        if target.kind in ("int", "uint"):
            if isinstance(e, Ratio):
                if d.bounds(e.num)[0] < 0:
                    raise Undecided
                return d.floordiv(e.num, e.den)
            return int(e) if isinstance(e, (float, bool)) else e
        if isinstance(e, (Sum, Ratio)) and target.bits < 32:
            raise Undecided  # sizes above 2048 would be rounded
        return e if isinstance(e, (Sum, Ratio)) else float(e)

    return _apply(one, x)


def _where(node: Node, c: Content, x: Content, y: Content) -> Content:
    return _apply(lambda c, x, y: x if c else y, c, x, y)


def _reduce(node: Node, x: Content) -> Content | None:
    function = node.attrs.function
    combine = {
        "sum": scalar.plus,
        "prod": scalar.times,
        "max": scalar.extreme(False),
        "min": scalar.extreme(True),
    }.get(function)
    if combine is None or x.size == 0:
        return None
    axes = tuple(node.attrs.axes)
    kept = [a for a in range(x.ndim) if a not in axes]
    rows = x.transpose([*kept, *axes]).reshape(int(np.prod([x.shape[a] for a in kept], dtype=int)), -1)
    result = np.empty(rows.shape[0], dtype=object)
    for i, row in enumerate(rows):
        total = row[0]
        for e in row[1:]:
            total = combine(total, e)
        result[i] = total
    return result.reshape([int(s) for s in node.outputs[0].type.shape])  # type: ignore[arg-type]


def _gather(node: Node, x: Content, indices: Content) -> Content:
    if not is_numeric(indices):
        raise Undecided
    return np.asarray(
        np.take(x, indices.astype(np.int64), axis=node.attrs.axis), dtype=object
    )  # a scalar index gives the bare element


def _scatter_nd(node: Node, x: Content, indices: Content, updates: Content) -> Content:
    if not is_numeric(indices) or node.attrs.reduction != "none":
        raise Undecided
    result = x.copy()
    where = indices.astype(np.int64)
    for at in np.ndindex(where.shape[:-1]):
        result[tuple(where[at])] = updates[at]
    return result


def _slice(node: Node, x: Content) -> Content:
    if _has_symbols(node.attrs):
        raise Undecided
    a = node.attrs
    return x[np.ix_(*(np.arange(n) * p + s for s, n, p in zip(a.starts, a.sizes, a.steps)))] if x.ndim else x


def _expand(node: Node, x: Content) -> Content:
    return np.broadcast_to(x, [int(s) for s in node.outputs[0].type.shape]).copy()  # type: ignore[arg-type]


def _reshape(node: Node, x: Content) -> Content:
    return x.reshape([int(s) for s in node.outputs[0].type.shape])  # type: ignore[arg-type]


def _cumsum(node: Node, x: Content) -> Content:
    a = node.attrs
    if a.function != "sum":
        raise Undecided
    moved = np.moveaxis(x, a.axis, -1)
    if a.reverse:
        moved = moved[..., ::-1]
    result = np.empty(moved.shape, dtype=object)
    for at in np.ndindex(moved.shape[:-1]):
        total: Any = 0
        for i, e in enumerate(moved[at]):
            after = scalar.plus(total, e)
            place = (*at, i)
            result[place] = total if a.exclusive else after
            total = after
    if a.reverse:
        result = result[..., ::-1]
    return np.moveaxis(result, -1, a.axis)


def _elementwise(function: Callable[..., Any]) -> Callable[..., Content]:
    return lambda node, *contents: _apply(function, *contents)


_SYMBOLIC: dict[str, Callable[..., Content | None]] = {
    "Add": _elementwise(scalar.plus),
    "Sub": _elementwise(lambda x, y: scalar.plus(x, scalar.times(y, -1))),
    "Mul": _elementwise(scalar.times),
    "Div": lambda node, x, y: _apply(scalar.divide(node), x, y),
    "Mod": _elementwise(scalar.modulo),
    "Neg": _elementwise(lambda x: scalar.times(x, -1)),
    "Abs": _elementwise(scalar.positive),
    "Relu": _elementwise(scalar.positive),
    "Sign": _elementwise(scalar.sign),
    "Floor": _elementwise(scalar.floor),
    "Ceil": _elementwise(scalar.ceil),
    "Min": _elementwise(scalar.extreme(True)),
    "Max": _elementwise(scalar.extreme(False)),
    "Equal": _elementwise(scalar.equal),
    "Less": _elementwise(scalar.ordered(True, False)),
    "LessOrEqual": _elementwise(scalar.ordered(True, True)),
    "Greater": _elementwise(scalar.ordered(False, False)),
    "GreaterOrEqual": _elementwise(scalar.ordered(False, True)),
    "Where": _where,
    "Cast": _cast,
    "Reduce": _reduce,
    "Gather": _gather,
    "ScatterND": _scatter_nd,
    "Slice": _slice,
    "Expand": _expand,
    "Reshape": _reshape,
    "Transpose": lambda node, x: x.transpose(node.attrs.perm),
    "Concat": lambda node, *parts: np.concatenate(parts, axis=node.attrs.axis),
    "CumSum": _cumsum,
}


def _dims(node: Node) -> Content:
    result = np.empty(len(node.attrs.content), dtype=object)
    result[:] = node.attrs.content
    return result.reshape(node.attrs.shape)


def _read_dims(node: Node) -> Content:
    result = np.empty(len(node.attrs.dims), dtype=object)
    result[:] = node.attrs.dims
    return result.reshape([int(s) for s in node.outputs[0].type.shape])  # type: ignore[arg-type]


def _fill(node: Node) -> Content:
    shape = [int(s) for s in node.outputs[0].type.shape]  # type: ignore[arg-type]
    result = np.empty(int(np.prod(shape, dtype=int)), dtype=object)
    result[:] = [node.attrs.value] * len(result)
    return result.reshape(shape)


def _range(node: Node) -> Content:
    size = node.outputs[0].type.shape[0]
    assert isinstance(size, int)
    result = np.empty(size, dtype=object)
    result[:] = [scalar.plus(node.attrs.start, scalar.times(node.attrs.step, i)) for i in range(size)]
    return result


_SOURCES: dict[str, Callable[[Node], Content | None]] = {
    "Dims": _dims,
    "ReadDims": _read_dims,
    "Fill": _fill,
    "Range": _range,
}
