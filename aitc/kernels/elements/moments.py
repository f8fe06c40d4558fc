"""Statistics of rows: merged where they are applied; those of parts, where no kernel's epilogue leaves them, in a loop over each part."""

from __future__ import annotations

from aitc.ir.dim import Dim
from aitc.ir.graph import Node, Value
from aitc.ir.index import Index
from aitc.kernels.core.functor import ELEMENTS, FunctorBuilder, Ref
from aitc.kernels.core.spelling import address, note


def moments(code: FunctorBuilder, node: Node, v: Value, index: Index) -> Ref:
    """Two passes over the part: its mean, then the squared differences."""
    part, at = node.attrs.part, (*index[:-2], index[-2] * node.attrs.part)
    element = any(code.varies(i) for i in index)

    def total(expression: str) -> str:
        acc, r = code.accumulators("float", "0.0f"), code.fresh("r")
        step = code.local(r, 0, part - 1, varies=False)
        with code.nested([f"for (int {r} = 0; {r} < {part}; ++{r}) {{"], element=element):
            x = code.value(node.input, (*at[:-1], at[-1] + step))
            code.emit(f"{acc} += {expression.format(x.text)};", False)
        return acc

    mean = f"({total('{0}')} / {part}.0f)"
    squares = total(f"({{0}} - {mean}) * ({{0}} - {mean})")
    return _component(code, index[-1], mean, squares, not code.block.element)


def merged_moments(code: FunctorBuilder, node: Node, v: Value, index: Index) -> Ref:
    """One call a row, whoever needs the mean or the deviation; before the kernel begins with the row, where it can be."""
    parts, a = node.input, node.attrs
    rows: Index = index[:-1]
    found = code.block.memo.get((id(node), rows))
    if found is None:
        storage = code.storage(parts)
        offset: Dim = storage.at((*rows, 0, 0))
        pointer = code.parameters.pointer(storage.root, const=True)
        code.used[pointer] = None
        code.reads.append((storage.root, offset, "uniform"))
        element = code.varies(offset)
        where, count, flag = address(pointer, code.c(offset, element=element)), parts.shape[-2], "" if a.center else ", false"
        name = code.entered(
            offset, (f"RowParts<{count}, RowQuad>", f"load_from({where}, across)"),
            ("RowMoments", f"merged_moments<{a.part}{flag}>({{0}}, {a.epsilon!r}f, across)"), note(node),
        )  # fmt: skip
        if not name:
            name = code.fresh("m")
            code.emit(f"const RowMoments {name} = merged_moments<{count}, {a.part}{flag}>({where}, {a.epsilon!r}f);", not element, note(node))
        found = Ref(name, uniform=not element, outer=not element and not code.block.element)
        code.block.memo[id(node), rows] = found
    return _component(code, index[-1], f"{found.text}.mean", f"{found.text}.inverse", found.outer, found.uniform)


def _component(code: FunctorBuilder, which: Dim, first: str, second: str, outer: bool, uniform: bool = False) -> Ref:
    if isinstance(which, int):
        return Ref(second if which else first, uniform, outer)
    varies = code.varies(which)
    return Ref(f"(({code.c(which, element=varies)}) == 0 ? {first} : {second})", uniform and not varies, outer and not varies)


ELEMENTS.add("Moments", moments)
ELEMENTS.add("MergedMoments", merged_moments)
