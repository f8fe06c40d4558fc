"""Ops without tensor inputs: each element follows from its place and the dims."""

from __future__ import annotations

from aitc.ir.graph import Node, Value
from aitc.ir.index import Index, flatten
from aitc.kernels.core.functor import ELEMENTS, FunctorBuilder, Ref
from aitc.kernels.core.spelling import literal, note


def dims(code: FunctorBuilder, node: Node, v: Value, index: Index) -> Ref:
    """A chain of selections on the flattened position: such tensors hold a handful of elements."""
    content = node.attrs.content
    dtype = v.type.dtype
    position = flatten(index, v.shape)
    varies = code.varies(position)
    at = code.c(position, element=varies)
    text = f"{dtype.compute_c}({code.c(content[-1])})" if content else literal(0, dtype)
    for n in range(len(content) - 2, -1, -1):
        text = f"({at}) == {n} ? {dtype.compute_c}({code.c(content[n])}) : {text}"
    name = code.fresh("t")
    code.emit(f"const {dtype.compute_c} {name} = {text};", not varies, note(node))
    return Ref(name, not varies, outer=not varies and not code.block.element)


def range_(code: FunctorBuilder, node: Node, v: Value, index: Index) -> Ref:
    a, dtype = node.attrs, v.type.dtype
    varies = code.varies(index[0])
    i = code.c(index[0], element=varies)

    def term(x: object) -> str:
        return literal(x, dtype) if isinstance(x, (int, float)) else f"{dtype.compute_c}({code.c(x)})"  # type: ignore[arg-type]

    name = code.fresh("t")
    code.emit(
        f"const {dtype.compute_c} {name} = {term(a.start)} + {dtype.compute_c}({i}) * {term(a.step)};",
        not varies,
        note(node),
    )
    return Ref(name, not varies, outer=not varies and not code.block.element)


def fill(code: FunctorBuilder, node: Node, v: Value, index: Index) -> Ref:
    return Ref(literal(node.attrs.value, v.type.dtype), uniform=True, outer=True)


ELEMENTS.add("Dims", dims)
ELEMENTS.add("Range", range_)
ELEMENTS.add("Fill", fill)
