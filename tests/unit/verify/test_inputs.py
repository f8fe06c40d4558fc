from __future__ import annotations

import numpy as np
import pytest

from aitc.ir import dim as dm
from aitc.ir import dtype as dt
from aitc.schedule.dims import fit, typical
from aitc.schedule.plan import DimSource, Port
from aitc.verify.inputs import dim_choices, random_array, random_inputs


def port(use: str = "", dtype: dt.DType = dt.F32, name: str = "x") -> Port:
    return Port(name, dtype, (), "b", use)


def test_ids_are_below_the_limit_and_reach_far() -> None:
    a = random_array(port("ids:1000", dt.I64), (64, 64), 0)
    assert a.dtype == np.int64
    assert a.min() >= 0 and 900 < a.max() < 1000


def test_masks_start_with_ones_and_no_row_is_empty() -> None:
    a = random_array(port("mask", dt.I64), (16, 32), 3)
    assert set(np.unique(a)) == {0, 1}
    assert (a[:, 0] == 1).all() and (a[0] == 1).all()
    assert (np.diff(a, axis=1) <= 0).all()
    assert random_array(port("mask", dt.BOOL), (4, 8), 0).dtype == np.bool_


def test_images_are_smooth_and_in_range() -> None:
    a = random_array(port("image"), (1, 3, 64, 64), 0)
    assert a.dtype == np.float32 and a.min() >= 0 and a.max() <= 1
    assert np.abs(np.diff(a, axis=3)).mean() < 0.3 * a.std()


@pytest.mark.parametrize("dtype", [d for d in dt.ALL if d is not dt.STRING], ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (0, 4), (2, 3)])
def test_every_type_and_shape(dtype: dt.DType, shape: tuple[int, ...]) -> None:
    a = random_array(port("", dtype), shape, 0)
    assert a.dtype == dtype.numpy and a.shape == shape


def test_seeds_decide_and_inputs_do_not_disturb_each_other() -> None:
    x, y = port(name="x"), port(name="y")
    n = dm.symbol("n", 1, 8)
    x, y = (Port(p.name, p.dtype, (n,), p.buffer) for p in (x, y))
    one, both = random_inputs([x], {"n": 8}, 5), random_inputs([y, x], {"n": 8}, 5)
    assert (one["x"] == both["x"]).all()
    assert (both["x"] != both["y"]).any()
    assert (random_inputs([x], {"n": 8}, 6)["x"] != one["x"]).any()


@pytest.mark.parametrize(
    ("size", "lo", "hi", "multiple", "want"),
    [
        (16, 1, 100, 1, 16),
        (16, 1, 8, 1, 8),
        (2, 5, 9, 1, 5),
        (50, 1, 1000, 32, 64),
        (1, 0, 1000, 32, 32),
        (1000, 1, 100, 32, 96),
        (3, 0, 0, 1, 0),
    ],
)
def test_sizes_fit_bounds_and_multiples(size: int, lo: int, hi: int, multiple: int, want: int) -> None:
    assert fit(size, DimSource("n", "n", 0, 0, lo, hi, multiple)) == want


def test_hints_come_first_and_choices_differ() -> None:
    image = Port("x", dt.F32, (), "b", "image")
    dims = [DimSource("n", "n", 0, 0, 1, 64, 1, 4), DimSource("h", "h", 0, 2, 1, 1024, 32)]
    choices = list(dim_choices(dims, [image]))
    assert choices[0] == {"n": 4, "h": 64}
    assert all(a != b for i, a in enumerate(choices) for b in choices[:i])
    assert {"n": 1, "h": 32} in choices


def test_sizes_that_are_made_up_without_a_hint() -> None:
    image = Port("x", dt.F32, (1, 3, 1, 1), "x", "image")
    ids = Port("ids", dt.I64, (1, 1), "ids", "ids:100")
    sizes = [DimSource(n, n, i, axis, lo, hi, m) for n, i, axis, lo, hi, m in (
        ("b", 0, 0, 1, 99, 1), ("h", 0, 2, 1, 4096, 32), ("w", 0, 3, 1, 128, 1), ("s", 1, 1, 1, 512, 1), ("t", 1, 1, 64, 512, 1),
    )]  # fmt: skip
    assert [typical(d, (image, ids)) for d in sizes] == [1, 224, 128, 16, 64]
    assert typical(DimSource("h", "h", 0, 2, 1, 4096, 1, 37), (image, ids)) == 37
