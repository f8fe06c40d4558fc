"""Convolutions as the matrix units take them best: patches become rows of a matrix, images of three channels get a fourth."""

from __future__ import annotations

import math

import numpy as np

from aitc.ir.builder import Builder
from aitc.ir.dim import product
from aitc.ir.graph import Graph, Node, Value
from aitc.ir.rewrite import Match, Outcome, Rule, apply_rules
from aitc.passes.base import Context, register

HALF = ("f16", "bf16")


def _plain(node: Node) -> np.ndarray | None:
    """The constant filter of an ungrouped 16-bit Conv."""
    w = node.inputs[1]
    if w is None or node.input.type.dtype.name not in HALF or node.attrs.group != 1 or node.attrs.out is not None:
        return None
    return w.const


def _match_patches(node: Node) -> Outcome:
    w, a = _plain(node), node.attrs
    if w is None or a.strides != w.shape[2:] or any(d != 1 for d in a.dilations) or any(p != 0 for p in a.pads):
        return None
    if product(w.shape[2:]) == 1 or product(w.shape[1:]) % 8:
        return None
    space = node.input.shape[2:]
    if not all(isinstance(s, int) and s % r == 0 for s, r in zip(space, w.shape[2:], strict=True)):
        return None
    return Match((), w)


def _patches(b: Builder, node: Node, w: np.ndarray) -> Value:
    """(N, C, P R, Q S) as rows (N, P Q) of C R S elements, times the filters; then the axes as they were."""
    x, out, window = node.input, node.output.shape, w.shape[2:]
    space = len(window)
    cut = b.op("Reshape", x, shape=(*x.shape[:2], *(v for pair in zip(out[2:], window, strict=True) for v in pair)))
    places, inner = tuple(range(2, 2 + 2 * space, 2)), tuple(range(3, 3 + 2 * space, 2))
    rows = b.op("Reshape", b.op("Transpose", cut, perm=(0, *places, 1, *inner)), shape=(x.shape[0], product(out[2:]), product(w.shape[1:])))
    y = b.op("MatMul", rows, b.constant(np.ascontiguousarray(w.reshape(len(w), -1).T), name="filters"), out=None)
    return b.op("Reshape", b.op("Transpose", y, perm=(0, 2, 1)), shape=out)


def _match_few(node: Node) -> Outcome:
    w = _plain(node)
    if w is None or w.shape[1] not in (1, 2, 3) or math.prod(w.shape[2:]) < 9 or node.input.type.rank < 4:
        return None
    return Match((), w)


def _fourth(b: Builder, node: Node, w: np.ndarray) -> Value:
    """The same with channels of zeros up to four, so that a pixel is one aligned load."""
    x, a, more = node.input, node.attrs, 4 - w.shape[1]
    rank = x.type.rank
    padded = b.op("Pad", x, b.like(0, x), pads=(0,) * (rank + 1) + (more,) + (0,) * (rank - 2), mode="constant")
    filters = b.constant(np.pad(w, ((0, 0), (0, more), *((0, 0) for _ in w.shape[2:]))), name="filters")
    return b.op("Conv", padded, filters, strides=a.strides, pads=a.pads, dilations=a.dilations, group=1, out=None)


RULES = (
    Rule("conv-of-patches", "a Conv whose windows tile the image is a MatMul of its patches", ("Conv",), _match_patches, _patches),
    Rule("conv-fourth-channel", "images of one to three channels get channels of zeros up to four", ("Conv",), _match_few, _fourth),
)


@register
def run(graph: Graph, context: Context) -> int:
    """On GPUs with matrix units, 16-bit convolutions of patches become MatMuls; those of one to three channels get four."""
    if context.target is None or "mma_sm80" not in context.target.features:
        return 0
    return apply_rules(graph, RULES, context.log)
