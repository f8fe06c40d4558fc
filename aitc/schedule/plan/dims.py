"""Run-time dims: which input's axis each is read from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aitc.errors import AitcError, Diagnostic, Exit
from aitc.ir.dim import Symbol, as_symbol, evaluate, symbols
from aitc.ir.graph import Graph
from aitc.schedule.plan.plan import DimSource, Port, Require


def dim_sources(graph: Graph, spelled: Mapping[str, str]) -> tuple[DimSource, ...]:
    """A source for each symbol in the shapes of the inputs: the first axis that is this symbol alone. ``spelled`` gives the model's spelling.

    Raises AitcError (UNSUPPORTED) for symbols that no axis gives.
    """
    sources: dict[str, DimSource] = {}
    everything: set[Symbol] = set()
    for n, v in enumerate(graph.inputs):
        for axis, d in enumerate(v.shape):
            everything |= symbols(d)
            s = as_symbol(d)
            if s is not None and s.name not in sources:
                hi = s.hi if s.hi is not None else 2**31 - 1
                sources[s.name] = DimSource(
                    s.name, spelled.get(s.name, s.name), n, axis, s.lo, hi, s.multiple_of, s.hint
                )
    missing = sorted(s.name for s in everything if s.name not in sources)
    if missing:
        raise AitcError(
            Diagnostic(
                "S02",
                f"no input has an axis of size {', '.join(missing)} alone, so it cannot be read from the inputs",
                stage="plan",
                help=f"fix it with --dim {missing[0]}=SIZE",
            ),
            Exit.UNSUPPORTED,
        )
    return tuple(sources.values())


def fit(size: int, d: DimSource) -> int:
    """The size nearest to ``size`` that ``d``'s bounds and multiple allow; at least 1 where they allow it."""
    m = max(1, d.multiple_of)
    low = -(-max(d.lo, 1) // m) * m
    high = d.hi // m * m
    return max(min(-(-size // m) * m, high), min(low, high))


def is_side(d: DimSource, inputs: Sequence[Port]) -> bool:
    """Whether ``d`` is the height or width of an image."""
    return inputs[d.input].use == "image" and d.axis >= 1


def typical(d: DimSource, inputs: Sequence[Port]) -> int:
    """The size that a program which is told none makes up: the model's hint, images of 224 pixels a side, one of a batch, else 16."""
    if d.hint is not None:
        return d.hint
    return fit(224 if is_side(d, inputs) else 1 if d.axis == 0 else 16, d)


def typical_sizes(dims: Sequence[DimSource], inputs: Sequence[Port], requires: Sequence[Require]) -> dict[str, int]:
    """``typical`` of each dim by C name, changed where they would not meet what has to be true of them."""
    wanted = {d.name: typical(d, inputs) for d in dims}
    return consistent(wanted, dims, requires) or wanted


_OTHERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 0)  # sizes to try where those that are wanted do not meet
_TRIES = 3000


def consistent(
    wanted: Mapping[str, int], dims: Sequence[DimSource], requires: Sequence[Require], fixed: Mapping[str, int] | None = None
) -> dict[str, int] | None:
    """Sizes of all dims (by C name), within their bounds, that make all of ``requires`` true: near those ``wanted``, and just so where
    they are ``fixed``. None where none are found.

    A size that follows from others is computed from them (``total`` of ``total == past + seq``), the others are tried.
    """
    sources = {d.name: d for d in dims}
    rules = [(r, {s.name for side in (r.less, r.more) for s in symbols(side)}) for r in requires]
    rules = [(r, names) for r, names in rules if names <= sources.keys()]
    sides = [pair for r, _ in rules if r.equal for pair in ((r.less, r.more), (r.more, r.less))]
    alone = {s.name for one, other in sides if (s := as_symbol(one)) is not None and len(symbols(other)) > 1}
    order = sorted(sources, key=lambda n: (n in alone, list(sources).index(n)))
    tries = [_TRIES]

    def search(sizes: dict[str, int]) -> dict[str, int] | None:
        tries[0] -= 1
        if tries[0] < 0 or not _follow(sizes, rules, sources):
            return None
        name = next((n for n in order if n not in sizes), None)
        if name is None:
            return sizes
        d = sources[name]
        first = wanted[name] if _allowed(wanted[name], d) else fit(wanted[name], d)
        for size in dict.fromkeys([first, *(s for s in _OTHERS if _allowed(s, d)), d.lo]):
            found = search({**sizes, name: size})
            if found is not None:
                return found
        return None

    found = search(dict(fixed or {}))
    return None if found is None else {name: found[name] for name in sources}


def _follow(sizes: dict[str, int], rules: Sequence[tuple[Require, set[str]]], sources: Mapping[str, DimSource]) -> bool:
    """Adds what follows from ``sizes``; whether nothing contradicts."""
    again = True
    while again:
        again = False
        for rule, names in rules:
            open_ = names - sizes.keys()
            if not open_ and not _holds(rule, sizes):
                return False
            if len(open_) == 1 and rule.equal:
                name = next(iter(open_))
                size = _solve(rule, name, sizes, sources[name])
                if size is None:
                    return False
                sizes[name], again = size, True
    return True


def _holds(rule: Require, sizes: Mapping[str, int]) -> bool:
    less, more = evaluate(rule.less, sizes), evaluate(rule.more, sizes)
    return less == more if rule.equal else less <= more


def _solve(rule: Require, name: str, sizes: Mapping[str, int], d: DimSource) -> int | None:
    """The size of ``name`` that makes ``rule`` true: where it is linear, else a small one that is found by trying."""

    def off(size: int) -> int:
        both = {**sizes, name: size}
        return evaluate(rule.less, both) - evaluate(rule.more, both)

    at, slope = off(d.lo), off(d.lo + 1) - off(d.lo)
    guess = d.lo - at // slope if slope else d.lo
    return next((s for s in (guess, *range(d.lo, min(d.hi, d.lo + 512) + 1)) if _allowed(s, d) and off(s) == 0), None)


def _allowed(size: int, d: DimSource) -> bool:
    return d.lo <= size <= d.hi and size % max(1, d.multiple_of) == 0
