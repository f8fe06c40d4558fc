"""How generated C++ is spelled: names of dims, the comment beside a line, conversions, addresses, literals."""

from __future__ import annotations

import re

from aitc.ir.cpp import comment
from aitc.ir.dtype import BOOL, DType
from aitc.ir.graph import Node


def dim_name(name: str) -> str:
    """The C++ name of the dim that the model calls ``name``; it cannot meet a coordinate's or a local's."""
    return "dim_" + (name if name.isidentifier() else re.sub(r"\W+", "_", name).strip("_"))


def note(node: Node) -> str:
    """The comment that names where a statement came from."""
    loc = node.locs[0] if node.locs else None
    return comment(f'{loc.op_type} "{loc.name}"') if loc else node.op.name


def converted(text: str, dtype: DType) -> str:
    """``text`` of the storage type, in the compute type."""
    return text if dtype.compute_c == dtype.c else f"convert<{dtype.compute_c}>({text})"


def stored(text: str, dtype: DType) -> str:
    """``text`` of the compute type, in the storage type."""
    if dtype.is_float and dtype.bits <= 8:  # a Cast has rounded it already, and may have made it infinite
        return f"convert<{dtype.c}, false>({text})"
    return text if dtype.compute_c == dtype.c else f"convert<{dtype.c}>({text})"


def address(pointer: str, offset: str) -> str:
    """The pointer to the element at ``offset``."""
    return pointer if offset == "0" else f"{pointer} + {offset}"


def literal(x: object, dtype: DType) -> str:
    """A C++ literal of the compute type."""
    if dtype is BOOL:
        return "true" if x else "false"
    if dtype.is_float:
        f = float(x)  # type: ignore[arg-type]
        kind = "double" if dtype.compute_c == "double" else "float"
        if f != f:
            return f"nan_of<{kind}>()"
        if f in (float("inf"), float("-inf")):
            return f"{'-' if f < 0 else ''}inf_of<{kind}>()"
        text = repr(f)
        if kind == "float":
            import numpy as np

            text = str(np.float32(f))
        if "e" not in text and "." not in text:
            text += ".0"
        return text + ("f" if kind == "float" else "")
    i = int(x)  # type: ignore[call-overload]
    if dtype.compute_c == "int64_t":
        return "INT64_MIN" if i == -(2**63) else f"int64_t({i})" if abs(i) < 2**31 else f"INT64_C({i})"
    if dtype.compute_c == "int32_t":
        return str(i) if i != -(2**31) else "INT32_MIN"
    if dtype.compute_c == "uint64_t":
        return f"UINT64_C({i})"
    return f"{dtype.compute_c}({i}{'u' if dtype.kind == 'uint' else ''})"
