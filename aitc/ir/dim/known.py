"""What is certain of a Dim whatever its symbols are: bounds and divisors, read off its terms and never by rewriting it.

The algebra asks for bounds while it brings a Dim into normal form, so this module stands below it. What takes the algebra
to decide (``surely_below``) is there.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd, inf
from typing import TYPE_CHECKING, Union

from aitc.ir.dim.atom import Atom, Max, Min, Mod, Symbol

if TYPE_CHECKING:
    from aitc.ir.dim.algebra import Dim

Bound = Union[int, float]  # float only for the infinities


@lru_cache(maxsize=1 << 16)
def bounds(d: Dim) -> tuple[Bound, Bound]:
    """Inclusive bounds of every value that ``d`` can take (not always the tightest)."""
    if isinstance(d, int):
        return d, d
    lo: Bound = d.const
    hi: Bound = d.const
    for p, c in d.terms:
        plo: Bound = 1
        phi: Bound = 1
        for a in p:
            alo, ahi = _atom_bounds(a)
            corners = [_times(x, y) for x in (plo, phi) for y in (alo, ahi)]
            plo, phi = min(corners), max(corners)
        lo += _times(c, plo if c > 0 else phi)
        hi += _times(c, phi if c > 0 else plo)
    return lo, hi


def _times(x: Bound, y: Bound) -> Bound:
    return 0 if x == 0 or y == 0 else x * y


def _atom_bounds(a: Atom) -> tuple[Bound, Bound]:
    if isinstance(a, Symbol):
        return a.lo, inf if a.hi is None else a.hi
    if isinstance(a, Min):
        pairs = [bounds(x) for x in a.args]
        return min(p[0] for p in pairs), min(p[1] for p in pairs)
    if isinstance(a, Max):
        pairs = [bounds(x) for x in a.args]
        return max(p[0] for p in pairs), max(p[1] for p in pairs)
    (alo, ahi), (blo, bhi) = bounds(a.a), bounds(a.b)
    if isinstance(a, Mod):
        return (0, min(bhi - 1, ahi) if alo >= 0 else bhi - 1) if blo > 0 else (-inf, inf)
    if blo > 0:
        quotients = [_divide(x, y) for x in (alo, ahi) for y in (blo, bhi)]
        return min(quotients), max(quotients)
    return -inf, inf


def _divide(x: Bound, y: Bound) -> Bound:
    if y in (inf, -inf):
        return 0 if x >= 0 else -1
    return x if x in (inf, -inf) else x // y


def upper(d: Dim) -> int | None:
    """The largest value, or None if unbounded."""
    hi = bounds(d)[1]
    return None if hi == inf else int(hi)


def divisor(d: Dim) -> int:
    """The largest known integer that divides every value of ``d`` (0 for the int 0)."""
    if isinstance(d, int):
        return abs(d)
    g = abs(d.const)
    for p, c in d.terms:
        f = abs(c)
        for a in p:
            if isinstance(a, Symbol):
                f *= a.multiple_of
        g = gcd(g, f)
    return g


def is_multiple(d: Dim, n: int) -> bool:
    return divisor(d) % n == 0
