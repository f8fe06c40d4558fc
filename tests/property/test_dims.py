"""The algebra of Dims against that of integers."""

from __future__ import annotations

from graph_strategies import Expression, expressions, values_of_symbols
from hypothesis import given, settings

from aitc.ir import dim as dm
from aitc.ir.parse import parse_dim


@settings(max_examples=400, deadline=None)
@given(expressions, values_of_symbols())
def test_dims_compute_like_integers(expression: Expression, values: dict[str, int]) -> None:
    d, f = expression
    assert dm.evaluate(d, values) == f(values)


@settings(max_examples=300, deadline=None)
@given(expressions, values_of_symbols())
def test_bounds_and_divisors_hold(expression: Expression, values: dict[str, int]) -> None:
    d, f = expression
    lo, hi = dm.bounds(d)
    assert lo <= f(values) <= hi
    g = dm.divisor(d)
    assert f(values) == 0 if g == 0 else f(values) % g == 0


@settings(max_examples=300, deadline=None)
@given(expressions)
def test_dims_print_and_parse_back(expression: Expression) -> None:
    d, _ = expression
    symbols = {s.name: s for s in dm.symbols(d)}
    assert parse_dim(str(d), symbols) == d


@settings(max_examples=300, deadline=None)
@given(expressions, values_of_symbols())
def test_substitution_is_evaluation_in_steps(expression: Expression, values: dict[str, int]) -> None:
    d, f = expression
    part = dm.substitute(d, {"a": values["a"]})
    assert dm.evaluate(part, values) == f(values)
