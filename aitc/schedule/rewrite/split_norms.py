"""A norm of groups of channels of a large image is two launches: its statistics, made by many blocks, and what applies them.

One launch would have to keep the image in the blocks of a cluster; where that does not fit, its few blocks read it twice, a few channels of
every pixel at a time. What applies the statistics is a pointwise node: it goes with the pointwise nodes behind it into one launch, which reads
and writes whole rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from aitc.ir.builder import Builder
from aitc.ir.dim import hint, product
from aitc.ir.graph import Graph, Node, Value
from aitc.kernels.core.functor import StorageOf
from aitc.kernels.core.kernel import No
from aitc.kernels.rows.group_norm_sm90 import GroupForm, group_form
from aitc.schedule.choose.select import alone
from aitc.targets.target import Target


def split_norms(graph: Graph, storage: StorageOf, target: Target) -> int:
    """Splits such norms where that is faster on ``target``; returns how many."""
    if not target.gpu:
        return 0
    count, made = 0, []
    for node in list(graph.nodes):
        if node.op.name == "LayerNormalization" and _gain_us(graph, node, storage, target) > 0:
            made += _rewrite(graph, node, storage)
            count += 1
    if count:
        graph.reorder(made)
        graph.sweep()
    return count


@dataclass(frozen=True, slots=True)
class _Affine:
    """What follows a norm: the value that has it all, the Reshape before it, if any, and what each channel is multiplied by and gets added."""

    result: Value
    reshape: Node | None
    scale: np.ndarray
    bias: np.ndarray


def _gain_us(graph: Graph, node: Node, storage: StorageOf, target: Target) -> float:
    """Microseconds that two launches save."""
    x = node.input
    form = group_form(node, storage)
    if isinstance(form, No) or x.type.dtype.compute_c != "float":
        return 0.0
    builder = Builder(graph, node.locs, place=False)
    ones = np.ones(form.C, np.float32)
    _statistics(builder, node, form, ones, ones)
    whole, parts = alone(node, storage, target), alone(builder.made[-1], storage, target)
    graph.release(builder.made[-1])
    if whole is None or parts is None:
        return 0.0
    read, written = (hint(product(x.shape)) * v.type.dtype.bytes * 1e-3 / target.gbps for v in (x, node.output))
    kernel, us = whole
    if kernel.name != "group_norm_sm90":  # a block reads the pixels of a group three times
        busy = min(1.0, hint(form.images) * (form.C // form.width) / max(target.units, 1))
        us = max(us, target.launch_us + (3 * read + written) / busy)
    return us - parts[1] - target.launch_us - 1.0 - 1.2 * (read + written)


def _statistics(b: Builder, node: Node, form: GroupForm, scale: np.ndarray, bias: np.ndarray) -> Value:
    a, x = node.attrs, node.input
    shape = tuple(int(d) if at in (*form.groups, *form.inner) else 1 for at, d in enumerate(x.shape))  # type: ignore[arg-type]
    constants = [b.constant(v.reshape(shape), np.float32, name) for v, name in ((scale, "scale"), (bias, "bias"))]
    return b.op("Statistics", x, *constants, axes=a.axes, epsilon=a.epsilon, center=a.center)


def _affine(graph: Graph, node: Node, C: int) -> _Affine:
    """The Mul and the Add of constants of a channel each behind a norm, behind a Reshape that puts the groups together."""
    result, reshape = node.output, None
    scale, bias = np.ones(C, np.float32), np.zeros(C, np.float32)
    after = _only_reader(graph, result)
    if after is not None and after.op.name == "Reshape":
        reshape, result = after, after.output
        after = _only_reader(graph, result)
    found = {}
    for op in ("Mul", "Add"):
        values = _channels(after, result, C) if after is not None and after.op.name == op else None
        if values is not None and after is not None:
            found[op], result = values, after.output
            after = _only_reader(graph, result)
    if not found:
        return _Affine(node.output, None, scale, bias)
    return _Affine(result, reshape, found.get("Mul", scale), found.get("Add", bias))


def _only_reader(graph: Graph, v: Value) -> Node | None:
    return next(iter(v.users)) if len(v.users) == 1 and v not in graph.outputs else None


def _channels(node: Node, v: Value, C: int) -> np.ndarray | None:
    """The constant of a channel each that ``node`` combines ``v`` with; None if it is no such."""
    others = [u for u in node.inputs if u is not v]
    if len(others) != 1 or others[0] is None or others[0].const is None or node.output.type.dtype is not v.type.dtype:
        return None
    other, rank = others[0], v.type.rank
    behind = other.shape[-(rank - 1) :]
    if product(other.shape) != C or len(behind) != rank - 1 or behind[0] != C or v.shape[1] != C:
        return None
    values = other.const
    return None if values is None else values.reshape(-1).astype(np.float32)


def _rewrite(graph: Graph, node: Node, storage: StorageOf) -> list[Node]:
    form = group_form(node, storage)
    assert isinstance(form, GroupForm)
    affine = _affine(graph, node, form.C)
    x, y = node.input, affine.result
    b = Builder(graph, tuple(dict.fromkeys((*node.locs, *(y.producer.locs if y.producer is not None else ())))), place=False)
    found = _statistics(b, node, form, affine.scale, affine.bias)
    kept = found.shape[1:]
    rank = len(kept)
    factor, shift = (
        b.op("Reshape", b.op("Slice", found, starts=(at,) + (0,) * rank, sizes=(1, *kept), steps=(1,) * (rank + 1)), shape=kept) for at in (0, 1)
    )
    result = b.op("ScaleShift", x, factor, shift, names=(y.name,))
    result.type = replace(result.type, order=node.output.type.order)
    if affine.reshape is not None:
        result = b.op("Reshape", result, shape=affine.reshape.output.shape)
        result.type = replace(result.type, order=y.type.order)
    graph.replace_uses(y, result)
    return b.made
