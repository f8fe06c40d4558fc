"""The order that kernels read in, whatever the order was."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from aitc.ir.packing import STRIP, contiguous


@pytest.mark.parametrize("width", [0, 1, STRIP - 1, STRIP, 2 * STRIP + 3])
@pytest.mark.parametrize("more", [0, 5])
def test_contiguous_keeps_elements_and_adds_zeros(width: int, more: int) -> None:
    whole = np.arange(6 * 4 * width, dtype=np.float32).reshape(6, width, 4)
    for axes in itertools.permutations(range(3)):
        given = whole.transpose(axes)
        made = contiguous(given, more)
        assert made.flags.c_contiguous and made.dtype == given.dtype
        assert np.array_equal(made, np.pad(given, ((0, 0), (0, 0), (0, more))))


def test_what_is_contiguous_is_not_copied() -> None:
    array = np.zeros((3, 4), np.float16)
    assert contiguous(array) is array
    assert contiguous(array[0], 2).tolist() == [0] * 6
