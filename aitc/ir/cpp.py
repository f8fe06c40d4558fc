"""Names that C++ or the headers of generated code have taken."""

from __future__ import annotations

import re

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


def free_name(name: str) -> str:
    """``name``, an identifier, or with ``_`` behind it where it is a keyword or a macro of C++."""
    return f"{name}_" if name in _KEYWORDS or _MACROS.fullmatch(name) else name
