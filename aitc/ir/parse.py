"""A scanner, and the parsing of Dims, types and attribute values, for the text IR and for JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from aitc.ir import dim as dm
from aitc.ir import dtype as dt
from aitc.ir.dim import Dim
from aitc.ir.types import TensorType

_TOKEN = re.compile(
    r"""(?P<space>(?:[ \t\r\n]|;[^\n]*)+)
      | (?P<value>%\^*(?:"(?:[^"\\]|\\.)*"|[\w./]+))
      | (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)
      | (?P<name>[^\W\d]\w*)
      | (?P<punct>//|->|[-+*%()\[\]{},:=@#<>])""",
    re.VERBOSE,
)
BARE = re.compile(r"[\w./]+\Z")
NAME = re.compile(r"[^\W\d]\w*\Z")


class ParseError(ValueError):
    """Text that is not the IR; the message has line and column."""


class Scanner:
    """Tokens of ``text``, one ahead. Comments run from ``;`` to the end of the line."""

    def __init__(self, text: str):
        self.text = text
        self.at = 0
        self.start = 0
        self.kind = ""
        self.token = ""
        self.next()

    def next(self) -> str:
        """Moves on; returns the token that was current."""
        was = self.token
        while True:
            self.start = self.at
            if self.at == len(self.text):
                self.kind, self.token = "end", ""
                return was
            m = _TOKEN.match(self.text, self.at)
            if m is None:
                raise self.error(f"cannot read {self.text[self.at : self.at + 12]!r}")
            self.at = m.end()
            self.kind, self.token = str(m.lastgroup), m.group()
            if self.kind != "space":
                return was

    def error(self, what: str) -> ParseError:
        before = self.text[: self.start]
        return ParseError(f"line {before.count(chr(10)) + 1}, column {self.start - before.rfind(chr(10))}: {what}")

    def accept(self, token: str) -> bool:
        if self.token == token and self.kind not in ("string", "end"):
            self.next()
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise self.error(f"expected {token!r}, found {self.token!r}")

    def take(self, kind: str) -> str:
        if self.kind != kind:
            raise self.error(f"expected a {kind}, found {self.token!r}")
        return self.next()

    def string(self) -> str:
        return str(json.loads(self.take("string")))

    def integer(self) -> int:
        sign = -1 if self.accept("-") else 1
        return sign * int(self.take("number"))

    def listed(self, item: Callable[[], Any], close: str) -> list[Any]:
        """Items with commas between them (one may trail), up to and with ``close``."""
        items: list[Any] = []
        while not self.accept(close):
            items.append(item())
            if not self.accept(","):
                self.expect(close)
                break
        return items


Symbols = Mapping[str, dm.Symbol]


def parse_dim(text: str, symbols: Symbols | None = None) -> Dim:
    """The Dim that prints as ``text``. Names are looked up in ``symbols``; without it they are unbounded symbols. Raises ParseError."""
    s = Scanner(text)
    d = dim(s, symbols)
    if s.kind != "end":
        raise s.error(f"{s.token!r} after a dim")
    return d


def dim(s: Scanner, symbols: Symbols | None) -> Dim:
    """sum := [-] term ((+|-) term)*; the first minus negates the whole first term, as Dims print."""
    total = dm.mul(_term(s, symbols), -1) if s.accept("-") else _term(s, symbols)
    while s.token in ("+", "-"):
        sign = -1 if s.next() == "-" else 1
        total = dm.add(total, dm.mul(_term(s, symbols), sign))
    return total


def _term(s: Scanner, symbols: Symbols | None) -> Dim:
    result = _factor(s, symbols)
    while s.token in ("*", "//", "%") or (s.kind == "value" and s.token[0] == "%"):
        if s.kind == "value":  # "a %4": the scanner saw a value's name
            divisor = int(s.next()[1:])
            result = dm.mod(result, divisor)
            continue
        op = s.next()
        other = _factor(s, symbols)
        result = (
            dm.mul(result, other) if op == "*" else dm.floordiv(result, other) if op == "//" else dm.mod(result, other)
        )
    return result


def _factor(s: Scanner, symbols: Symbols | None) -> Dim:
    if s.kind == "number":
        return int(s.next())
    if s.accept("("):
        d = dim(s, symbols)
        s.expect(")")
        return d
    if s.accept("-"):
        return dm.mul(_factor(s, symbols), -1)
    name = s.take("name")
    if name in ("min", "max") and s.accept("("):
        args = s.listed(lambda: dim(s, symbols), ")")
        return dm.min_(*args) if name == "min" else dm.max_(*args)
    if symbols is None:
        return dm.symbol(name)
    if name not in symbols:
        raise s.error(f"no dim is called {name!r}")
    known = symbols[name]
    return dm.Sum((((known,), 1),))


def tensor_type(s: Scanner, symbols: Symbols | None) -> TensorType:
    """``f32[N, 64] order(1,0)``"""
    name = s.take("name")
    if name not in dt.BY_NAME:
        raise s.error(f"no element type is called {name!r}")
    s.expect("[")
    shape = tuple(s.listed(lambda: dim(s, symbols), "]"))
    order = None
    if s.token == "order":
        s.next()
        s.expect("(")
        order = tuple(s.listed(s.integer, ")"))
    return TensorType(dt.BY_NAME[name], shape, order)


RECORDS: dict[str, Any] = {}  # dataclasses


def record(cls: type) -> type:
    """Decorates a frozen dataclass whose instances are values of attributes: ``#Activation("Tanh", 0.0, 0.0)`` in text."""
    if not is_dataclass(cls) or RECORDS.setdefault(cls.__name__, cls) is not cls or cls.__name__ in dt.BY_NAME:
        raise ValueError(f"{cls.__name__} is no dataclass, or another of this name is a record")
    return cls


def format_value(x: Any) -> str:
    """An attribute's value: None, bool, int, float, complex, str, Dim, DType (``#f32``), bytes, a ``record`` or tuples of them."""
    if x is None or isinstance(x, bool):
        return {None: "none", True: "true", False: "false"}[x]
    if isinstance(x, int):
        return str(x)
    if isinstance(x, float):
        return repr(x) if math.isfinite(x) else f"#{x}".replace("#-", "-#")
    if isinstance(x, str):
        return json.dumps(x)
    if isinstance(x, dm.Sum):
        return str(x)
    if isinstance(x, dt.DType):
        return f"#{x.name}"
    if isinstance(x, bytes):
        return f'#bytes "{x.hex()}"'
    if isinstance(x, complex):
        return f"#complex({format_value(x.real)}, {format_value(x.imag)})"
    if RECORDS.get(type(x).__name__) is type(x):
        return f"#{type(x).__name__}({', '.join(format_value(getattr(x, f.name)) for f in fields(x))})"
    if isinstance(x, tuple):
        return "(" + ", ".join(map(format_value, x)) + ("," if len(x) == 1 else "") + ")"
    raise TypeError(f"an attribute of type {type(x).__name__} has no text form")


def value(s: Scanner, symbols: Symbols | None) -> Any:
    """Reads what ``format_value`` printed."""
    if s.kind == "string":
        return s.string()
    if s.kind == "name" and s.token in _WORDS:
        return _WORDS[s.next()]
    if s.token == "#" or (s.token == "-" and s.text.startswith("-#", s.start)):
        sign = -1.0 if s.accept("-") else 1.0
        s.expect("#")
        name = s.take("name")
        if name in ("inf", "nan"):
            return sign * float(name)
        if name == "bytes":
            return bytes.fromhex(s.string())
        if s.accept("("):
            return _record(s, symbols, name)
        if name not in dt.BY_NAME:
            raise s.error(f"no value is written as #{name}")
        return dt.BY_NAME[name]
    if s.token == "(":
        return _parenthesised(s, symbols)
    number = re.compile(r"-?(\d+\.\d*([eE][+-]?\d+)?|\d+[eE][+-]?\d+)").match(s.text, s.start)
    if number is not None:
        s.at = number.end()
        s.next()
        return float(number.group())
    return dim(s, symbols)


_WORDS = {"none": None, "true": True, "false": False}


def _record(s: Scanner, symbols: Symbols | None, name: str) -> Any:
    """What stands behind ``#Name(``."""
    made = complex if name == "complex" else RECORDS.get(name)
    given = s.listed(lambda: value(s, symbols), ")")
    if made is None:
        raise s.error(f"no record is called {name!r}")
    try:
        return made(*given)
    except TypeError as e:
        raise s.error(f"#{name}: {e}") from e


def _parenthesised(s: Scanner, symbols: Symbols | None) -> Any:
    """A tuple, or a Dim that begins with a parenthesis: ``(a + 1) // 2``."""
    start = s.start
    s.next()
    if s.accept(")"):
        return ()
    first = value(s, symbols)
    if s.accept(","):
        return (first, *s.listed(lambda: value(s, symbols), ")"))
    s.at = start
    s.next()
    return dim(s, symbols)
