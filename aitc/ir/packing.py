"""Weights in the order in which kernels read them."""

from __future__ import annotations

import numpy as np

STRIP = 128  # of the last axis: what lies between its elements is read while it is still in the cache


def contiguous(array: np.ndarray, more: int = 0) -> np.ndarray:
    """``array`` in C order, its last axis longer by ``more`` zeros. Transposed ones are copied in strips, several times as fast."""
    if more == 0 and array.flags.c_contiguous:
        return array
    width = array.shape[-1]
    made = np.empty((*array.shape[:-1], width + more), array.dtype)
    for start in range(0, width, STRIP):
        stop = min(start + STRIP, width)
        made[..., start:stop] = array[..., start:stop]
    made[..., width:] = 0
    return made


def by_tap(filters: np.ndarray, rows: int) -> np.ndarray:
    """``filters`` (K, C, taps) as (rows, taps, C), the rows behind K zero; as they lie where nothing has to move."""
    K, C, taps = filters.shape
    if taps == 1 and rows == K and filters.flags.c_contiguous:
        return filters.reshape(K, 1, C)
    made = np.empty((rows, taps, C), filters.dtype)
    bits = np.dtype(f"u{filters.itemsize}")  # whole elements: half precision is moved number by number otherwise
    made.view(bits)[:K] = filters.view(bits).transpose(0, 2, 1)
    made[K:] = 0
    return made
