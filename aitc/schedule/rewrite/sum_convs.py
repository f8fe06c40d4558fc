"""Two convolutions whose results are added, as a residual network's shortcut and the last of its block are, become one product.

Its K-blocks are those of the first, then those of the second: what one of them found is neither stored nor read again, and it is not rounded
before it is added.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from aitc.ir.builder import Builder
from aitc.ir.dim import hint, product
from aitc.ir.graph import Graph, Node, Value
from aitc.kernels.core.functor import StorageOf
from aitc.schedule.choose.select import alone
from aitc.targets.target import Target


@dataclass(frozen=True, slots=True)
class _Term:
    """A convolution, and the constant of a channel each that is added to its results, if any."""

    conv: Node
    bias: np.ndarray | None


def sum_convs(graph: Graph, storage: StorageOf, target: Target) -> int:
    """Rewrites such sums where that is faster on ``target``; returns how many."""
    if "wgmma" not in target.features:
        return 0
    count, made = 0, []
    for node in list(graph.nodes):
        if node.op.name != "Add" or node not in graph:
            continue
        terms = [_term(graph, v, node) for v in node.inputs]
        if len(terms) == 2 and terms[0] is not None and terms[1] is not None and terms[0].conv is not terms[1].conv:
            found = _rewrite(graph, node, terms[0], terms[1], storage, target)
            made += found
            count += bool(found)
    if count:
        graph.reorder(made)
        graph.sweep()
    return count


def _term(graph: Graph, v: Value | None, reader: Node) -> _Term | None:
    """What ``v`` is the result of, where ``reader`` alone reads it."""
    if v is None or v.shape != reader.output.shape or len(v.users) != 1 or v.users[reader] != 1 or v in graph.outputs or v.producer is None:
        return None
    node, bias = v.producer, None
    if node.op.name == "Add":
        inner, other = _first(node, "Conv")
        if inner is None or other is None or other.const is None or product(other.shape) != v.shape[1] or other.shape[-v.type.rank + 1 :][:1] != v.shape[1:2]:
            return None
        if len(inner.output.users) != 1 or inner.output in graph.outputs:
            return None
        node, bias = inner, other.const.reshape(-1)
    a = node.attrs
    if node.op.name != "Conv" or a.group != 1 or a.out is not None or a.also or node.output.type.dtype.name not in ("f16", "bf16"):
        return None
    return _Term(node, bias)


def _first(node: Node, op: str) -> tuple[Node | None, Value | None]:
    """The operand of ``node`` that an ``op`` computes, and the other one."""
    for i, v in enumerate(node.inputs):
        if v is not None and v.producer is not None and v.producer.op.name == op:
            return v.producer, node.inputs[1 - i]
    return None, None


def _rewrite(graph: Graph, node: Node, first: _Term, second: _Term, storage: StorageOf, target: Target) -> list[Node]:
    """What computes the sum instead of ``node``; nothing where it is not faster or no kernel does it."""
    one, two = (t.conv for t in (first, second))
    order = node.output.type.order
    b = Builder(graph, tuple(dict.fromkeys(loc for n in (one, two, node) for loc in n.locs)), place=False)
    a = two.attrs
    values = {f: getattr(one.attrs, f) for f in one.attrs.__dataclass_fields__}
    y = b.op("Conv", *one.inputs, *two.inputs, **{**values, "also": (a.strides, a.pads, a.dilations)})
    y.type = replace(y.type, order=order)
    if _gain_us(one, two, b.made[0], storage, target) <= 0:
        graph.release(b.made[0])
        return []
    biases = [t.bias for t in (first, second) if t.bias is not None]
    if biases:
        bias = sum(x.astype(np.float32) for x in biases).astype(biases[0].dtype)  # type: ignore[union-attr]
        y = b.op("Add", y, b.constant(bias.reshape(1, -1, *(1,) * (y.type.rank - 2)), name="bias"))
        y.type = replace(y.type, order=order)
    graph.replace_uses(node.output, y)
    return b.made


def _gain_us(one: Node, two: Node, both: Node, storage: StorageOf, target: Target) -> float:
    """Microseconds saved. A convolution that leaves the device partly idle shares a launch with others: it counts as the part that it fills."""
    found = [alone(n, storage, target) for n in (one, two, both)]
    times = [f[1] for f in found if f is not None]
    if len(times) < 3:
        return 0.0
    out = one.output
    pixels, filters = hint(product(out.shape)) // hint(out.shape[1]), hint(out.shape[1])
    filled = min(1.0, ceil(pixels / 128) * ceil(filters / 128) / max(target.units, 1))
    kept = pixels * filters * out.type.dtype.bytes * 1e-3 / target.gbps
    return times[0] + kept + filled * times[1] - times[2]
