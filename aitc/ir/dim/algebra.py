"""Sums of products of atoms and their arithmetic, which leaves every result in normal form.

Addition joins a quotient with its remainder again, division asks whether a remainder is surely below its divisor, and that
in turn adds and divides: one recursion, hence one module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import gcd
from typing import Union

from aitc.ir.dim.atom import Atom, FloorDiv, Max, Min, Mod, Product, Symbol
from aitc.ir.dim.known import bounds, divisor


@dataclass(frozen=True, slots=True)
class Sum:
    """``const + Σ coefficient · product``; terms sorted, no zero coefficients, at least one term."""

    terms: tuple[tuple[Product, int], ...]
    const: int = 0

    def __add__(self, o: "Dim") -> "Dim":
        return add(self, o)

    __radd__ = __add__

    def __sub__(self, o: "Dim") -> "Dim":
        return add(self, mul(o, -1))

    def __rsub__(self, o: "Dim") -> "Dim":
        return add(o, mul(self, -1))

    def __mul__(self, o: "Dim") -> "Dim":
        return mul(self, o)

    __rmul__ = __mul__

    def __neg__(self) -> "Dim":
        return mul(self, -1)

    def __floordiv__(self, o: "Dim") -> "Dim":
        return floordiv(self, o)

    def __rfloordiv__(self, o: "Dim") -> "Dim":
        return floordiv(o, self)

    def __mod__(self, o: "Dim") -> "Dim":
        return mod(self, o)

    def __rmod__(self, o: "Dim") -> "Dim":
        return mod(o, self)

    def __str__(self) -> str:
        parts: list[str] = []
        for product, c in self.terms:
            factors = [f"({a})" if isinstance(a, (FloorDiv, Mod)) and (len(product) > 1 or abs(c) != 1) else str(a) for a in product]
            text = "*".join(([str(abs(c))] if abs(c) != 1 else []) + factors)
            parts.append(("- " if c < 0 else "+ ") + text if parts else ("-" if c < 0 else "") + text)
        if self.const:
            parts.append(f"{'-' if self.const < 0 else '+'} {abs(self.const)}")
        return " ".join(parts)

    def __repr__(self) -> str:
        return str(self)


Dim = Union[int, Sum]


def _make(terms: Mapping[Product, int], const: int) -> Dim:
    kept = [(p, c) for p, c in terms.items() if c]
    if not kept:
        return const
    if len(kept) > 1 and any(isinstance(a, Mod) for p, _ in kept for a in p):
        joined = _join(dict(kept))
        if joined is not None:
            return add(joined, const)
    kept.sort(key=lambda t: (len(t[0]), tuple(map(str, t[0]))))
    return Sum(tuple(kept), const)


def _join(terms: dict[Product, int]) -> Dim | None:
    """``b (x // b) + x % b = x`` and ``b ((x // b) % d) + x % b = x % (b d)``, with any common factor; None if neither applies.

    This is what collapses the neighbouring axes of an index that was taken apart.
    """
    for p, c in terms.items():
        for at, m in enumerate(p):
            if not isinstance(m, Mod):
                continue
            rest: Dim = Sum(((p[:at] + p[at + 1 :], c),)) if len(p) > 1 else c
            quotient = floordiv(m.a, m.b)
            if isinstance(quotient, int):
                continue
            candidates: list[tuple[Dim, Dim]] = [(quotient, m.a)]
            for q in terms:
                for other in q:
                    if isinstance(other, Mod) and other.a == quotient:
                        candidates.append((_atom(other), mod(m.a, mul(m.b, other.b))))
                    elif isinstance(other, FloorDiv) and other.b == m.b and mod(other.a, m.b) == _atom(m):
                        candidates.append((_atom(other), other.a))
            for found, whole in candidates:
                part = mul(mul(rest, m.b), found)
                if isinstance(part, Sum) and part.const == 0 and all(terms.get(q) == d for q, d in part.terms):
                    left = {q: d for q, d in terms.items() if q != p}
                    for q, _ in part.terms:
                        left.pop(q)
                    return add(_make(left, 0), mul(rest, whole))
    return None


def _atom(a: Atom) -> Dim:
    return Sum((((a,), 1),))


def symbol(
    name: str, lo: int = 0, hi: int | None = None, multiple_of: int = 1, hint: int | None = None
) -> Dim:
    """A Dim that is one symbol; an int if its bounds leave one value."""
    if hi is not None and lo == hi:
        return lo
    return _atom(Symbol(name, lo, hi, multiple_of, hint))


def as_symbol(d: Dim) -> Symbol | None:
    """The symbol that ``d`` is, or None if it is anything else."""
    if isinstance(d, Sum) and d.const == 0 and len(d.terms) == 1:
        (product, c), = d.terms
        if c == 1 and len(product) == 1 and isinstance(product[0], Symbol):
            return product[0]
    return None


def add(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int):
        if isinstance(b, int):
            return a + b
        a, b = b, a
    if isinstance(b, int):
        return Sum(a.terms, a.const + b) if b else a
    terms = dict(a.terms)
    for p, c in b.terms:
        terms[p] = terms.get(p, 0) + c
    return _make(terms, a.const + b.const)


def mul(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int):
        if isinstance(b, int):
            return a * b
        a, b = b, a
    if isinstance(b, int):
        if b == 0:
            return 0
        return a if b == 1 else Sum(tuple((p, c * b) for p, c in a.terms), a.const * b)
    terms: dict[Product, int] = {}
    for p, c in [*a.terms, ((), a.const)]:
        for q, d in [*b.terms, ((), b.const)]:
            key = tuple(sorted(p + q, key=str))
            terms[key] = terms.get(key, 0) + c * d
    const = terms.pop((), 0)
    return _make(terms, const)


def product(dims: Iterable[Dim]) -> Dim:
    """The product of ``dims``; 1 for none."""
    result: Dim = 1
    for d in dims:
        result = mul(result, d)
    return result


def sum_(dims: Iterable[Dim]) -> Dim:
    result: Dim = 0
    for d in dims:
        result = add(result, d)
    return result


def surely_below(a: Dim, b: Dim) -> bool:
    """Whether ``0 <= a < b`` is certain, using the symbolic extents of coordinates."""
    lo, hi = bounds(a)
    if lo < 0:
        return False
    if hi < bounds(b)[0]:
        return True
    if isinstance(a, int):
        return bounds(add(b, -a))[0] >= 1
    largest: Dim = a.const
    for p, c in a.terms:
        term: Dim = c
        for atom in p:
            if isinstance(atom, Symbol) and atom.below is not None and c > 0:
                term = mul(term, add(atom.below, -1))
            elif isinstance(atom, Mod) and c > 0:
                term = mul(term, add(atom.b, -1))
            elif isinstance(atom, FloorDiv) and c > 0 and isinstance(atom.a, Sum):
                top = as_symbol(atom.a)
                if top is None or top.below is None:
                    return False
                exact = _exact(top.below, atom.b) if not isinstance(atom.b, int) else None
                if exact is None and isinstance(atom.b, int) and divisor(top.below) % atom.b == 0:
                    exact = floordiv(top.below, atom.b)
                if exact is None:
                    return False
                term = mul(term, add(exact, -1))
            else:
                return False
        largest = add(largest, term)
    return bounds(add(b, mul(largest, -1)))[0] >= 1


def floordiv(a: Dim, b: Dim) -> Dim:
    """``a // b`` rounding to minus infinity; ``b`` must not be the int 0."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if b == 1 or a == 0:
        return a
    if a == b:
        return 1
    if isinstance(b, Sum):
        exact = _exact(a, b)
        if exact is not None:
            return exact
    if bounds(b)[0] > 0:
        quotient, remainder = _split(a, b)
        if surely_below(remainder, b):
            return quotient
        if quotient != 0:
            return add(quotient, floordiv(remainder, b))
        if isinstance(a, Sum) and a.const == 0 and len(a.terms) == 1:
            (p, c), = a.terms
            inner = p[0] if c == 1 and len(p) == 1 else None
            if isinstance(inner, FloorDiv) and bounds(inner.b)[0] > 0:
                return floordiv(inner.a, mul(inner.b, b))  # (x // c) // b = x // (c b)
            if isinstance(inner, Mod) and bounds(inner.b)[0] > 0:
                whole = _exact(inner.b, b) if isinstance(b, Sum) else _whole(inner.b, b)
                if whole is not None:
                    return mod(floordiv(inner.a, b), whole)  # (x % (b c)) // b = (x // b) % c
        reduced = _reduce(a, b)
        if reduced is not None:
            return floordiv(reduced[0], reduced[1])
    return _atom(FloorDiv(a, b))


def _split(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    """``(q, r)`` with ``a = q b + r``, taking into ``q`` the terms that ``b`` divides."""
    if isinstance(a, int):
        return (a // b, a % b) if isinstance(b, int) else (0, a)
    q: Dim = 0
    r: Dim = 0
    for p, c in a.terms:
        if isinstance(b, int):
            if c % b == 0:
                q = add(q, Sum(((p, c // b),)))
            else:
                r = add(r, Sum(((p, c),)))
        else:
            exact = _exact(Sum(((p, c),)), b)
            if exact is not None:
                q = add(q, exact)
            else:
                r = add(r, Sum(((p, c),)))
    if isinstance(b, int):
        return add(q, a.const // b), add(r, a.const % b)
    return q, add(r, a.const)


def _whole(a: Dim, n: int) -> Dim | None:
    """``a / n`` where the coefficients of ``a`` are multiples of ``n``."""
    quotient, remainder = _split(a, n)
    return quotient if remainder == 0 else None


def _content(b: Dim) -> int:
    return b if isinstance(b, int) else gcd(b.const, *(c for _, c in b.terms))


def _reduce(a: Dim, b: Dim) -> tuple[Dim, Dim, int, Dim] | None:
    """``(a', b', g, r)`` with ``a = g a' + r``, ``b = g b'``, ``g > 1`` and ``0 <= r < g``; None if there is none."""
    whole = _content(b)
    if isinstance(a, int) or whole <= 1:
        return None
    tried: set[int] = set()
    for _, c in sorted(a.terms, key=lambda t: -abs(t[1])):
        g = gcd(whole, c)
        if g <= 1 or g in tried:
            continue
        tried.add(g)
        inner: Dim = a.const // g
        rest: Dim = a.const % g
        for p, d in a.terms:
            if d % g == 0:
                inner = add(inner, Sum(((p, d // g),)))
            else:
                rest = add(rest, Sum(((p, d),)))
        if surely_below(rest, g):
            smaller = b // g if isinstance(b, int) else Sum(tuple((p, d // g) for p, d in b.terms), b.const // g)
            return inner, smaller, g, rest
    return None


def _exact(a: Dim, b: Dim) -> Dim | None:
    """``a / b`` where ``b`` is one monomial that divides every term of ``a``, else None."""
    if isinstance(a, int) or isinstance(b, int) or b.const or len(b.terms) != 1:
        if isinstance(a, Sum) and isinstance(b, Sum) and a.terms and b.terms:  # a = k b
            c, d = a.terms[0][1], b.terms[0][1]
            if c % d == 0 and mul(b, c // d) == a:
                return c // d
        return None
    (bp, bc), = b.terms
    if a.const:
        return None
    terms: dict[Product, int] = {}
    for p, c in a.terms:
        left = list(p)
        for atom in bp:
            if atom not in left:
                return None
            left.remove(atom)
        if c % bc:
            return None
        terms[tuple(left)] = c // bc
    const = terms.pop((), 0)
    return _make(terms, const)


def mod(a: Dim, b: Dim) -> Dim:
    """``a - b * (a // b)``; ``b`` must not be the int 0."""
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    if a == b or b == 1 or a == 0:
        return 0
    if bounds(b)[0] > 0:
        if surely_below(a, b):
            return a
        quotient, remainder = _split(a, b)
        if quotient != 0:
            return mod(remainder, b)
        if isinstance(a, Sum) and a.const == 0 and len(a.terms) == 1:
            (p, c), = a.terms
            if c == 1 and len(p) == 1 and isinstance(p[0], Mod) and _split(p[0].b, b)[1] == 0:
                return mod(p[0].a, b)
        reduced = _reduce(a, b)
        if reduced is not None:
            inner, smaller, g, rest = reduced
            return add(mul(mod(inner, smaller), g), rest)
    elif _exact(a, b) is not None:
        return 0
    return _atom(Mod(a, b))


def ceildiv(a: Dim, b: Dim) -> Dim:
    return floordiv(add(a, add(b, -1)), b)


def round_up(a: Dim, b: int) -> Dim:
    return mul(ceildiv(a, b), b)


def min_(*args: Dim) -> Dim:
    return _extreme(args, smaller=True)


def max_(*args: Dim) -> Dim:
    return _extreme(args, smaller=False)


def _extreme(args: tuple[Dim, ...], smaller: bool) -> Dim:
    kept: list[Dim] = []
    for a in args:
        if a in kept:
            continue
        kept.append(a)
    pick: list[Dim] = []
    for i, a in enumerate(kept):
        beaten = False
        for j, b in enumerate(kept):
            if i == j:
                continue
            dlo, dhi = bounds(add(a, mul(b, -1)))  # a - b
            loses = dlo >= 0 if smaller else dhi <= 0
            ties = dlo == 0 == dhi
            if loses and not (ties and i < j):
                beaten = True
                break
        if not beaten:
            pick.append(a)
    if len(pick) == 1:
        return pick[0]
    pick.sort(key=str)
    return _atom((Min if smaller else Max)(tuple(pick)))
