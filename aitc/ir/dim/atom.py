"""What the products of a Dim are made of: symbols, quotients, remainders, minima and maxima, as plain data.

Atoms hold Dims and Dims hold atoms, so the types know each other; the module of the algebra is seen by type checkers alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from aitc.ir.dim.algebra import Dim


@dataclass(frozen=True, slots=True)
class Symbol:
    """A named dim with inclusive bounds. ``hint`` is the size to tune and to test at.

    A coordinate of generated code is a Symbol too; ``below`` is its extent (exclusive) when that is symbolic.
    """

    name: str
    lo: int = 0
    hi: int | None = None
    multiple_of: int = 1
    hint: int | None = field(default=None, compare=False)
    below: "Dim | None" = None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class FloorDiv:
    a: "Dim"
    b: "Dim"

    def __str__(self) -> str:
        return f"({self.a}) // ({self.b})" if not isinstance(self.b, int) else f"({self.a}) // {self.b}"


@dataclass(frozen=True, slots=True)
class Mod:
    a: "Dim"
    b: "Dim"

    def __str__(self) -> str:
        return f"({self.a}) % ({self.b})" if not isinstance(self.b, int) else f"({self.a}) % {self.b}"


@dataclass(frozen=True, slots=True)
class Min:
    args: tuple["Dim", ...]

    def __str__(self) -> str:
        return f"min({', '.join(map(str, self.args))})"


@dataclass(frozen=True, slots=True)
class Max:
    args: tuple["Dim", ...]

    def __str__(self) -> str:
        return f"max({', '.join(map(str, self.args))})"


Atom = Union[Symbol, FloorDiv, Mod, Min, Max]
Product = tuple[Atom, ...]  # sorted by spelling; () is 1
