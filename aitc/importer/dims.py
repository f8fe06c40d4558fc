"""Dim names of models: parsing ``dim_param`` strings (also expressions such as "past + seq") and applying --dim and
--input."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Union

from aitc.ir import dim as d
from aitc.ir.dim import Dim

Binding = Union[int, tuple[int, Union[int, None]], str]  # a size, bounds, or an expression over other dims


def parse(text: str, symbol: Callable[[str], Dim]) -> Dim:
    """The Dim that a ``dim_param`` spells. What is not arithmetic on identifiers is one symbol, asked for by the
    whole text."""
    if text.isidentifier():
        return symbol(text)
    try:
        tree = ast.parse(text.strip().replace("^", "**"), mode="eval").body
        return _evaluate(tree, symbol)
    except (SyntaxError, ValueError, RecursionError):
        return symbol(text)


def names(text: str) -> list[str]:
    """The symbols that ``parse`` would ask for."""
    found: list[str] = []

    def note(name: str) -> Dim:
        if name not in found:
            found.append(name)
        return d.symbol(name, 1)

    parse(text, note)
    return found


def is_name(text: str) -> bool:
    """Whether a ``dim_param`` is the name of one dim, and no arithmetic on others."""
    return text.isidentifier() or names(text) == [text]


def identifier(text: str) -> str:
    """``text`` as an identifier that still resembles it."""
    spelled = text
    for sign, word in (("+", "_plus_"), ("-", "_minus_"), ("*", "_times_"), ("/", "_over_"), ("%", "_mod_")):
        spelled = spelled.replace(sign, word)
    name = re.sub(r"_+", "_", re.sub(r"\W", "_", spelled)).strip("_") or "dim"
    return f"_{name}" if name[0].isdigit() else name


def _evaluate(node: ast.expr, symbol: Callable[[str], Dim]) -> Dim:
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    if isinstance(node, ast.Name):
        return symbol(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return d.mul(_evaluate(node.operand, symbol), -1)
    if isinstance(node, ast.BinOp):
        a, b = _evaluate(node.left, symbol), _evaluate(node.right, symbol)
        if isinstance(node.op, ast.Add):
            return d.add(a, b)
        if isinstance(node.op, ast.Sub):
            return d.add(a, d.mul(b, -1))
        if isinstance(node.op, ast.Mult):
            return d.mul(a, b)
        if isinstance(node.op, (ast.FloorDiv, ast.Div)) and b != 0:
            return d.floordiv(a, b)
        if isinstance(node.op, ast.Mod) and b != 0:
            return d.mod(a, b)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        arguments = [_evaluate(a, symbol) for a in node.args]
        function = node.func.id.lower()
        if function in ("max", "min") and arguments:
            return d.max_(*arguments) if function == "max" else d.min_(*arguments)
        if function in ("floor", "floordiv", "int", "trunc") and len(arguments) == 1:
            return arguments[0]
        if function in ("floor", "floordiv") and len(arguments) == 2 and arguments[1] != 0:
            return d.floordiv(*arguments)
        if function == "mod" and len(arguments) == 2 and arguments[1] != 0:
            return d.mod(*arguments)
    raise ValueError("not an expression over dims")


def make_symbol(name: str, binding: int | tuple[int, int | None] | None) -> Dim:
    """The Dim that stands for a name: an int if it is bound to one, else a symbol of at least 1."""
    if binding is None:
        return d.symbol(name, 1)
    if isinstance(binding, int):
        return binding
    return d.symbol(name, binding[0], binding[1])


def parse_binding(text: str) -> tuple[str, Binding]:
    """``batch=8`` or ``batch=1..32`` (or ``batch=1..``) of --dim. Raises ValueError."""
    match = re.fullmatch(r"\s*([^=]+?)\s*=\s*(\d+)\s*(?:(\.\.)\s*(\d*))?\s*", text)
    if match is None:
        raise ValueError(f"{text!r} is not NAME=SIZE or NAME=LOW..HIGH")
    name, low, dots, high = match.groups()
    if dots is None:
        return name, int(low)
    if high and int(high) < int(low):
        raise ValueError(f"{text!r}: the range is empty")
    return name, (int(low), int(high) if high else None)


def parse_shape(text: str) -> tuple[str, tuple[Union[int, str], ...]]:
    """``x=1,3,224,224`` of --input; a name instead of a size leaves that axis symbolic; ``x=`` is a scalar.
    Raises ValueError."""
    name, equals, sizes = text.rpartition("=")
    if not equals or not name:
        raise ValueError(f"{text!r} is not NAME=SIZE,SIZE,...")
    parts = (
        [p.strip() for p in sizes.replace("x", ",").split(",")]
        if re.fullmatch(r"[\dx]+", sizes)
        else [p.strip() for p in sizes.split(",")]
    )
    result: list[Union[int, str]] = []
    for p in parts:
        if p.isdigit():
            result.append(int(p))
        elif p.isidentifier():
            result.append(p)
        elif p or len(parts) > 1:
            raise ValueError(f"{text!r}: {p!r} is neither a size nor a name")
    return name, tuple(result)


def shape_text(shape: Sequence[object]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


Dims = Mapping[str, Binding]
