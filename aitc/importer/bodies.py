"""Subgraphs of If, Loop and Scan: imported in place where it is known which one runs, else as bodies of a control
node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import onnx

from aitc.errors import Loc
from aitc.ir.graph import Graph, Value
from aitc.ir.types import TensorType
from aitc.ops.declare import Unsupported

if TYPE_CHECKING:
    from aitc.importer.walk import Environment, Walker


class BodyFailed(Exception):
    """A node of a body could not be imported; its own diagnostic says why."""


def open_bodies(walker: "Walker", environment: "Environment", loc: Loc) -> None:
    """Gives the scope its two functions for the subgraphs of the node at ``loc``."""
    place = f"{loc.path}/{loc.name or f'{loc.op_type}_{loc.index}'}"

    def inner(graph: onnx.GraphProto, label: str) -> "Environment":
        from aitc.importer.walk import Environment

        new = Environment(
            opsets=environment.opsets,
            path=f"{place}.{label}",
            outer=environment,
            attributes=environment.attributes,
            calls=environment.calls,
        )
        for tensor in graph.initializer:
            new.lazy[tensor.name] = tensor
        for sparse in graph.sparse_initializer:
            new.lazy[sparse.values.name] = sparse
        return new

    def results(graph: onnx.GraphProto, new: "Environment") -> list[Any]:
        from aitc.importer.walk import FAILED

        found = [walker.lookup(o.name, new) for o in graph.output]
        if any(f is FAILED for f in found):
            raise BodyFailed
        return found

    def inline(graph: onnx.GraphProto, inputs: Sequence[Any] = (), label: str = "body") -> list[Any]:
        """Imports a subgraph into the present graph with its inputs bound to ``inputs``; returns its outputs."""
        new = inner(graph, label)
        new.values.update(zip((i.name for i in graph.input), inputs))
        walker.nodes(graph.node, new, walker.scope.graph)
        return results(graph, new)

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
        walker.nodes(graph.node, new, result)
        for o, value in zip(graph.output, results(graph, new)):
            if not isinstance(value, Value):
                raise Unsupported(
                    "a body of a control operator that gives a sequence or an optional, where its length is not known"
                )
            result.outputs.append(value)
            result.output_names.append(o.name)
        result.captured = captured(result)
        return result

    walker.scope.inline = inline
    walker.scope.body = body


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
