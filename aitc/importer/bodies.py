"""Subgraphs of If, Loop and Scan: imported in place where it is known which one runs, else as bodies of a control
node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import onnx

from aitc.errors import Diagnostic, Loc
from aitc.importer.joining import Tail
from aitc.ir.graph import Graph, Value
from aitc.ir.types import TensorType
from aitc.ops.declare import Unsupported

if TYPE_CHECKING:
    from aitc.importer.walk import Environment, Walker


class BodyFailed(Exception):
    """A node of a body could not be imported; its own diagnostic says why."""


def open_bodies(walker: "Walker", environment: "Environment", loc: Loc, tail: Tail | None = None) -> None:
    """Gives the scope its functions for the subgraphs of the node at ``loc``. ``tail``: what follows in each branch of an If."""
    place = f"{loc.path}/{loc.name or f'{loc.op_type}_{loc.index}'}"

    def inner(graph: onnx.GraphProto, label: str) -> "Environment":
        from aitc.importer.walk import Environment

        new = Environment(
            opsets=environment.opsets,
            path=f"{place}.{label}",
            outer=environment,
            attributes=environment.attributes,
            calls=environment.calls,
            results=frozenset(o.name for o in graph.output),
        )
        for tensor in graph.initializer:
            new.lazy[tensor.name] = tensor
        for sparse in graph.sparse_initializer:
            new.lazy[sparse.values.name] = sparse
        return new

    def results(names: Sequence[str], new: "Environment") -> list[Any]:
        from aitc.importer.walk import FAILED

        found = [walker.lookup(name, new) for name in names]
        if any(f is FAILED for f in found):
            raise BodyFailed
        return found

    def inline(graph: onnx.GraphProto, inputs: Sequence[Any] = (), label: str = "body") -> list[Any]:
        """Imports a subgraph into the present graph with its inputs bound to ``inputs``; returns its outputs."""
        new = inner(graph, label)
        new.values.update(zip((i.name for i in graph.input), inputs))
        walker.nodes(graph.node, new, walker.scope.graph)
        return results([o.name for o in graph.output], new)

    def body(graph: onnx.GraphProto, types: Sequence[TensorType] = (), label: str = "body") -> Graph:
        """Imports a subgraph as a graph of its own with inputs of ``types``; what it reads from outside is
        in ``captured``."""
        if len(types) != len(graph.input):
            raise ValueError(f"the body has {len(graph.input)} inputs, {len(types)} are given")
        new = inner(graph, label)
        result = Graph(f"{walker.scope.graph.name}.{label}")
        result._names = walker.scope.graph._names  # names stay unique over all bodies
        for i, type in zip(graph.input, types):
            new.values[i.name] = result.add_input(i.name, type)
        try:
            walker.nodes(graph.node, new, result)
            names = [o.name for o in graph.output]
            found = results(names, new)
            if tail is not None:
                names, found = follow(tail, found, result, label)
        except (BodyFailed, Unsupported):
            result.discard()
            raise
        for name, value in zip(names, found):
            if not isinstance(value, Value):
                raise Unsupported(
                    f"{name} of a body is a sequence or an optional, where its length is not known", "make the trip count a constant"
                )
            result.outputs.append(value)
            result.output_names.append(name)
        result.captured = captured(result)
        return result

    def follow(tail: Tail, found: Sequence[Any], result: Graph, label: str) -> tuple[list[str], list[Any]]:
        """The nodes behind the If, as they are in a branch that gives ``found``."""
        from aitc.importer.walk import Environment

        new = Environment(environment.opsets, environment.path, environment, attributes=environment.attributes, calls=environment.calls)
        new.values.update(zip(tail.binds, found))
        new.results, new.gives = frozenset(tail.outputs), tail.outputs
        walker.placed(tail.nodes, new, result)
        return list(tail.outputs), results(tail.outputs, new)

    def branches(*graphs: onnx.GraphProto, labels: Sequence[str]) -> list[Graph | str]:
        """The branches of an If as bodies; instead of one whose nodes are wrong for what they get, why it cannot run. Raises
        BodyFailed where that is so of all."""
        made: list[Graph | str] = []
        problems: list[Diagnostic] = []
        for graph, label in zip(graphs, labels):
            before = len(walker.problems)
            try:
                made.append(body(graph, (), label))
                continue
            except Unsupported:
                _discard(made)
                raise
            except BodyFailed:
                said = walker.problems[before:]
            if not said or any(p.code != "I04" for p in said):
                _discard(made)
                raise BodyFailed
            del walker.problems[before:]
            problems += said
            made.append(said[0].message + (f" ({said[0].locs[0]})" if said[0].locs else ""))
        if not any(isinstance(m, Graph) for m in made):
            walker.problems += problems
            raise BodyFailed
        return made

    walker.scope.inline = inline
    walker.scope.body = body
    walker.scope.branches = branches


def _discard(made: Sequence[Graph | str]) -> None:
    for body in made:
        if isinstance(body, Graph):
            body.discard()


def captured(graph: Graph) -> list[Value]:
    """Values from outside that the graph, or a body in it, reads or returns."""
    own = {id(v) for v in graph.inputs} | {id(o) for node in graph.nodes for o in node.outputs}
    found: dict[int, Value] = {}
    for node in graph.nodes:
        for v in (*node.inputs, *(v for body in node.bodies for v in body.captured)):
            if v is not None and v.const is None and id(v) not in own:
                found[id(v)] = v
    for v in graph.outputs:
        if v.const is None and id(v) not in own:
            found[id(v)] = v
    return list(found.values())
