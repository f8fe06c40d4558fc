"""Run-time dims: which input's axis each is read from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aitc.errors import AitcError, Diagnostic, Exit
from aitc.ir.dim import Symbol, as_symbol, symbols
from aitc.ir.graph import Graph
from aitc.schedule.plan import DimSource, Port


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
