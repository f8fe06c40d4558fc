"""Which dims of the inputs may be 0, where nobody says so: a cache that is empty at the first step.

A dim is at least 1 unless the graph bears 0: what has it is joined with something along that axis (the past of a cached
decoder), and whatever else sees it has a meaning for no elements. A convolution, a norm or a mean of nothing has none.
"""

from __future__ import annotations

from collections.abc import Iterator

from aitc.ir import dim as d
from aitc.ir.dim import Dim, FloorDiv, Mod, Symbol
from aitc.ir.graph import Graph, Node
from aitc.ir.op import Kind

_BEARING = frozenset({Kind.POINTWISE, Kind.VIEW, Kind.SOURCE})


def bearable(graph: Graph, unbound: set[str]) -> set[str]:
    """Names of those symbols among ``unbound``, at least 1 in ``graph``, that may be 0."""
    names = _joined(graph) & unbound
    while names and (wrong := unbearable(graph, names)):
        names -= wrong
    return names


def unbearable(graph: Graph, names: set[str]) -> set[str]:
    """Those of ``names``, if all of them may be 0, that must not: an op has no meaning for no elements, or a size is divided by
    them. Where a sum of several is at fault and any of them alone is, too, those alone are named: the others may be right without."""
    alone: set[str] = set()
    together: set[str] = set()
    for node in _nodes(graph):
        bears = _bears(node, names)
        for v in (*node.inputs, *node.outputs):
            for x in v.shape if v is not None else ():
                if not _names(x) & names:
                    continue
                alone |= _divisors(x, names)
                if not bears and _low(x, names) < 1:
                    if d.as_symbol(x) is not None:
                        alone |= _names(x) & names
                    else:
                        together |= _names(x) & names
    return alone or together


def _joined(graph: Graph) -> set[str]:
    """Names of dims along which a Concat joins what has them with something else."""
    found = set()
    for node in _nodes(graph):
        if node.op.name == "Concat":
            sizes = {v.shape[node.attrs.axis] for v in node.inputs if v is not None}
            found |= {s.name for x in sizes if len(sizes) > 1 and (s := d.as_symbol(x)) is not None}
    return found


def _bears(node: Node, names: set[str]) -> bool:
    """Whether a node has a meaning where an operand has no elements."""
    if node.op.name == "Slice":  # of what may be empty, nothing or all that there is
        return not any(_low(x, names) < 1 <= _low(y, names) for x, y in zip(node.input.shape, node.output.shape))
    if node.op.kind in _BEARING or node.op.name in ("Concat", "If", "ReadDims"):
        return True
    table = node.inputs[0] if node.op.name == "Gather" else None
    return table is not None and _low(table.shape[node.attrs.axis], names) >= 1


def _nodes(graph: Graph) -> Iterator[Node]:
    """The nodes of a graph and of all bodies in it."""
    for node in graph.nodes:
        yield node
        for body in node.bodies:
            yield from _nodes(body)


def _names(x: Dim) -> set[str]:
    return set() if isinstance(x, int) else {s.name for s in d.symbols(x)}


def _low(x: Dim, names: set[str]) -> d.Bound:
    """The lower bound of a Dim where ``names`` may be 0."""
    zeros: dict[str, Dim] = {s.name: d.symbol(s.name, 0, s.hi, s.multiple_of) for s in d.symbols(x) if s.name in names}
    return d.bounds(d.substitute(x, zeros) if zeros else x)[0]


def _divisors(x: Dim, names: set[str]) -> set[str]:
    """Names of symbols in what a Dim divides by, where that may be 0."""
    if isinstance(x, int):
        return set()
    found: set[str] = set()
    for atom in (a for product, _ in x.terms for a in product):
        if isinstance(atom, (FloorDiv, Mod)):
            found |= _divisors(atom.a, names) | _divisors(atom.b, names)
            found |= _names(atom.b) & names if _low(atom.b, names) < 1 else set()
        elif not isinstance(atom, Symbol):
            found |= {n for a in atom.args for n in _divisors(a, names)}
    return found
