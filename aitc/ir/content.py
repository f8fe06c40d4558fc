"""What small tensors hold, as far as it is known at compile time: numbers, or Dims.

``Value.content`` is a numpy object array whose elements are Python ints, bools, floats, Dims (``Sum``) or, in float
tensors, ``Ratio``s of a Dim. Exporters compute shapes with chains of Shape, Gather, Concat, Mul, Div, Floor, Cast ...;
``propagate`` runs them symbolically while the graph is built, so that whoever needs a shape reads it off the tensor.
Comparisons are decided only where the bounds of the dims prove them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from aitc.ir import dim as d
from aitc.ir.dim import Dim, Sum
from aitc.ir.dtype import DType
from aitc.ir.graph import Content, Node, Value

LIMIT = 256  # elements: shapes and bounds are far smaller, tables of weights larger


class Undecided(Exception):
    """The result depends on the value of a symbol."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """An element of a float tensor: the real number ``num / den``."""

    num: Dim
    den: int


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


def _ratio(x: Any) -> Ratio:
    if isinstance(x, Ratio):
        return x
    if isinstance(x, float):
        if x != x or x in (float("inf"), float("-inf")):
            raise Undecided
        f = _simplest(x)
        if f.denominator > 1 << 30:
            raise Undecided
        return Ratio(f.numerator, f.denominator)
    return Ratio(x, 1)


def _simplest(x: float) -> Fraction:
    """The fraction that was meant: 9/5 for float32(1.8), whose product with 5 floats round to 9 and exact arithmetic leaves below."""
    simple = Fraction(x).limit_denominator(1000)
    same = np.float32(simple) == np.float32(x) if x == np.float32(x) else float(simple) == x
    return simple if same else Fraction(x)


def _reduced(num: Dim, den: int) -> Any:
    """The simplest element that is ``num / den``."""
    if isinstance(num, int):
        return num / den
    g = int(np.gcd(d.divisor(num), den))
    if g > 1:
        num, den = d.floordiv(num, g), den // g
    return num if den == 1 else Ratio(num, den)


def _plus(x: Any, y: Any) -> Any:
    if not isinstance(x, (Ratio, float)) and not isinstance(y, (Ratio, float)):
        return d.add(x, y)
    a, b = _ratio(x), _ratio(y)
    return _reduced(d.add(d.mul(a.num, b.den), d.mul(b.num, a.den)), a.den * b.den)


def _times(x: Any, y: Any) -> Any:
    if not isinstance(x, (Ratio, float)) and not isinstance(y, (Ratio, float)):
        return d.mul(x, y)
    a, b = _ratio(x), _ratio(y)
    return _reduced(d.mul(a.num, b.num), a.den * b.den)


def _divide(node: Node) -> Callable[[Any, Any], Any]:
    if node.outputs[0].type.dtype.kind == "float":

        def quotient(x: Any, y: Any) -> Any:
            a, b = _ratio(x), _ratio(y)
            if b.num == 0:
                raise Undecided
            if isinstance(b.num, int):
                sign = 1 if b.num > 0 else -1
                return _reduced(d.mul(a.num, b.den * sign), a.den * abs(b.num))
            whole = d.floordiv(d.mul(a.num, b.den), d.mul(b.num, a.den))
            if d.mul(whole, d.mul(b.num, a.den)) != d.mul(a.num, b.den):
                raise Undecided
            return whole

        return quotient

    def whole(x: Dim, y: Dim) -> Dim:  # ONNX truncates: the same as flooring only where both are known to be positive
        if d.bounds(x)[0] < 0 or d.bounds(y)[0] <= 0:
            product = d.floordiv(x, y) if y != 0 else 0
            if y == 0 or d.mul(product, y) != x:
                raise Undecided
            return product
        return d.floordiv(x, y)

    return whole


def compare(x: Any, y: Any) -> tuple[bool, bool, bool] | None:
    """Whether x < y, x == y, x > y is certain; a tuple of which at most one is true is decided, all false is not."""
    a, b = _ratio(x), _ratio(y)
    difference = d.add(d.mul(a.num, b.den), d.mul(d.mul(b.num, a.den), -1))
    lo, hi = d.bounds(difference)
    return hi < 0, lo == 0 == hi, lo > 0


def _equal(x: Any, y: Any) -> bool:
    if isinstance(x, bool) and isinstance(y, bool):
        return x == y
    less, equal, greater = compare(x, y) or (False, False, False)
    if equal or less or greater:
        return equal
    a, b = _ratio(x), _ratio(y)  # never equal if the difference is not a multiple of what divides it
    difference = d.add(d.mul(a.num, b.den), d.mul(d.mul(b.num, a.den), -1))
    if isinstance(difference, Sum) and difference.const:
        g = d.divisor(Sum(difference.terms))
        if g and difference.const % g:
            return False
    raise Undecided


def _ordered(strict_less: bool, or_equal: bool) -> Callable[[Any, Any], bool]:
    def decide(x: Any, y: Any) -> bool:
        a, b = _ratio(x), _ratio(y)
        lo, hi = d.bounds(d.add(d.mul(a.num, b.den), d.mul(d.mul(b.num, a.den), -1)))
        if not strict_less:
            lo, hi = -hi, -lo
        if or_equal:
            if hi <= 0:
                return True
            if lo > 0:
                return False
        else:
            if hi < 0:
                return True
            if lo >= 0:
                return False
        raise Undecided

    return decide


def _extreme(smaller: bool) -> Callable[[Any, Any], Any]:
    def pick(x: Any, y: Any) -> Any:
        if isinstance(x, (float, Ratio)) or isinstance(y, (float, Ratio)):
            return (x if _ordered(True, True)(x, y) else y) if smaller else (y if _ordered(True, True)(x, y) else x)
        return d.min_(x, y) if smaller else d.max_(x, y)

    return pick


def _floor(x: Any) -> Any:
    r = _ratio(x)
    return d.floordiv(r.num, r.den)


def _ceil(x: Any) -> Any:
    r = _ratio(x)
    return d.ceildiv(r.num, r.den)


def scaled(size: Dim, scale: Any) -> Dim:
    """floor(size * scale) in float32, as ONNX infers it, for a scale that is a number or an element of a float content.
    Raises Undecided if no Dim can say that."""
    if isinstance(size, int) and isinstance(scale, (int, float)):
        return int(np.floor(np.float32(size) * np.float32(scale)))
    return _floor(_times(size, float(scale) if isinstance(scale, int) else scale))


def _cast(node: Node, x: Content) -> Content:
    source = node.inputs[0]
    assert source is not None
    target = node.outputs[0].type.dtype

    def one(e: Any) -> Any:
        if target.kind == "bool":
            return not _equal(e, 0)
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
    combine = {"sum": _plus, "prod": _times, "max": _extreme(False), "min": _extreme(True)}.get(function)
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
            after = _plus(total, e)
            place = (*at, i)
            result[place] = total if a.exclusive else after
            total = after
    if a.reverse:
        result = result[..., ::-1]
    return np.moveaxis(result, -1, a.axis)


def _modulo(x: Any, y: Any) -> Any:
    if isinstance(x, (float, Ratio)) or isinstance(y, (float, Ratio)) or d.bounds(y)[0] <= 0:
        raise Undecided
    return d.mod(x, y)


def _sign(x: Any) -> Any:
    lo, hi = d.bounds(_ratio(x).num)
    if lo > 0:
        return 1
    if hi < 0:
        return -1
    raise Undecided


def _positive(x: Any) -> Any:
    if d.bounds(_ratio(x).num)[0] < 0:
        raise Undecided
    return x


def _elementwise(function: Callable[..., Any]) -> Callable[..., Content]:
    return lambda node, *contents: _apply(function, *contents)


_SYMBOLIC: dict[str, Callable[..., Content | None]] = {
    "Add": _elementwise(_plus),
    "Sub": _elementwise(lambda x, y: _plus(x, _times(y, -1))),
    "Mul": _elementwise(_times),
    "Div": lambda node, x, y: _apply(_divide(node), x, y),
    "Mod": _elementwise(_modulo),
    "Neg": _elementwise(lambda x: _times(x, -1)),
    "Abs": _elementwise(_positive),
    "Relu": _elementwise(_positive),
    "Sign": _elementwise(_sign),
    "Floor": _elementwise(_floor),
    "Ceil": _elementwise(_ceil),
    "Min": _elementwise(_extreme(True)),
    "Max": _elementwise(_extreme(False)),
    "Equal": _elementwise(_equal),
    "Less": _elementwise(_ordered(True, False)),
    "LessOrEqual": _elementwise(_ordered(True, True)),
    "Greater": _elementwise(_ordered(False, False)),
    "GreaterOrEqual": _elementwise(_ordered(False, True)),
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
    result[:] = [_plus(node.attrs.start, _times(node.attrs.step, i)) for i in range(size)]
    return result


_SOURCES: dict[str, Callable[[Node], Content | None]] = {
    "Dims": _dims,
    "ReadDims": _read_dims,
    "Fill": _fill,
    "Range": _range,
}
