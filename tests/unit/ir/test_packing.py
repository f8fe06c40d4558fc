"""The order that kernels read in, whatever the order was."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from aitc.ir.packing import STRIP, by_tap, contiguous


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


@pytest.mark.parametrize(("shape", "rows"), [((5, 7, 1), 5), ((5, 7, 1), 8), ((3, 33, 9), 3), ((64, 130, 4), 96)])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.float32, np.int8])
def test_filters_by_tap(shape: tuple[int, int, int], rows: int, dtype: type) -> None:
    filters: np.ndarray = np.random.default_rng(0).integers(-100, 100, shape).astype(dtype)
    made = by_tap(filters, rows)
    assert made.shape == (rows, shape[2], shape[1]) and made.dtype == dtype and made.flags.c_contiguous
    np.testing.assert_array_equal(made[: shape[0]], filters.transpose(0, 2, 1))
    assert not made[shape[0] :].any()
    assert np.shares_memory(made, filters) == (shape[2] == 1 and rows == shape[0])
