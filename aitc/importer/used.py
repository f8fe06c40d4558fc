"""Which operators a model uses, without importing it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Union

import onnx

from aitc.importer.check import normalized, read
from aitc.importer.functions import built_in
from aitc.importer.order import subgraphs


@dataclass(frozen=True, slots=True)
class Used:
    """An operator of a domain ("" is ai.onnx) at an opset, and the names (or output names) of the nodes, in graphs and functions, that are of it."""

    domain: str
    name: str
    opset: int
    nodes: tuple[str, ...]


def used_operators(source: Union[str, Path, bytes, onnx.ModelProto]) -> list[Used]:
    """The operators of a model by domain and name; calls of its own functions are left out. Raises AitcError for a file that is no model."""
    model, _, _ = read(source)
    own = {(f.domain, f.name) for f in model.functions}
    found: dict[tuple[str, str, int], list[str]] = {}
    places: list[tuple[Iterable[onnx.NodeProto], Mapping[str, int]]] = [(model.graph.node, normalized(model.opset_import))]
    places += [(f.node, normalized(f.opset_import)) for f in model.functions]
    for nodes, opsets in places:
        for node in _all(nodes):
            domain = "" if node.domain == "ai.onnx" else node.domain
            if (node.domain, node.op_type) not in own or built_in(node):
                label = node.name or next((o for o in node.output if o), "")
                found.setdefault((domain, node.op_type, opsets.get(domain, 1)), []).append(label)
    return [Used(*key, nodes=tuple(names)) for key, names in sorted(found.items())]


def _all(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for _, body in subgraphs(node):
            yield from _all(body.node)
