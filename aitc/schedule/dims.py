"""Run-time dims: which input's axis each is read from."""

from __future__ import annotations

from collections.abc import Mapping

from aitc.errors import AitcError, Diagnostic, Exit
from aitc.ir.dim import Symbol, as_symbol, symbols
from aitc.ir.graph import Graph
from aitc.schedule.plan import DimSource


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
