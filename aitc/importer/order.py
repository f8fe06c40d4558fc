"""The order in which nodes are computed: the file's, or a topological one where the file's is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import onnx

Outside = Callable[[str], bool]


class Cycle(Exception):
    """Nodes that need each other's results; ``nodes`` are their places in the file, each before one that reads it."""

    def __init__(self, nodes: Sequence[int]):
        super().__init__(f"nodes {', '.join(map(str, nodes))} need each other's results")
        self.nodes = tuple(nodes)


def ordered(nodes: Sequence[onnx.NodeProto], outside: Outside) -> list[tuple[int, onnx.NodeProto]]:
    """The nodes with their places in the file, each behind those whose results it or a body of it reads. The file's order stays
    where it can. ``outside``: whether a name is defined before any of the nodes. Raises Cycle."""
    makers: dict[str, int] = {}
    for i, node in enumerate(nodes):
        for name in node.output:
            if name:
                makers.setdefault(name, i)
    needs = []
    sorted_already = True
    for i, node in enumerate(nodes):
        makes = [makers[name] for name in read_names(node) if name in makers and not outside(name)]
        sorted_already = sorted_already and all(m < i for m in makes)
        needs.append(makes)
    return [(i, nodes[i]) for i in (range(len(nodes)) if sorted_already else _topological(needs))]


def sort(model: onnx.ModelProto) -> bool:
    """Puts the nodes of all graphs and functions of ``model`` in order, in place; whether any had to move. Raises Cycle."""
    moved = _sort(model.graph, frozenset())
    for function in model.functions:
        moved = _sort_nodes(function, frozenset(function.input)) or moved
    return moved


def _sort(graph: onnx.GraphProto, outer: frozenset[str]) -> bool:
    own = [i.name for i in graph.input] + [t.name for t in graph.initializer] + [s.values.name for s in graph.sparse_initializer]
    return _sort_nodes(graph, outer.union(own))


def _sort_nodes(graph: Any, given: frozenset[str]) -> bool:
    order = ordered(graph.node, given.__contains__)
    moved = any(place != i for i, (place, _) in enumerate(order))
    if moved:
        nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for _, node in order]
        del graph.node[:]
        graph.node.extend(nodes)
    bodies = [body for node in graph.node for _, body in subgraphs(node)]
    inside = given.union(o for node in graph.node for o in node.output) if bodies else given
    inner = sum(_sort(body, inside) for body in bodies)  # all of them
    return moved or inner > 0


def subgraphs(node: onnx.NodeProto) -> Iterator[tuple[str, onnx.GraphProto]]:
    """The bodies of a node, with the names of their attributes."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.name, attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from ((f"{attribute.name}[{i}]", g) for i, g in enumerate(attribute.graphs))


def read_names(node: onnx.NodeProto) -> Iterator[str]:
    """Names that a node reads, those that its bodies take from around them among them."""
    yield from (name for name in node.input if name)
    for _, body in subgraphs(node):
        yield from _free(body)


def _free(graph: onnx.GraphProto) -> Iterator[str]:
    own = {i.name for i in graph.input} | {t.name for t in graph.initializer} | {s.values.name for s in graph.sparse_initializer}
    own |= {name for node in graph.node for name in node.output}
    for node in graph.node:
        yield from (name for name in read_names(node) if name not in own)
    yield from (o.name for o in graph.output if o.name and o.name not in own)


def _topological(needs: Sequence[Sequence[int]]) -> list[int]:
    done: dict[int, None] = {}
    for root in range(len(needs)):
        if root in done:
            continue
        stack = [(root, iter(needs[root]))]
        under_way = {root: None}
        while stack:
            i, rest = stack[-1]
            for need in rest:
                if need in under_way:
                    way = list(under_way)
                    raise Cycle(way[way.index(need) :][::-1])
                if need not in done:
                    under_way[need] = None
                    stack.append((need, iter(needs[need])))
                    break
            else:
                stack.pop()
                del under_way[i]
                done[i] = None
    return list(done)
