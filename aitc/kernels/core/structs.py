"""Structs of sizes that kernels take: constants where they are known."""

from __future__ import annotations

from aitc.ir.cpp import c_expr
from aitc.ir.dim import Dim
from aitc.kernels.core.functor import Parameters


def int_struct(name: str, members: dict[str, Dim], parameters: Parameters) -> tuple[tuple[str, ...], str]:
    """A struct of int members, constants where they are known, and the expression that makes one."""
    constants = [f"{label} = {d}" for label, d in members.items() if isinstance(d, int)]
    lines = [f"struct {name} {{"]
    row: list[str] = []
    for c in constants:
        if row and sum(len(x) + 2 for x in row) + len(c) > 88:
            lines.append(f"  static constexpr int {', '.join(row)};")
            row = []
        row.append(c)
    if row:
        lines.append(f"  static constexpr int {', '.join(row)};")
    init: list[str] = []
    for label, d in members.items():
        if not isinstance(d, int):
            lines.append(f"  int {label};")
            init.append(f"int({c_expr(d, parameters.dim)})")
    lines.append("};")
    return tuple(lines), f"{name}{{{', '.join(init)}}}"
