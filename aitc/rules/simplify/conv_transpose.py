"""ConvTranspose becomes a convolution at stride 1 whose channels are the phases of the output (sub-pixel convolution).

With stride s and window R, out[q s + a] = sum over t of x[q - t] w[t s + a]: for each phase a < s a convolution with ceil(R / s) taps. All
phases are computed at once as channels (a, k), and views interleave them.
"""

from __future__ import annotations

from math import prod

from aitc.ir.builder import Builder
from aitc.ir.dim import Dim, bounds
from aitc.ir.graph import Node, Value
from aitc.ir.rewrite import SIMPLIFY, Match, Outcome, Rule


def _match(node: Node) -> Outcome:
    w = node.inputs[1]
    if w is None or not all(isinstance(d, int) for d in (*w.shape, *node.attrs.pads)):
        return None
    return Match()


def _padded(b: Builder, x: Value, before: list[int], after: list[int]) -> Value:
    if not any(before) and not any(after):
        return x
    return b.op("Pad", x, b.like(0, x), pads=(*before, *after), mode="constant")


def _filters(b: Builder, node: Node, taps: list[int]) -> Value:
    """(C, K / g, window) as the filters (g phases K / g, C / g, taps) of the convolution."""
    a, w = node.attrs, node.inputs[1]
    assert w is not None
    n = len(a.strides)
    c, k, *window = _static(w.shape)
    if any(d > 1 for d in a.dilations):  # zeros between the taps
        apart = [m for r, d in zip(window, a.dilations, strict=True) for m in (r, d)]
        w = b.op("Reshape", w, shape=(c, k, *(m for r in window for m in (r, 1))))
        w = _padded(b, w, [0] * (2 + 2 * n), [0, 0, *(m for d in a.dilations for m in (0, d - 1))])
        w = b.op("Reshape", w, shape=(c, k, *(r * d for r, d in zip(apart[::2], apart[1::2], strict=True))))
        window = [r * d for r, d in zip(window, a.dilations, strict=True)]
    reach = [t * s for t, s in zip(taps, a.strides, strict=True)]
    sizes = (c, k, *(min(r, m) for r, m in zip(window, reach, strict=True)))
    if sizes != tuple(w.shape):  # the zeros behind the last tap
        w = b.op("Slice", w, starts=(0,) * (n + 2), sizes=sizes, steps=(1,) * (n + 2))
    w = _padded(b, w, [0] * (n + 2), [0, 0, *(m - s for m, s in zip(reach, sizes[2:], strict=True))])
    g = a.group
    w = b.op("Reshape", w, shape=(g, c // g, k, *(m for t, s in zip(taps, a.strides, strict=True) for m in (t, s))))
    at_taps = [3 + 2 * i for i in range(n)]
    starts = [0] * (3 + 2 * n)
    steps = [1] * (3 + 2 * n)
    for axis, t in zip(at_taps, taps, strict=True):
        starts[axis], steps[axis] = t - 1, -1
    w = b.op("Slice", w, starts=tuple(starts), sizes=w.shape, steps=tuple(steps))
    w = b.op("Transpose", w, perm=(0, *(t + 1 for t in at_taps), 2, 1, *at_taps))
    return b.op("Reshape", w, shape=(g * prod(a.strides) * k, c // g, *taps))


def _rewrite(b: Builder, node: Node, found: object) -> Value:
    a, x, w = node.attrs, node.input, node.inputs[1]
    assert w is not None
    n, g = len(a.strides), a.group
    _, k, *window = _static(w.shape)
    reach = [(r - 1) * d + 1 for r, d in zip(window, a.dilations, strict=True)]
    taps = [-(-r // s) for r, s in zip(reach, a.strides, strict=True)]
    edge = tuple(t - 1 for t in taps)
    y = b.op("Conv", x, _filters(b, node, taps), strides=(1,) * n, pads=(*edge, *edge), dilations=(1,) * n, group=g)
    batch, _, *places = y.shape
    y = b.op("Reshape", y, shape=(batch, g, *a.strides, k, *places))
    interleaved = [axis for i in range(n) for axis in (3 + n + i, 2 + i)]
    y = b.op("Transpose", y, perm=(0, 1, 2 + n, *interleaved))
    y = b.op("Reshape", y, shape=(batch, g * k, *(q * s for q, s in zip(places, a.strides, strict=True))))
    return _crop(b, y, node.output.shape, a.pads[:n])


def _crop(b: Builder, y: Value, wanted: tuple[Dim, ...], begins: tuple[Dim, ...]) -> Value:
    """The part of ``y`` from ``begins`` on; zeros where it has no such elements."""
    n = len(begins)
    begin = _static(begins)
    before = [max(0, -p) for p in begin]
    after: list[int] = []
    for i in range(n):
        missing = bounds(wanted[2 + i] - before[i] - (y.shape[2 + i] - max(0, begin[i])))[1]
        after.append(max(0, int(missing)) if missing != float("inf") else 0)
    starts = (0, 0, *(max(0, p) for p in begin))
    sizes = (*wanted[:2], *(wanted[2 + i] - before[i] - after[i] for i in range(n)))
    if sizes != tuple(y.shape) or any(starts):
        y = b.op("Slice", y, starts=starts, sizes=sizes, steps=(1,) * (n + 2))
    return _padded(b, y, [0, 0, *before], [0, 0, *after])


def _static(dims: tuple[Dim, ...]) -> tuple[int, ...]:
    return tuple(d for d in dims if isinstance(d, int))


SIMPLIFY.add(
    "conv-transpose",
    Rule(
        "conv-transpose",
        "a transposed convolution becomes a convolution whose channels are the output's phases",
        ("ConvTranspose",),
        _match,
        _rewrite,
    ),
)
