"""Passes: functions on a graph, in one registry, with the context they run in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from time import perf_counter

from aitc.ir.apart import Apart
from aitc.ir.graph import Graph
from aitc.ir.rewrite import MatchLog
from aitc.ir.text import walk
from aitc.ir.verify import verify
from aitc.registry import Registry
from aitc.targets.target import Target

PRECISIONS = ("model", "fp32", "tf32", "fp16", "bf16")


@dataclass(frozen=True, slots=True)
class Ran:
    """One application of a pass, for reports."""

    name: str
    changes: int
    nodes: int  # left afterwards
    seconds: float


@dataclass(frozen=True, slots=True)
class Decision:
    """What type a node runs in, and why if that is not what was asked for."""

    node: str
    op: str
    dtype: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Ranges:
    """How large the values of the model get: ``largest`` finite magnitudes by ONNX value, ``measured`` or estimated.

    ``how`` says in words what was measured, or why nothing was. Infinity: nothing is known of a residual stream.
    """

    largest: Mapping[str, float] = field(default_factory=dict)
    how: str = ""
    measured: bool = False


@dataclass(slots=True)
class Context:
    """What passes know besides the graph, and where they write down what they did.

    ``precision`` is one of PRECISIONS; ``keep_fp32`` holds names of ONNX nodes, op types, or regular expressions on either.
    """

    target: Target | None = None
    precision: str = "model"
    keep_fp32: tuple[str, ...] = ()
    ranges: Ranges = Ranges()
    log: MatchLog = field(default_factory=MatchLog)
    ran: list[Ran] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)  # written by choose_precision
    apart: list[Apart] = field(default_factory=list)  # written by merge_matmuls


@dataclass(frozen=True, slots=True)
class Pass:
    name: str
    doc: str
    run: Callable[[Graph, Context], int]  # the number of changes


PASSES: Registry[Pass] = Registry("pass")


def register(function: Callable[[Graph, Context], int]) -> Callable[[Graph, Context], int]:
    """Makes ``run`` of module ``aitc.passes.<verb>`` the pass ``<verb>``; the first line of its docstring describes it."""
    name = function.__module__.rpartition(".")[2]
    PASSES.add(name, Pass(name, (function.__doc__ or "").strip().splitlines()[0], function))
    return function


def run_passes(graph: Graph, context: Context, names: Iterable[str], check: bool = True) -> int:
    """Runs passes by name, in order, and verifies the graph after each; returns the number of changes."""
    total = 0
    for name in names:
        start = perf_counter()
        changes = PASSES[name].run(graph, context)
        context.ran.append(Ran(name, changes, sum(len(g) for g in walk(graph)), perf_counter() - start))
        if check and changes:
            verify(graph, name)
        total += changes
    return total


def graphs(graph: Graph) -> list[Graph]:
    """``graph`` and all bodies in it, inner ones first, so that what dies inside dies outside too."""
    return list(walk(graph))[::-1]
