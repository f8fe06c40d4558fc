"""What convolutions and pools share: padding rules and sliding windows in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aitc.ir import dim as d
from aitc.ir.dim import Dim


def check_lengths(
    n: int, pads: Sequence[Any] | None = None, **lists: Sequence[Any] | None
) -> None:
    """Raises ValueError unless each list that is given has an entry for each of ``n`` axes of space, ``pads`` two."""
    for name, given in lists.items():
        if given is not None and len(given) != n:
            raise ValueError(f"{name} has {len(given)} entries for {n} axes of space")
    if pads is not None and len(pads) != 2 * n:
        raise ValueError(f"{len(pads)} pads for {n} axes of space")


def resolve_pads(
    auto_pad: str,
    space: Sequence[Dim],
    window: Sequence[Dim],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int] | None,
) -> tuple[Dim, ...]:
    """Begins, then ends. SAME gives ceil(size / stride) outputs. Raises ValueError for an unknown ``auto_pad``."""
    n = len(space)
    check_lengths(n, pads, strides=strides, dilations=dilations)
    if auto_pad in ("NOTSET", ""):
        return tuple(pads) if pads else (0,) * (2 * n)
    if auto_pad == "VALID":
        return (0,) * (2 * n)
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        raise ValueError(f"auto_pad {auto_pad!r}")
    begins: list[Dim] = []
    ends: list[Dim] = []
    for size, k, stride, dilation in zip(space, window, strides, dilations):
        extent = d.add(d.mul(d.add(k, -1), dilation), 1)
        out = d.ceildiv(size, stride)
        total = d.max_(d.sum_((d.mul(d.add(out, -1), stride), extent, d.mul(size, -1))), 0)
        small = d.floordiv(total, 2)
        large = d.add(total, d.mul(small, -1))
        begins.append(small if auto_pad == "SAME_UPPER" else large)
        ends.append(large if auto_pad == "SAME_UPPER" else small)
    return (*begins, *ends)


def spatial(x: np.ndarray, pads: Sequence[tuple[int, int]], value: Any) -> np.ndarray:
    """``x`` padded with ``value``; negative pads cut."""
    x = x[tuple(slice(max(0, -lo), x.shape[i] - max(0, -hi)) for i, (lo, hi) in enumerate(pads))]
    grow = [(max(0, lo), max(0, hi)) for lo, hi in pads]
    return np.pad(x, grow, constant_values=value) if any(lo or hi for lo, hi in grow) else x


def taps(x: np.ndarray, window: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> np.ndarray:
    """A view (N, C, out..., window...) of (N, C, space...): every window at every place."""
    n = len(window)
    extents = [(k - 1) * dl + 1 for k, dl in zip(window, dilations)]
    out = [max(0, (x.shape[2 + i] - extents[i]) // strides[i] + 1) for i in range(n)]
    steps = x.strides[2:]
    return np.lib.stride_tricks.as_strided(
        x,
        (*x.shape[:2], *out, *window),
        (*x.strides[:2], *(s * st for s, st in zip(steps, strides)), *(s * dl for s, dl in zip(steps, dilations))),
        writeable=False,
    )
