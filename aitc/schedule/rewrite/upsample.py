"""A 3x3 convolution of an image enlarged to twice its size is four 2x2 convolutions of the image itself, whose results interleave.

Of the nine taps on an enlarged image, those that fall on the same pixel add up before the product: 4 instead of 9 multiplications a
pixel and pair of channels, and the enlarged image is never made. Where the results are written (every second pixel of every second line)
is the Concats' that join them, see join.py.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from aitc.ir.builder import Builder
from aitc.ir.dim import hint, mul, product
from aitc.ir.graph import Graph, Node, Value
from aitc.ir.op import Kind
from aitc.kernels.elements.window import whole_factor
from aitc.targets.target import Target

LAST = (0, 2, 3, 1)  # channels-last
INTERLEAVED = (0, 2, 3, 4, 5, 1)  # of (N, K, H, 2, W, 2)
# For an even and an odd line of the result: which of two neighbouring lines each of three taps falls on, and the border before them.
TAPS = (((0, 1, 1), 1), ((0, 0, 1), 0))


def split_upsampled(graph: Graph, target: Target) -> int:
    """Rewrites such convolutions where that is faster on ``target``; returns how many."""
    if not target.features & {"mma_sm80", "mfma"}:
        return 0
    count, made = 0, []
    for node in graph.nodes:
        tail = _match(graph, node, target)
        if tail is not None:
            made += _rewrite(graph, node, tail)
            count += 1
    if count:
        graph.reorder(made)
        graph.sweep()
    return count


def _match(graph: Graph, node: Node, target: Target) -> list[Node] | None:
    """The pointwise nodes behind the Conv that go with it (those with constants of a channel each), or None if it is no such Conv."""
    if node.op.name != "Conv" or node.input.producer is None or node.input.producer.op.name != "Resize":
        return None
    enlarge, a, w = node.input.producer, node.attrs, node.inputs[1]
    assert w is not None
    x, y = enlarge.input, enlarge.output
    if w.const is None or w.shape[2:] != (3, 3) or a.group != 1 or (a.strides, a.pads, a.dilations) != ((1, 1), (1, 1, 1, 1), (1, 1)):
        return None
    if x.type.dtype.name not in ("f16", "bf16") or x.type.order != LAST or node.output.type.order != LAST or a.out is not None:
        return None
    if len(y.users) != 1 or y in graph.outputs or any(v is not None for v in enlarge.inputs[1:]):
        return None
    factors = [1 if n == m else whole_factor(enlarge.attrs, n, m, s) for n, m, s in zip(x.shape, y.shape, enlarge.attrs.scales, strict=True)]
    if factors != [1, 1, 2, 2] or not all(isinstance(d, int) for d in x.shape[1:]) or x.shape[1] % 8 or w.shape[0] % 8:
        return None
    if _gain_us(x, w, target) <= 0:
        return None
    tail: list[Node] = []
    last = node.output
    while len(last.users) == 1 and last not in graph.outputs:
        (user,) = last.users
        others = [v for v in user.inputs if v is not last]
        if user.op.kind is not Kind.POINTWISE or user.output.type.order != LAST or len(user.outputs) > 1:
            break
        if any(v is None or v.const is None or product(v.shape[-2:]) != 1 or len(v.shape) > 4 for v in others):
            break
        tail.append(user)
        last = user.output
    return tail if last not in graph.outputs else None


def _gain_us(x: Value, w: Value, target: Target) -> float:
    """Microseconds saved: products and the enlarged image, less three more launches and more weights."""
    C, K = int(w.shape[1]), int(w.shape[0])  # type: ignore[arg-type]
    pixels = hint(mul(x.shape[0], product(x.shape[2:])))
    rate = target.tflops["fp16"] * 0.7e6
    saved = 2.0 * 4 * pixels * 5 * C * K / rate + target.launch_us + pixels * 5 * C * 2 * 1e-3 / target.gbps
    return saved - 3 * (target.launch_us + 2.0) - 7 * C * K * 2 * 1e-3 / target.gbps


def _rewrite(graph: Graph, node: Node, tail: list[Node]) -> list[Node]:
    enlarge = node.input.producer
    assert enlarge is not None and node.inputs[1] is not None and node.inputs[1].const is not None
    x, filters = enlarge.input, node.inputs[1].const
    b = Builder(graph, tuple(dict.fromkeys(loc for n in (enlarge, node, *tail) for loc in n.locs)), place=False)
    lines = []
    for rows, top in TAPS:
        pixels = []
        for columns, left in TAPS:
            w = b.constant(merged(filters, rows, columns), name="filters")
            y = b.op("Conv", x, w, strides=(1, 1), pads=(top, left, 1 - top, 1 - left), dilations=(1, 1), group=1, out=None)
            y = _ordered(y, LAST)
            for n in tail:
                inputs = [y if v in (node.output, *(t.output for t in tail)) else v for v in n.inputs]
                made = b.node(n.op.name, *inputs, **{f: getattr(n.attrs, f) for f in n.attrs.__dataclass_fields__})
                y = _ordered(made.output, LAST)
            N, K, H, W = y.shape
            pixels.append(b.op("Reshape", y, shape=(N, K, H, 1, W, 1)))
        lines.append(_ordered(b.op("Concat", *pixels, axis=5), INTERLEAVED))
    whole = _ordered(b.op("Concat", *lines, axis=3), INTERLEAVED)
    last = tail[-1] if tail else node
    result = b.op("Reshape", whole, shape=last.output.shape, names=(last.output.name,))
    graph.replace_uses(last.output, result)
    return b.made


def merged(filters: np.ndarray, rows: tuple[int, ...], columns: tuple[int, ...]) -> np.ndarray:
    """(K, C, 3, 3) -> (K, C, 2, 2): taps on the same pixel added up, in float."""
    sums = np.zeros((*filters.shape[:2], 2, 2), np.float32)
    for r, to_row in enumerate(rows):
        for s, to_column in enumerate(columns):
            sums[:, :, to_row, to_column] += filters[:, :, r, s].astype(np.float32)
    return sums.astype(filters.dtype)


def _ordered(v: Value, order: tuple[int, ...]) -> Value:
    v.type = replace(v.type, order=order)
    return v
