"""What is true of every graph between two stages; checked after each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aitc.ir.dim import Dim
from aitc.ir.dtype import STRING
from aitc.ir.graph import Graph, Node, Value


class InvalidGraph(Exception):
    """A pass broke the graph: a defect of aitc. ``problems`` are sentences that name nodes and values."""

    def __init__(self, stage: str, problems: Sequence[str]):
        self.problems = tuple(problems)
        more = f" (and {len(problems) - 8} more)" if len(problems) > 8 else ""
        super().__init__(f"after {stage}: " + "; ".join(problems[:8]) + more)


def verify(graph: Graph, stage: str = "import") -> None:
    """Raises InvalidGraph unless the invariants hold. Linear in the size of the graph."""
    problems: list[str] = []
    counted: dict[Value, dict[Node, int]] = {}
    _graph(graph, set(), problems, counted)
    for v, users in counted.items():
        if v.users != users:
            problems.append(f"%{v.name} keeps users {_users(v.users)}, but is read by {_users(users)}")
    if problems:
        raise InvalidGraph(stage, problems)


def _users(users: dict[Node, int]) -> str:
    return "{" + ", ".join(f"{n!r}: {k}" for n, k in users.items()) + "}"


def _graph(graph: Graph, outer: set[Value], problems: list[str], counted: dict[Value, dict[Node, int]]) -> None:
    names: set[str] = set()
    seen: set[Value] = set(outer) | set(graph.inputs)
    captured = set(graph.captured)

    def name(v: Value) -> None:
        if v.name in names:
            problems.append(f"two values of graph {graph.name} are called %{v.name}")
        names.add(v.name)
        counted.setdefault(v, {})
        _typed(v, problems)

    def read(v: Value, reader: str) -> None:
        if v.const is not None:
            if v.producer is not None:
                problems.append(f"constant %{v.name} has a producer")
            if v not in counted:
                counted[v] = {}
                _typed(v, problems)
        elif v not in seen:
            problems.append(f"{reader} reads %{v.name}, which nothing before it defines")
        elif v in outer and v not in captured:
            problems.append(f"{reader} reads the outer %{v.name}, which graph {graph.name} does not list as captured")

    for v in graph.inputs:
        name(v)
        if v.producer is not None:
            problems.append(f"input %{v.name} has a producer")
    for v in graph.captured:
        if v not in outer:
            problems.append(f"graph {graph.name} captures %{v.name}, which nothing around it defines")
    for node in graph.nodes:
        where = repr(node)
        lo, hi = node.op.arity
        if not lo <= len(node.inputs) <= hi and not node.bodies:
            problems.append(f"{where} has {len(node.inputs)} inputs, {node.op.name} takes {lo} to {hi}")
        if type(node.attrs) is not node.op.attrs:
            problems.append(f"{where} has attributes of {type(node.attrs).__name__}, not of {node.op.attrs.__name__}")
        for x in node.inputs:
            if x is not None:
                read(x, where)
                users = counted.setdefault(x, {})
                users[node] = users.get(node, 0) + 1
        for body in node.bodies:
            for v in body.captured:
                read(v, f"a body of {where}")
            _graph(body, seen, problems, counted)
        for i, v in enumerate(node.outputs):
            if v.producer is not node or v.index != i:
                problems.append(f"%{v.name} is output {i} of {where}, but says otherwise")
            seen.add(v)
            name(v)
        _inferred(node, problems)
    for v in graph.outputs:
        read(v, f"the end of graph {graph.name}")
    if graph.output_names and len(graph.output_names) != len(graph.outputs):
        problems.append(
            f"graph {graph.name} has {len(graph.outputs)} outputs and {len(graph.output_names)} names for them"
        )


def _typed(v: Value, problems: list[str]) -> None:
    t = v.type
    if t.order is not None and tuple(sorted(t.order)) != tuple(range(t.rank)):
        problems.append(f"%{v.name} has order {t.order}, no permutation of {t.rank} axes")
    if v.const is not None:
        if tuple(v.const.shape) != t.shape:
            problems.append(f"constant %{v.name} has shape {v.const.shape} and type {t}")
        if v.const.dtype != t.dtype.numpy and t.dtype is not STRING:
            problems.append(f"constant %{v.name} holds {v.const.dtype} and has type {t}")


def _inferred(node: Node, problems: list[str]) -> None:
    if node.bodies:
        return
    try:
        types = node.op.infer([None if v is None else v.type for v in node.inputs], node.attrs)
    except ValueError as e:
        problems.append(f"{node!r}: {e}")
        return
    for v, t in zip(node.outputs, types):
        if v.type.dtype is not t.dtype or not compatible(v.shape, t.shape):
            problems.append(f"%{v.name} has type {v.type}, but {node.op.name} gives {t}")


def compatible(a: Iterable[Dim], b: Iterable[Dim]) -> bool:
    """Whether two shapes may be the same: equal ranks, and no axis with two different integers."""
    a, b = tuple(a), tuple(b)
    return len(a) == len(b) and not any(isinstance(x, int) and isinstance(y, int) and x != y for x, y in zip(a, b))
