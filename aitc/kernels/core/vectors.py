"""Whether neighbours along a coordinate are neighbours in memory: what decides between vector, strided and single access."""

from __future__ import annotations

from aitc.ir.dim import Dim, Sum, Symbol, divisor, symbol, symbols, transform


def vectorizes(offset: Dim, vector: Symbol | None, width: int) -> bool:
    """Whether ``width`` neighbours along ``vector``, from a multiple of ``width``, lie side by side and aligned."""
    if vector is None or width == 1:
        return False
    return vector_step(offset, vector, width) == 1 and divisor(split_index(offset, vector, width) - symbol("@j", 0, width - 1)) % width == 0


def vector_step(offset: Dim, vector: Symbol | None, width: int) -> int | None:
    """Elements between neighbours along ``vector``, from a multiple of ``width`` on; None if they do not lie at equal distances."""
    if vector is None or width == 1:
        return None
    split = split_index(offset, vector, width)
    if isinstance(split, int):
        return None
    j = Symbol("@j", 0, width - 1)
    step = 0
    for product, c in split.terms:
        if product == (j,):
            step = c
        elif any(_mentions(a, j) for a in product):
            return None
    return step


def split_index(d: Dim, vector: Symbol, width: int) -> Dim:
    """``d`` at element @j of the vector number @vec."""
    outer = Symbol("@vec", 0, None if vector.hi is None else vector.hi // width)
    j = Symbol("@j", 0, width - 1)
    return transform(d, lambda s: as_dim(outer) * width + as_dim(j) if s == vector else as_dim(s))


def _mentions(atom: object, s: Symbol) -> bool:
    if isinstance(atom, Symbol):
        return atom == s
    return s in symbols(Sum((((atom,), 1),)))  # type: ignore[arg-type]


def as_dim(s: Symbol) -> Dim:
    """The Dim that is ``s`` alone."""
    return Sum((((s,), 1),))
