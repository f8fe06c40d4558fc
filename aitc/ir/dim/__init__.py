"""Dims: integers, or integer expressions over named symbols with bounds, always in one normal form.

A Dim is an ``int`` or a ``Sum``: a constant plus coefficients times products of atoms. Atoms are ``Symbol``, ``FloorDiv``,
``Mod``, ``Min`` and ``Max``. Equal expressions compare equal after construction, so ``==`` and hashing work for
everything that the normal form can see. The same algebra serves tensor shapes and the index arithmetic of generated
kernels, where the symbols are coordinates.

This is the door to the package: the rest of aitc imports from here alone, since what one module holds and another does not
is a matter of how they need each other (``atom`` < ``known`` < ``algebra`` < ``replace``), not of who calls them.
"""

from aitc.ir.dim.algebra import (
    Dim,
    Sum,
    add,
    as_symbol,
    ceildiv,
    floordiv,
    max_,
    min_,
    mod,
    mul,
    product,
    round_up,
    sum_,
    surely_below,
    symbol,
)
from aitc.ir.dim.atom import Atom, FloorDiv, Max, Min, Mod, Product, Symbol
from aitc.ir.dim.known import Bound, bounds, divisor, is_multiple, upper
from aitc.ir.dim.replace import evaluate, hint, substitute, symbols, transform

__all__ = [
    "Atom",
    "Bound",
    "Dim",
    "FloorDiv",
    "Max",
    "Min",
    "Mod",
    "Product",
    "Sum",
    "Symbol",
    "add",
    "as_symbol",
    "bounds",
    "ceildiv",
    "divisor",
    "evaluate",
    "floordiv",
    "hint",
    "is_multiple",
    "max_",
    "min_",
    "mod",
    "mul",
    "product",
    "round_up",
    "substitute",
    "sum_",
    "surely_below",
    "symbol",
    "symbols",
    "transform",
    "upper",
]
