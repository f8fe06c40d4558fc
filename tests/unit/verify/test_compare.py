from __future__ import annotations

import numpy as np
import pytest

from aitc.errors import AitcError
from aitc.ir import dtype as dt
from aitc.verify.compare import ROUNDOFF, asked_tolerance, compare, compare_rows, limits, tolerance

RNG = np.random.default_rng(0)
LIMIT = tolerance(ROUNDOFF["f32"], 16)


def sample(n: int = 4096) -> np.ndarray:
    return RNG.standard_normal(n).astype(np.float32)


def test_rounding_passes_and_is_measured() -> None:
    want = sample()
    report = compare("y", dt.F32, want * np.float32(1 + 2**-22), want, LIMIT)
    assert report.ok
    assert 1 <= report.max_ulp <= 8
    assert 0 < report.max_rel < 1e-6
    assert report.cosine == pytest.approx(1)


@pytest.mark.parametrize("damage", ["one", "channel", "scale", "shift", "swap"])
def test_mistakes_fail(damage: str) -> None:
    want = sample().reshape(64, 64)
    got = want.copy()
    if damage == "one":
        got[3, 5] += 0.01
    elif damage == "channel":
        got[:, 7] = 0
    elif damage == "scale":
        got *= 1.001
    elif damage == "shift":
        got += 1e-3
    else:
        got[[0, 1]] = got[[1, 0]]
    report = compare("y", dt.F32, got, want, LIMIT)
    assert not report.ok
    assert report.wrong > 0
    assert len(report.where) == 2
    if damage == "one":
        assert report.where == (3, 5)


def test_an_error_that_every_element_hides_below_the_bound_fails_by_its_root_mean_square() -> None:
    want = np.ones(10_000, np.float32)
    got = want * np.float32(
        1 + 1.5 * LIMIT.relative
    )  # each element is allowed 2 · relative, all of them together 1/2 · relative
    report = compare("y", dt.F32, got, want, LIMIT)
    assert report.wrong == 0
    assert not report.ok
    assert "root mean square" in report.note


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_specials_must_be_at_the_same_places(special: float) -> None:
    want = sample()
    want[10] = special
    assert compare("y", dt.F32, want.copy(), want, LIMIT).ok
    got = want.copy()
    got[10] = 1.0
    assert not compare("y", dt.F32, got, want, LIMIT).ok
    got = want.copy()
    got[11] = special
    assert not compare("y", dt.F32, got, want, LIMIT).ok


def test_infinity_of_the_other_sign_fails() -> None:
    assert not compare("y", dt.F32, np.array([np.inf], np.float32), np.array([-np.inf], np.float32), LIMIT).ok


def test_overflow_of_half_precision_is_the_reference_that_is_too_large() -> None:
    limit = tolerance(ROUNDOFF["f16"], 4)
    assert compare("y", dt.F16, np.array([np.inf, 1], np.float16), np.array([70000.0, 1], np.float32), limit).ok
    assert not compare("y", dt.F16, np.array([np.inf, 1], np.float16), np.array([60000.0, 1], np.float32), limit).ok


FLOATS = [d for d in dt.ALL if d.is_float or d.kind == "complex"]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_limits_of_each_type_are_those_of_its_numbers(dtype: dt.DType) -> None:
    found = limits(dtype)
    held = np.array([found.largest], np.float64).astype(dtype.numpy)
    assert np.isfinite(held).all() and held.real.astype(np.float64)[0] == found.largest
    if dtype.name != "f8e8m0":  # which has powers of two alone
        next_to_one = (1 + 2 * found.roundoff, 1 + found.roundoff / 2)
        up, same = np.array(next_to_one, np.float64).astype(dtype.numpy).real.astype(np.float64)
        assert up > 1 and same == 1
    assert np.array([2.0**found.least]).astype(dtype.numpy).real.astype(np.float64)[0] == 2.0**found.least > 0


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_infinity_is_no_finite_number_of_any_type(dtype: dt.DType) -> None:
    limit = tolerance(2.0**-9, 4)
    beyond = {"inf": np.inf, "nan": np.nan, "largest": limits(dtype).largest}[limits(dtype).overflows_to]
    got = np.array([beyond, 1], np.float64).astype(dtype.numpy)
    inside = limits(dtype).largest / 2
    assert not compare("y", dtype, got, np.array([inside, 1]), limit).ok
    wider = np.longdouble if dtype.numpy.itemsize == 8 and dtype.is_float else np.float64
    if dtype.name not in ("f64", "c128"):  # of which there is no wider reference
        assert compare("y", dtype, got, np.array([limits(dtype).largest * 2.1, 1], wider), limit).ok
        if limits(dtype).overflows_to == "inf":
            assert not compare("y", dtype, -got, np.array([limits(dtype).largest * 2.1, -1], wider), limit).ok


def test_an_infinite_float8_where_1024_is_right() -> None:
    got = np.array([np.inf, 1], np.float32).astype(dt.F8E5M2.numpy)
    assert not compare("y", dt.F8E5M2, got, np.array([1024.0, 1], np.float32), tolerance(2.0**-4, 1)).ok


def test_subnormals_and_negative_zero() -> None:
    tiny = np.array([1e-310, -0.0, 1.0])
    assert compare("y", dt.F64, np.array([0.0, 0.0, 1.0]), tiny, tolerance(2.0**-53, 1)).ok
    assert compare("y", dt.F32, np.array([1e-45, 0.0, 1.0], np.float32), np.array([0, -0.0, 1], np.float32), LIMIT).ok


def test_a_saturated_reference_of_zeros_is_measured_against_one() -> None:
    zeros = np.zeros(8, np.float32)
    assert compare("y", dt.F32, zeros + np.float32(2.5e-9), zeros, LIMIT).ok
    assert not compare("y", dt.F32, zeros + np.float32(1e-6), zeros, LIMIT).ok


def test_shapes_must_agree() -> None:
    report = compare("y", dt.F32, np.zeros((2, 3), np.float32), np.zeros((3, 2), np.float32), LIMIT)
    assert not report.ok
    assert "[2, 3]" in report.note and "[3, 2]" in report.note


def test_empty_outputs_agree() -> None:
    assert compare("y", dt.F32, np.zeros((0, 4), np.float32), np.zeros((0, 4), np.float32), LIMIT).ok


def test_integers_are_exact_but_where_the_reference_moves() -> None:
    want = np.arange(10)
    got = want.copy()
    got[4] = 7
    assert not compare("y", dt.I64, got, want, LIMIT).ok
    spread = np.zeros(10)
    spread[4] = 3  # the reference itself jumped by 3 there
    assert compare("y", dt.I64, got, want, LIMIT, spread).ok
    assert not compare("y", dt.I64, got, want, LIMIT, np.roll(spread, 1)).ok


def test_bools() -> None:
    want = np.array([True, False])
    assert compare("y", dt.BOOL, want.copy(), want, LIMIT).ok
    assert not compare("y", dt.BOOL, ~want, want, LIMIT).ok


def test_spread_widens_only_where_it_is() -> None:
    want = sample()
    got = want.copy()
    got[100] += 0.01
    spread = np.zeros_like(want, np.float64)
    spread[100] = 0.002
    assert compare("y", dt.F32, got, want, LIMIT, spread).ok
    spread[100], spread[101] = 0, 0.002
    assert not compare("y", dt.F32, got, want, LIMIT, spread).ok


def test_tolerance_grows_with_depth_and_roundoff() -> None:
    assert tolerance(ROUNDOFF["f32"], 100).relative == pytest.approx(10 * tolerance(ROUNDOFF["f32"], 1).relative)
    assert tolerance(ROUNDOFF["f16"], 9).relative > 50 * tolerance(ROUNDOFF["f32"], 9).relative
    assert tolerance(ROUNDOFF["bf16"], 10**9).relative <= 0.25


def detections(n: int) -> dict[str, np.ndarray]:
    return {
        "boxes": RNG.uniform(0, 100, (n, 4)).astype(np.float32),
        "scores": RNG.uniform(0.3, 1, n).astype(np.float32),
        "labels": RNG.integers(0, 5, n),
    }


TYPES = {"boxes": dt.F32, "scores": dt.F32, "labels": dt.I64}


def test_detections_agree_in_any_order() -> None:
    want = detections(40)
    order = RNG.permutation(40)
    got = {k: v[order] for k, v in want.items()}
    assert compare_rows(got, want, TYPES, LIMIT, list(want)) == (True, 0)


def test_one_detection_at_the_threshold_may_be_missing() -> None:
    want = detections(40)
    agree, alone = compare_rows({k: v[1:] for k, v in want.items()}, want, TYPES, LIMIT, list(want))
    assert agree and alone == 1


def test_wrong_detections_do_not_agree() -> None:
    want = detections(40)
    got = {k: v.copy() for k, v in want.items()}
    got["boxes"] += 5
    assert compare_rows(got, want, TYPES, LIMIT, list(want)) == (False, 40)
    got = {k: v.copy() for k, v in want.items()}
    got["labels"][:5] += 1
    assert not compare_rows(got, want, TYPES, LIMIT, list(want))[0]


def test_tails_of_a_sigmoid_are_no_mistakes_and_small_outputs_still_count() -> None:
    want = np.zeros(1000, np.float32)
    assert compare("y", dt.F32, np.full(1000, 5e-8, np.float32), want, LIMIT).ok
    assert not compare("y", dt.F32, np.full(1000, 5e-7, np.float32), want, LIMIT).ok
    want = np.full(1000, 2e-5, np.float32)  # a softmax over fifty thousand classes
    assert not compare("y", dt.F32, want * np.float32(1.02), want, LIMIT).ok


def test_a_tolerance_that_a_user_asks_for_replaces_ours() -> None:
    want = sample()
    off = want + np.float32(0.01) * np.sign(want)
    limit = asked_tolerance(None, 0.0101)
    assert limit is not None and compare("y", dt.F32, off, want, limit).ok
    assert not compare("y", dt.F32, off, want, LIMIT).ok
    strict = asked_tolerance(0.0, 0.0)
    assert strict is not None and compare("y", dt.F32, want, want, strict).ok
    near = np.nextafter(want, np.float32(9))
    assert not compare("y", dt.F32, near, want, strict, np.ones_like(want), 1.0).ok  # neither spread nor floor excuses
    relative = asked_tolerance(1e-3, None)
    assert relative is not None and compare("y", dt.F32, want * np.float32(1.0009), want, relative).ok
    one = want * np.float32(1.0009)
    one[7] = want[7] * np.float32(1.0012)
    report = compare("y", dt.F32, one, want, relative)
    assert report.wrong == 1 and report.where == (7,)
    assert asked_tolerance(None, None) is None


def test_an_asked_tolerance_of_other_types() -> None:
    one = asked_tolerance(None, 1)
    assert one is not None
    steps = np.array([3, 250], np.uint8)
    assert compare("y", dt.U8, steps + np.uint8(1), steps, one).ok
    assert not compare("y", dt.U8, steps + np.uint8(2), steps, one).ok
    assert not compare("y", dt.BOOL, np.array([True]), np.array([False]), one).ok
    z = np.array([3 + 4j], np.complex64)
    assert compare("y", dt.C64, z + np.complex64(0.6 + 0.79j), z, one).ok
    assert not compare("y", dt.C64, z + np.complex64(0.8 + 0.8j), z, one).ok
    inf = np.array([np.inf], np.float32)
    assert not compare("y", dt.F32, np.zeros(1, np.float32), inf, one).ok


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_a_tolerance_is_finite_and_not_negative(bad: float) -> None:
    with pytest.raises(AitcError) as error:
        asked_tolerance(bad, bad)
    assert [d.message.split(" ")[0] for d in error.value.diagnostics] == ["--rtol", "--atol"]
