"""A norm of groups of channels of a large image is two launches: its statistics, made by many blocks, and what applies them.

One launch would have to keep the image in the blocks of a cluster; where that does not fit, its few blocks read it twice, a few channels of
every pixel at a time. What applies the statistics is a pointwise node: it goes with the pointwise nodes behind it into one launch, which reads
and writes whole rows.
"""

from __future__ import annotations

from dataclasses import replace

from aitc.ir.builder import Builder
from aitc.ir.dim import hint, product
from aitc.ir.graph import Graph, Node
from aitc.kernels.functor import StorageOf
from aitc.kernels.group_norm_sm90 import group_form
from aitc.kernels.kernel import No
from aitc.schedule.select import alone
from aitc.targets.target import Target


def split_norms(graph: Graph, storage: StorageOf, target: Target) -> int:
    """Splits such norms where that is faster on ``target``; returns how many."""
    if not target.gpu:
        return 0
    count, made = 0, []
    for node in list(graph.nodes):
        if node.op.name == "LayerNormalization" and _gain_us(graph, node, storage, target) > 0:
            made += _rewrite(graph, node)
            count += 1
    if count:
        graph.reorder(made)
        graph.sweep()
    return count


def _gain_us(graph: Graph, node: Node, storage: StorageOf, target: Target) -> float:
    """Microseconds that two launches save."""
    x, a = node.input, node.attrs
    form = group_form(node, storage)
    if isinstance(form, No) or x.type.dtype.compute_c != "float":
        return 0.0
    builder = Builder(graph, node.locs, place=False)
    apart = builder.node("Statistics", x, axes=a.axes, epsilon=a.epsilon, center=a.center)
    whole, parts = alone(node, storage, target), alone(apart, storage, target)
    graph.release(apart)
    if whole is None or parts is None:
        return 0.0
    read, written = (hint(product(x.shape)) * v.type.dtype.bytes * 1e-3 / target.gbps for v in (x, node.output))
    kernel, us = whole
    if kernel.name != "group_norm_sm90":  # a block reads the pixels of a group three times
        busy = min(1.0, hint(form.images) * (form.C // form.width) / max(target.units, 1))
        us = max(us, target.launch_us + (3 * read + written) / busy)
    return us - parts[1] - target.launch_us - read - written


def _rewrite(graph: Graph, node: Node) -> list[Node]:
    a, x, y = node.attrs, node.input, node.output
    b = Builder(graph, node.locs, place=False)
    found = b.op("Statistics", x, axes=a.axes, epsilon=a.epsilon, center=a.center)
    kept = found.shape[:-1]
    rank = len(kept)
    mean, inverse = (
        b.op("Reshape", b.op("Slice", found, starts=(0,) * rank + (at,), sizes=(*kept, 1), steps=(1,) * (rank + 1)), shape=kept) for at in (0, 1)
    )
    result = b.op("Standardize", x, mean, inverse, names=(y.name,))
    result.type = replace(result.type, order=y.type.order)
    graph.replace_uses(y, result)
    return b.made
