"""Index maps: where an element of a view comes from, and where an element of its source goes.

An index is a tuple of Dims, one per axis, over coordinate symbols. Views compose by substitution; the normal form of Dims does
the simplification, so a chain of Reshape and Transpose that is an affine map in the end comes out as one.
"""

from __future__ import annotations

from aitc.ir.dim import Dim, floordiv, mod, mul, product
from aitc.ir.graph import Node, Value
from aitc.ir.op import Kind
from aitc.ir.types import Shape

Index = tuple[Dim, ...]


def flatten(index: Index, shape: Shape) -> Dim:
    """The row-major position of ``index`` in ``shape``."""
    position: Dim = 0
    for i, d in zip(index, shape, strict=True):
        position = position * d + i
    return position


def unflatten(position: Dim, shape: Shape) -> Index:
    """The inverse of ``flatten``; the outermost axis is not reduced, since ``position`` is below the product."""
    index: list[Dim] = []
    for axis in range(len(shape)):
        step = product(shape[axis + 1 :])
        i = position if step == 1 else floordiv(position, step) if step != 0 else 0
        if shape[axis] == 1:
            i = 0
        elif axis > 0 and shape[axis] != 0:
            i = mod(i, shape[axis])
        index.append(i)
    return tuple(index)


def broadcast_index(index: Index, shape: Shape) -> Index:
    """The index into a tensor of ``shape`` that is broadcast to the space of ``index``."""
    tail = index[len(index) - len(shape) :]
    return tuple(0 if d == 1 else i for i, d in zip(tail, shape, strict=True))


def _reshape(index: Index, from_shape: Shape, to_shape: Shape) -> Index:
    """Maps an index of ``from_shape`` to the same element's in ``to_shape``; axes are matched in groups of equal size first."""
    result: list[Dim] = []
    i = j = 0
    while j < len(to_shape) or i < len(from_shape):
        i0, j0 = i, j
        if i < len(from_shape) and j < len(to_shape) and from_shape[i] == to_shape[j]:
            result.append(index[i])
            i, j = i + 1, j + 1
            continue
        a: Dim = 1
        b: Dim = 1
        # grow both sides to the smallest equal products; symbolic products compare structurally
        while True:
            if a == b and (i > i0 or j > j0):
                break
            if j < len(to_shape) and (i >= len(from_shape) or _smaller(b, a)):
                b = mul(b, to_shape[j])
                j += 1
            elif i < len(from_shape):
                a = mul(a, from_shape[i])
                i += 1
            else:
                break
        if a != b:  # products that cannot be matched: take everything that is left together
            i, j = len(from_shape), len(to_shape)
        position = flatten(index[i0:i], from_shape[i0:i])
        result.extend(unflatten(position, to_shape[j0:j]))
    return tuple(result)


def _smaller(a: Dim, b: Dim) -> bool:
    from aitc.ir.dim import hint

    return hint(a) < hint(b) or (hint(a) == hint(b) and a != b)


def source_index(view: Node, index: Index) -> Index:
    """The index into the view's input of the output element at ``index``."""
    shape = view.input.shape
    name = view.op.name
    if name == "Transpose":
        source: list[Dim] = [0] * len(shape)
        for axis, p in enumerate(view.attrs.perm):
            source[p] = index[axis]
        return tuple(source)
    if name == "Reshape":
        return _reshape(index, view.output.shape, shape)
    if name == "Slice":
        return tuple(s + mul(i, t) for i, s, t in zip(index, view.attrs.starts, view.attrs.steps, strict=True))
    if name == "Expand":
        return broadcast_index(index, shape)
    raise AssertionError(f"{name} is no view")


def target_index(view: Node, index: Index) -> Index | None:
    """The index in the view's output of the input element at ``index``; None if there may be none, or several."""
    name = view.op.name
    if name == "Transpose":
        return tuple(index[p] for p in view.attrs.perm)
    if name == "Reshape":
        return _reshape(index, view.input.shape, view.output.shape)
    return None


def is_view(node: Node | None) -> bool:
    return node is not None and node.op.kind is Kind.VIEW


def root_of(v: Value) -> Value:
    """What ``v`` is a view of; itself if it is none."""
    while is_view(v.producer):
        assert v.producer is not None
        v = v.producer.input
    return v
