"""Copies that need not be made: zeros padded before a convolution, parts taken out of what was just put together."""

from __future__ import annotations

from aitc.ir import dim as dm
from aitc.ir.builder import Builder
from aitc.ir.dim import Dim
from aitc.ir.graph import Node, Value
from aitc.ir.match import made_by, number, same_shape
from aitc.ir.rewrite import SIMPLIFY, Match, Outcome, Rule


def _match_pad(node: Node) -> Outcome:
    pad = made_by(node.input, "Pad")
    if pad is None or pad.attrs.mode != "constant" or number(pad.inputs[1]) != 0:
        return None
    rank = node.input.type.rank
    if any(p != 0 for axis in (0, 1) for p in (pad.attrs.pads[axis], pad.attrs.pads[rank + axis])):
        return None
    if any(dm.bounds(p)[0] < 0 for p in pad.attrs.pads):
        return None
    return Match((pad,), pad)


def _padded_conv(b: Builder, node: Node, pad: Node) -> Value:
    a, rank = node.attrs, node.input.type.rank
    space = rank - 2
    more = (*pad.attrs.pads[2:rank], *pad.attrs.pads[rank + 2 :])
    assert len(more) == 2 * space
    pads = tuple(dm.add(p, q) for p, q in zip(a.pads, more, strict=True))
    return b.op(
        "Conv",
        pad.input,
        node.inputs[1],
        strides=a.strides,
        pads=pads,
        dilations=a.dilations,
        group=a.group,
        out=a.out,
    )


SIMPLIFY.add(
    "pad-into-conv",
    Rule(
        "pad-into-conv",
        "zeros padded around the input of a Conv become its padding",
        ("Conv",),
        _match_pad,
        _padded_conv,
    ),
)


def _match_part(node: Node) -> Outcome:
    """A Slice that takes of a Concat elements of one part only."""
    concat = made_by(node.input, "Concat")
    if concat is None:
        return None
    axis, a = concat.attrs.axis, node.attrs
    if a.sizes[axis] == 0:
        return None
    first = a.starts[axis]
    last = dm.add(first, dm.mul(dm.add(a.sizes[axis], -1), a.steps[axis]))
    low, high = (first, last) if a.steps[axis] > 0 else (last, first)
    start: Dim = 0
    for part in concat.inputs:
        assert part is not None
        end = dm.add(start, part.shape[axis])
        if _at_most(start, low) and _at_most(dm.add(high, 1), end):
            return Match((concat,), (part, dm.add(first, dm.mul(start, -1)), axis))
        start = end
    return None


def _at_most(a: Dim, b: Dim) -> bool:
    return dm.bounds(dm.add(b, dm.mul(a, -1)))[0] >= 0


def _part(b: Builder, node: Node, found: tuple[Value, Dim, int]) -> Value:
    part, start, axis = found
    starts = list(node.attrs.starts)
    starts[axis] = start
    return b.op("Slice", part, starts=tuple(starts), sizes=node.attrs.sizes, steps=node.attrs.steps)


SIMPLIFY.add(
    "slice-of-concat",
    Rule(
        "slice-of-concat",
        "a Slice of a Concat that lies within one part is a Slice of that part",
        ("Slice",),
        _match_part,
        _part,
    ),
)


def _match_rejoined(node: Node) -> Outcome:
    """A Concat of Slices that follow each other in one tensor."""
    axis = node.attrs.axis
    slices = [made_by(v, "Slice") for v in node.inputs]
    first = slices[0]
    if first is None or len(slices) < 2:
        return None
    x, at = first.input, first.attrs.starts[axis]
    for s in slices:
        if s is None or s.input is not x or s.attrs.starts[axis] != at or s.attrs.steps[axis] != 1:
            return None
        if not _alike(s, first, axis):
            return None
        at = dm.add(at, s.attrs.sizes[axis])
    return Match(tuple(s for s in slices if s is not None), first)


def _alike(s: Node, t: Node, axis: int) -> bool:
    a, b = s.attrs, t.attrs
    others = [i for i in range(len(a.starts)) if i != axis]
    return all((a.starts[i], a.sizes[i], a.steps[i]) == (b.starts[i], b.sizes[i], b.steps[i]) for i in others)


def _rejoined(b: Builder, node: Node, first: Node) -> Value:
    a = first.attrs
    y = b.op("Slice", first.input, starts=a.starts, sizes=node.output.shape, steps=a.steps)
    assert same_shape(y.shape, node.output.shape)
    return y


SIMPLIFY.add(
    "concat-of-slices",
    Rule(
        "concat-of-slices",
        "a Concat of Slices that follow each other becomes one Slice",
        ("Concat",),
        _match_rejoined,
        _rejoined,
    ),
)
