"""One element of a content, and exact arithmetic on such elements.

An element is a Python int, bool or float, a Dim or, in float tensors, a ``Ratio`` of a Dim. What the bounds of the dims do
not prove raises ``Undecided``. A name that is applied to the node or to a flag gives the function of the elements.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from aitc.ir import dim as d
from aitc.ir.dim import Dim, Sum
from aitc.ir.graph import Node


class Undecided(Exception):
    """The result depends on the value of a symbol."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """An element of a float tensor: the real number ``num / den``."""

    num: Dim
    den: int


def ratio(x: Any) -> Ratio:
    """``x`` as a Ratio. Raises Undecided for a float that is no number or no simple fraction."""
    if isinstance(x, Ratio):
        return x
    if isinstance(x, float):
        if x != x or x in (float("inf"), float("-inf")):
            raise Undecided
        f = _simplest(x)
        if f.denominator > 1 << 30:
            raise Undecided
        return Ratio(f.numerator, f.denominator)
    return Ratio(x, 1)


def _simplest(x: float) -> Fraction:
    """The fraction that was meant: 9/5 for float32(1.8), whose product with 5 floats round to 9 and exact arithmetic leaves below."""
    simple = Fraction(x).limit_denominator(1000)
    same = np.float32(simple) == np.float32(x) if x == np.float32(x) else float(simple) == x
    return simple if same else Fraction(x)


def _reduced(num: Dim, den: int) -> Any:
    """The simplest element that is ``num / den``."""
    if isinstance(num, int):
        return num / den
    g = int(np.gcd(d.divisor(num), den))
    if g > 1:
        num, den = d.floordiv(num, g), den // g
    return num if den == 1 else Ratio(num, den)


def plus(x: Any, y: Any) -> Any:
    """``x + y``."""
    if not isinstance(x, (Ratio, float)) and not isinstance(y, (Ratio, float)):
        return d.add(x, y)
    a, b = ratio(x), ratio(y)
    return _reduced(d.add(d.mul(a.num, b.den), d.mul(b.num, a.den)), a.den * b.den)


def times(x: Any, y: Any) -> Any:
    """``x * y``."""
    if not isinstance(x, (Ratio, float)) and not isinstance(y, (Ratio, float)):
        return d.mul(x, y)
    a, b = ratio(x), ratio(y)
    return _reduced(d.mul(a.num, b.num), a.den * b.den)


def divide(node: Node) -> Callable[[Any, Any], Any]:
    """The quotient as the type that ``node`` computes has it: exact in floats, truncated in integers."""
    if node.outputs[0].type.dtype.kind == "float":

        def quotient(x: Any, y: Any) -> Any:
            a, b = ratio(x), ratio(y)
            if b.num == 0:
                raise Undecided
            if isinstance(b.num, int):
                sign = 1 if b.num > 0 else -1
                return _reduced(d.mul(a.num, b.den * sign), a.den * abs(b.num))
            whole = d.floordiv(d.mul(a.num, b.den), d.mul(b.num, a.den))
            if d.mul(whole, d.mul(b.num, a.den)) != d.mul(a.num, b.den):
                raise Undecided
            return whole

        return quotient

    def whole(x: Dim, y: Dim) -> Dim:  # ONNX truncates: the same as flooring only where both are known to be positive
        if d.bounds(x)[0] < 0 or d.bounds(y)[0] <= 0:
            product = d.floordiv(x, y) if y != 0 else 0
            if y == 0 or d.mul(product, y) != x:
                raise Undecided
            return product
        return d.floordiv(x, y)

    return whole


def compare(x: Any, y: Any) -> tuple[bool, bool, bool] | None:
    """Whether x < y, x == y, x > y is certain; a tuple of which at most one is true is decided, all false is not."""
    a, b = ratio(x), ratio(y)
    difference = d.add(d.mul(a.num, b.den), d.mul(d.mul(b.num, a.den), -1))
    lo, hi = d.bounds(difference)
    return hi < 0, lo == 0 == hi, lo > 0


def equal(x: Any, y: Any) -> bool:
    """``x == y``."""
    if isinstance(x, bool) and isinstance(y, bool):
        return x == y
    less, equal, greater = compare(x, y) or (False, False, False)
    if equal or less or greater:
        return equal
    a, b = ratio(x), ratio(y)  # never equal if the difference is not a multiple of what divides it
    difference = d.add(d.mul(a.num, b.den), d.mul(d.mul(b.num, a.den), -1))
    if isinstance(difference, Sum) and difference.const:
        g = d.divisor(Sum(difference.terms))
        if g and difference.const % g:
            return False
    raise Undecided


def ordered(strict_less: bool, or_equal: bool) -> Callable[[Any, Any], bool]:
    """``x < y``, or ``x > y`` without ``strict_less``; ``or_equal``: or ``x == y``."""
    def decide(x: Any, y: Any) -> bool:
        a, b = ratio(x), ratio(y)
        lo, hi = d.bounds(d.add(d.mul(a.num, b.den), d.mul(d.mul(b.num, a.den), -1)))
        if not strict_less:
            lo, hi = -hi, -lo
        if or_equal:
            if hi <= 0:
                return True
            if lo > 0:
                return False
        else:
            if hi < 0:
                return True
            if lo >= 0:
                return False
        raise Undecided

    return decide


def extreme(smaller: bool) -> Callable[[Any, Any], Any]:
    """The smaller, or else the larger, of two."""
    def pick(x: Any, y: Any) -> Any:
        if isinstance(x, (float, Ratio)) or isinstance(y, (float, Ratio)):
            return (x if ordered(True, True)(x, y) else y) if smaller else (y if ordered(True, True)(x, y) else x)
        return d.min_(x, y) if smaller else d.max_(x, y)

    return pick


def floor(x: Any) -> Any:
    """The largest integer that is not above ``x``."""
    r = ratio(x)
    return d.floordiv(r.num, r.den)


def ceil(x: Any) -> Any:
    """The smallest integer that is not below ``x``."""
    r = ratio(x)
    return d.ceildiv(r.num, r.den)


def scaled(size: Dim, scale: Any) -> Dim:
    """floor(size * scale) in float32, as ONNX infers it, for a scale that is a number or an element of a float content.
    Raises Undecided if no Dim can say that."""
    if isinstance(size, int) and isinstance(scale, (int, float)):
        return int(np.floor(np.float32(size) * np.float32(scale)))
    return floor(times(size, float(scale) if isinstance(scale, int) else scale))


def modulo(x: Any, y: Any) -> Any:
    """``x % y`` of integers, for a ``y`` that is surely positive."""
    if isinstance(x, (float, Ratio)) or isinstance(y, (float, Ratio)) or d.bounds(y)[0] <= 0:
        raise Undecided
    return d.mod(x, y)


def sign(x: Any) -> Any:
    """1 or -1; a zero is Undecided."""
    lo, hi = d.bounds(ratio(x).num)
    if lo > 0:
        return 1
    if hi < 0:
        return -1
    raise Undecided


def positive(x: Any) -> Any:
    """``x``, if it is surely not negative."""
    if d.bounds(ratio(x).num)[0] < 0:
        raise Undecided
    return x
