"""The algebra of Dims against that of integers."""

from __future__ import annotations

from graph_strategies import Expression, expressions, values_of_symbols
from hypothesis import given, settings

from aitc.ir import dim as dm
from aitc.ir.cpp import c_expr
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


class CInt:
    """An integer that divides as C++ does: towards zero."""

    def __init__(self, n: int):
        self.n = n

    def __truediv__(self, o: CInt | int) -> CInt:
        d = c_int(o)
        return CInt(abs(self.n) // abs(d) * (1 if (self.n < 0) == (d < 0) else -1))

    def __mod__(self, o: CInt | int) -> CInt:
        return CInt(self.n - (self / o).n * c_int(o))

    def __add__(self, o: CInt | int) -> CInt:
        return CInt(self.n + c_int(o))

    def __sub__(self, o: CInt | int) -> CInt:
        return CInt(self.n - c_int(o))

    def __mul__(self, o: CInt | int) -> CInt:
        return CInt(self.n * c_int(o))

    def __neg__(self) -> CInt:
        return CInt(-self.n)

    def __rtruediv__(self, o: int) -> CInt:
        return CInt(o) / self

    def __rmod__(self, o: int) -> CInt:
        return CInt(o) % self

    def __radd__(self, o: int) -> CInt:
        return CInt(o) + self

    def __rsub__(self, o: int) -> CInt:
        return CInt(o) - self

    def __rmul__(self, o: int) -> CInt:
        return CInt(o) * self


def c_int(x: CInt | int) -> int:
    return x.n if isinstance(x, CInt) else x


@settings(max_examples=400, deadline=None)
@given(expressions, values_of_symbols())
def test_emitted_expressions_mean_the_same_in_cpp(expression: Expression, values: dict[str, int]) -> None:
    d, f = expression
    functions = {
        "floor_div": lambda a, b: CInt(c_int(a) // c_int(b)),
        "floor_mod": lambda a, b: CInt(c_int(a) % c_int(b)),
        "min_of": lambda a, b: CInt(min(c_int(a), c_int(b))),
        "max_of": lambda a, b: CInt(max(c_int(a), c_int(b))),
    }
    names = {n: CInt(v) for n, v in values.items()}
    assert c_int(eval(c_expr(d), functions | names)) == f(values)


@settings(max_examples=300, deadline=None)
@given(expressions, values_of_symbols())
def test_substitution_is_evaluation_in_steps(expression: Expression, values: dict[str, int]) -> None:
    d, f = expression
    part = dm.substitute(d, {"a": values["a"]})
    assert dm.evaluate(part, values) == f(values)
