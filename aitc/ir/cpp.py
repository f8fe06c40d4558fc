"""Dims and names in generated C++."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from aitc.ir.dim import Atom, Dim, FloorDiv, Min, Mod, Symbol, as_symbol, bounds

_KEYWORDS = frozenset(
    """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl concept const
    consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default delete do double dynamic_cast else enum
    explicit export extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or
    or_eq private protected public register reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast
    struct switch template this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t
    while xor xor_eq int64_t""".split()
)
_MACROS = re.compile(
    r"NULL|EOF|NAN|INFINITY|HUGE_VAL[FL]?|BUFSIZ|DOMAIN|OVERFLOW|UNDERFLOW|SING|assert|errno|std(in|out|err)|linux|unix|i386"
    r"|M_(E|PI|LOG\w+|LN\w+|\d?_?PI\w*|SQRT\w+)|(S|U)?(CHAR|SHRT|INT|LONG|LLONG|SIZE)_(MAX|MIN|BIT)|U?INT(\d+|MAX|PTR)_(MAX|MIN)"
    r"|(FLT|DBL|LDBL|RAND|PATH|NAME|PTRDIFF|WCHAR)_(MAX|MIN|EPSILON)"
)


def c_string(text: str) -> str:
    """``text`` as a C string literal of printable ASCII."""
    escaped = "".join(
        chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else {34: '\\"', 92: "\\\\"}.get(b, f"\\{b:03o}")
        for b in text.encode("utf-8", "replace")
    )
    return f'"{escaped}"'


def comment(text: str, most: int = 240) -> str:
    """``text`` made fit for a comment of C++, CMake or a shell: one line of at most ``most`` characters that show, without marks of
    comments, trigraphs, or a backslash at its end. All text of a model that stands in generated sources outside of string literals
    goes through here."""
    flat = "".join(c if c.isprintable() and unicodedata.category(c) != "Cf" else " " for c in text)
    flat = flat.replace("??/", "?? /").replace("*/", "* /").replace("/*", "/ *")
    if len(flat) > most:
        flat = f"{flat[: most - 1]}\u2026"
    return flat.rstrip("\\ ")


def free_name(name: str) -> str:
    """``name``, an identifier, or with ``_`` behind it where C++ or the headers of generated code have taken it."""
    return f"{name}_" if name in _KEYWORDS or _MACROS.fullmatch(name) else name


def c_expr(d: Dim, name: Callable[[Symbol], str] = lambda s: s.name) -> str:
    """``d`` as a C++ expression. ``//`` becomes ``/`` where the dividend cannot be negative, else ``floor_div``; ``%`` likewise."""
    if isinstance(d, int):
        return str(d)
    parts: list[str] = []
    for p, c in d.terms:
        factors = [_c_atom(a, name) for a in p]
        if abs(c) != 1:
            factors.append(str(abs(c)))
        text = " * ".join(factors)
        if not parts:
            parts.append(f"-{text}" if c < 0 else text)
        else:
            parts.append(f"{'-' if c < 0 else '+'} {text}")
    if d.const:
        parts.append(f"{'-' if d.const < 0 else '+'} {abs(d.const)}")
    return " ".join(parts)


def _c_atom(a: Atom, name: Callable[[Symbol], str]) -> str:
    if isinstance(a, Symbol):
        return name(a)
    if isinstance(a, (FloorDiv, Mod)):
        if bounds(a.a)[0] < 0:  # C++ rounds to zero
            return f"{'floor_div' if isinstance(a, FloorDiv) else 'floor_mod'}({c_expr(a.a, name)}, {c_expr(a.b, name)})"
        return f"({_c_operand(a.a, name)} {'/' if isinstance(a, FloorDiv) else '%'} {_c_operand(a.b, name)})"
    function = "min_of" if isinstance(a, Min) else "max_of"
    text = c_expr(a.args[0], name)
    for x in a.args[1:]:
        text = f"{function}({text}, {c_expr(x, name)})"
    return text


def _c_operand(d: Dim, name: Callable[[Symbol], str]) -> str:
    text = c_expr(d, name)
    if isinstance(d, int) or as_symbol(d):
        return text
    one_atom = len(d.terms) == 1 and not d.const and d.terms[0][1] == 1 and len(d.terms[0][0]) == 1
    return text if text.startswith("(") and one_atom else f"({text})"
