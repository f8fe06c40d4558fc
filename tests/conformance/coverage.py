"""Which operators the node tests are of."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache

import onnx
from conformance.node_tests import cases

Operator = tuple[str, str]  # domain ("" is ai.onnx) and name


def operator_of(node: onnx.NodeProto) -> Operator:
    return ("" if node.domain == "ai.onnx" else node.domain, node.op_type)


@lru_cache(maxsize=1)
def own_tests() -> dict[Operator, tuple[str, ...]]:
    """Each operator's own tests, whose models are that one node, by name. An ``_expanded`` twin, the body of the same operator, belongs to it, too."""
    own: dict[Operator, list[str]] = defaultdict(list)
    expanded = {name for name in cases() if name.endswith("_expanded") or "_expanded_ver" in name}
    owner: dict[str, Operator] = {}
    for name in sorted(set(cases()) - expanded):
        (node,) = cases()[name].model.graph.node
        owner[name] = operator_of(node)
        own[owner[name]].append(name)
    for name in sorted(expanded):
        own[owner[name.partition("_expanded")[0]]].append(name)
    return {operator: tuple(sorted(names)) for operator, names in sorted(own.items())}


def selection(which: int) -> list[str]:
    """A test of each operator that has one with this number (0: the first, 1: the second, …), by name."""
    return sorted(names[which] for names in own_tests().values() if len(names) > which)
