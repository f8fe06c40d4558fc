"""Col2Im: blocks of columns added up into an image."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from aitc.ir import dim as d
from aitc.ir.dim import Dim
from aitc.ir.graph import Value
from aitc.ops import declare
from aitc.ops.attribute import Counts, Positives
from aitc.ops.declare import Scope, Unsupported, ints, numbers, onnx_op
from aitc.ops.windows import check_lengths


@onnx_op("Col2Im")
def col2im(
    b: Scope, x: Value, image_shape: Value, block_shape: Value, *, dilations: Positives | None = None,
    pads: Counts | None = None, strides: Positives | None = None,
) -> Value:  # fmt: skip
    """Blocks added up where they came from: a transposed convolution whose filters copy one element each."""
    image = b.dims(image_shape, "image_shape", lo=1)
    if numbers(block_shape) is None:
        return _col2im_scatter(b, x, image, b.dims(block_shape, "block_shape", lo=1), dilations, pads, strides)
    block = ints(block_shape, "block_shape")
    n, taps = len(block), math.prod(block)
    if any(size < 1 for size in block) or n != len(image):
        raise ValueError(f"a block of {list(block)} in an image of {n} axes")
    check_lengths(n, pads, strides=strides, dilations=dilations)
    if x.type.rank != 3:
        raise ValueError(f"[N, C * block, L] needed, got {x.type}")
    strides, dilations, pads = strides or (1,) * n, dilations or (1,) * n, pads or (0,) * (2 * n)
    counts: list[Dim] = []
    extra: list[Dim] = []
    for i in range(n):
        extent = (block[i] - 1) * dilations[i] + 1
        room = d.sum_((image[i], pads[i], pads[n + i], -extent))
        counts.append(d.add(d.floordiv(room, strides[i]), 1))
        extra.append(d.add(room, d.mul(d.floordiv(room, strides[i]), -strides[i])))
    channels = d.floordiv(x.shape[1], taps)
    if not isinstance(channels, int):
        raise Unsupported(f"{channels} channels of {x.type}, a symbolic number", declare.binding(channels))
    one_hot = np.tile(np.eye(taps).reshape(1, taps, 1, *block), (channels, 1, 1, *([1] * n))).reshape(
        channels * taps, 1, *block
    )
    blocks = declare.reshape(b, x, (x.shape[0], x.shape[1], *counts))
    ends = tuple(d.add(p, d.mul(e, -1)) for p, e in zip(pads[n:], extra))
    filters = b.constant(one_hot.astype(x.type.dtype.numpy))
    window = {"strides": strides, "pads": (*pads[:n], *ends), "dilations": dilations}
    return b.op("ConvTranspose", blocks, filters, **window, group=channels, output_padding=(0,) * n)  # type: ignore[arg-type]


def _col2im_scatter(
    b: Scope, x: Value, image: Sequence[Dim], block: Sequence[Dim], dilations: Positives | None,
    pads: Counts | None, strides: Positives | None,
) -> Value:  # fmt: skip
    """Where only the data knows the block's shape: every element is added to its place; those outside of the
    image to one behind it."""
    n = len(image)
    check_lengths(n, pads, strides=strides, dilations=dilations)
    strides, dilations, pads = strides or (1,) * n, dilations or (1,) * n, pads or (0,) * (2 * n)
    counts: list[Dim] = []
    place: Value | None = None
    inside: Value | None = None
    for i in range(n):
        extent = d.add(d.mul(d.add(block[i], -1), dilations[i]), 1)
        counts.append(d.add(d.floordiv(d.sum_((image[i], pads[i], pads[n + i], d.mul(extent, -1))), strides[i]), 1))
        tap = declare.reshape(
            b,
            b.op("Range", start=-pads[i], step=dilations[i], size=block[i]),
            (*([1] * i), block[i], *([1] * (2 * n - 1 - i))),
        )
        at = declare.reshape(
            b,
            b.op("Range", start=0, step=strides[i], size=counts[i]),
            (*([1] * (n + i)), counts[i], *([1] * (n - 1 - i))),
        )
        here = b.op("Add", tap, at)
        size = b.op("Dims", content=(image[i],), shape=())
        fits = b.op("And", b.op("GreaterOrEqual", here, b.constant(0, np.int64)), b.op("Less", here, size))
        inside = fits if inside is None else b.op("And", inside, fits)
        place = here if place is None else b.op("Add", b.op("Mul", place, size), here)
    assert place is not None and inside is not None
    pixels, taps, blocks = d.product(image), d.product(block), d.product(counts)
    place = declare.reshape(
        b, b.op("Where", inside, place, b.op("Dims", content=(pixels,), shape=())), (1, 1, d.mul(taps, blocks))
    )
    channels = d.floordiv(x.shape[1], taps)
    values = declare.reshape(b, x, (x.shape[0], channels, d.mul(taps, blocks)))
    canvas = b.op("Fill", value=0.0, shape=(x.shape[0], channels, d.add(pixels, 1)), dtype=x.type.dtype)
    y = b.op("ScatterElements", canvas, declare.expand(b, place, values.shape), values, axis=2, reduction="add")
    return declare.reshape(b, declare.slice_axis(b, y, 2, 0, pixels), (x.shape[0], channels, *image))
