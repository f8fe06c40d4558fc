"""A Dim with other things in the place of its symbols: Dims, values, typical sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aitc.ir.dim.algebra import Dim, Sum, add, floordiv, max_, min_, mod, mul
from aitc.ir.dim.atom import FloorDiv, Min, Mod, Symbol


def symbols(d: Dim) -> frozenset[Symbol]:
    """All symbols in ``d``."""
    if isinstance(d, int):
        return frozenset()
    found: set[Symbol] = set()
    for p, _ in d.terms:
        for a in p:
            if isinstance(a, Symbol):
                found.add(a)
            elif isinstance(a, (FloorDiv, Mod)):
                found |= symbols(a.a) | symbols(a.b)
            else:
                for x in a.args:
                    found |= symbols(x)
    return frozenset(found)


def transform(d: Dim, leaf: Callable[[Symbol], Dim]) -> Dim:
    """``d`` with each symbol replaced by ``leaf(symbol)``, in normal form again."""
    if isinstance(d, int):
        return d
    result: Dim = d.const
    for p, c in d.terms:
        term: Dim = c
        for a in p:
            if isinstance(a, Symbol):
                term = mul(term, leaf(a))
            elif isinstance(a, FloorDiv):
                term = mul(term, floordiv(transform(a.a, leaf), transform(a.b, leaf)))
            elif isinstance(a, Mod):
                term = mul(term, mod(transform(a.a, leaf), transform(a.b, leaf)))
            elif isinstance(a, Min):
                term = mul(term, min_(*(transform(x, leaf) for x in a.args)))
            else:
                term = mul(term, max_(*(transform(x, leaf) for x in a.args)))
        result = add(result, term)
    return result


def substitute(d: Dim, values: Mapping[str, Dim]) -> Dim:
    """``d`` with symbols replaced by name; names that are missing stay."""
    return transform(d, lambda s: values[s.name] if s.name in values else Sum((((s,), 1),)))


def evaluate(d: Dim, values: Mapping[str, int]) -> int:
    """The value of ``d``. Raises KeyError if a symbol has none."""
    result = transform(d, lambda s: values[s.name])
    assert isinstance(result, int)
    return result


def hint(d: Dim) -> int:
    """A typical size: hints of the symbols, else their lower bounds (at least 1), substituted."""
    result = transform(d, lambda s: s.hint if s.hint is not None else max(s.lo, 1))
    assert isinstance(result, int)
    return result
