"""The node tests that need not pass, with their reasons: ``reference.toml``, and ``cpu.toml`` for what is compiled."""

from __future__ import annotations

import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
FILES = ("reference.toml", "cpu.toml")


def reasons(kind: str, *files: str) -> dict[str, str]:
    """Test name -> reason, of the groups ``kind`` (refused, random, wrong, static) in ``files`` (none: all)."""
    groups = [
        group
        for file in files or FILES
        for group in tomllib.loads((HERE / file).read_text(encoding="utf-8")).get(kind, ())
    ]
    return {name: group["reason"] for group in groups for name in group["tests"]}
