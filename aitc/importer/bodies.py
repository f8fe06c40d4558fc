"""Subgraphs of If, Loop and Scan: imported in place where it is known which one runs, else as bodies of a control node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import onnx

from aitc.errors import Loc

if TYPE_CHECKING:
    from aitc.importer.walk import Environment, Walker


def opener(walker: "Walker", environment: "Environment", loc: Loc) -> Callable[..., list[Any]]:
    """A function that imports a subgraph into the present graph, its inputs bound to given values, and returns its outputs."""

    def inline(graph: onnx.GraphProto, inputs: Sequence[Any] = (), label: str = "body") -> list[Any]:
        from aitc.importer.walk import Environment

        inner = Environment(opsets=environment.opsets, path=f"{loc.path}/{loc.name or f'{loc.op_type}_{loc.index}'}.{label}", outer=environment,
                            attributes=environment.attributes, calls=environment.calls)  # fmt: skip
        for tensor in graph.initializer:
            inner.lazy[tensor.name] = tensor
        for sparse in graph.sparse_initializer:
            inner.lazy[sparse.values.name] = sparse
        inner.values.update(zip((i.name for i in graph.input), inputs))
        walker.nodes(graph.node, inner, walker.scope.graph)
        return [walker.lookup(o.name, inner) for o in graph.output]

    return inline
