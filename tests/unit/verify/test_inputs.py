from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aitc.ir import dim as dm
from aitc.ir import dtype as dt
from aitc.ir.dim import Symbol, evaluate
from aitc.ir.parse import parse_dim
from aitc.schedule.plan.dims import consistent, fit, typical
from aitc.schedule.plan.plan import DimSource, Port, Require
from aitc.verify.inputs import dim_choices, other_choices, random_array, random_inputs


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


def rule(less: str, more: str, equal: bool = True) -> Require:
    return Require(parse_dim(less, SYMBOLS), parse_dim(more, SYMBOLS), equal, "Add")


SYMBOLS = {n: Symbol(n, 1) for n in ("a", "b", "c", "d")}
FREE = [DimSource(n, n, i, 1, 1, 2**31 - 1) for i, n in enumerate(SYMBOLS)]


@pytest.mark.parametrize(
    ("rules", "want"),
    [
        ([("a", "b + c")], {"a": 32, "b": 16, "c": 16, "d": 16}),  # total == past + seq
        ([("b", "a + 1"), ("c", "b + 1"), ("d", "2*c")], {"a": 16, "b": 17, "c": 18, "d": 36}),
        ([("6*a", "3*b")], {"a": 16, "b": 32}),
        ([("3*a", "8*b")], {"a": 16, "b": 6}),
        ([("(a + 1)//2", "b")], {"a": 16, "b": 8}),
        ([("a*b", "c*d"), ("c", "3", True)], {"a": 16, "c": 3}),
        ([("a", "b - 4", False)], {"a": 16, "b": 24}),
        ([("a", "b"), ("b", "5")], {"a": 5, "b": 5}),
    ],
)
def test_sizes_meet_what_has_to_be_true_of_them(rules: list[tuple[str, str]], want: dict[str, int]) -> None:
    requires = [rule(*r) for r in rules]
    for sizes in dim_choices(FREE, [Port("x", dt.F32, (), "")] * 4, requires):
        for r in requires:
            less, more = evaluate(r.less, sizes), evaluate(r.more, sizes)
            assert less == more if r.equal else less <= more, (sizes, str(r.less), str(r.more))
    first = next(dim_choices(FREE, [Port("x", dt.F32, (), "")] * 4, requires))
    assert want.items() <= first.items()


def test_fixed_sizes_stay_and_bounds_hold() -> None:
    requires = [rule("a", "b + c")]
    bounded = [replace(d, hi=20) if d.name == "a" else d for d in FREE]
    sizes = consistent(dict.fromkeys(SYMBOLS, 16), bounded, requires)
    assert sizes is not None and sizes["a"] == sizes["b"] + sizes["c"] <= 20
    assert consistent(dict.fromkeys(SYMBOLS, 16), bounded, requires, {"a": 9, "c": 2}) == {"a": 9, "b": 7, "c": 2, "d": 16}
    assert consistent(dict.fromkeys(SYMBOLS, 16), bounded, requires, {"a": 9, "c": 9}) is None
    assert consistent(dict.fromkeys(SYMBOLS, 16), bounded, [rule("a", "40")]) is None


def test_further_sizes_are_others_and_nothing_where_that_may_be() -> None:
    dims = [replace(d, lo=0) if d.name == "b" else d for d in FREE]
    sizes = {"a": 32, "b": 16, "c": 16, "d": 16}
    assert list(other_choices(sizes, dims, [rule("a", "b + c")])) == [
        {"a": 34, "b": 17, "c": 17, "d": 17},
        {"a": 16, "b": 0, "c": 16, "d": 16},
    ]


def test_limits_over_dims() -> None:
    nodes = Port("edges", dt.I64, (2, 500), "", "ids:min(5, a)")
    assert random_array(nodes, (2, 500), 0, {"a": 3}).max() == 2 and random_array(nodes, (2, 500), 0, {"a": 9}).max() == 4
    lengths = random_array(Port("lens", dt.I32, (50,), "", "length:a"), (50,), 0, {"a": 7})
    assert lengths.min() == 1 and lengths.max() == 7 and lengths[0] == 7


@pytest.mark.parametrize(("attempt", "want"), [(0, set(range(8))), (1, {0, 1}), (2, {1}), (3, {0})])
def test_attempts_at_integers_of_unknown_use(attempt: int, want: set[int]) -> None:
    assert set(random_array(Port("i", dt.I64, (99,), ""), (99,), 0, None, attempt).tolist()) == want


def test_boxes_and_positive_numbers() -> None:
    boxes = random_array(Port("b", dt.F32, (9, 4), "", "boxes"), (9, 4), 0)
    assert (boxes[:, 2:] > boxes[:, :2]).all() and boxes.min() >= 0
    assert random_array(Port("p", dt.F32, (99,), "", "positive"), (99,), 0).min() > 0
