"""The worked examples of CONTRIBUTING.md are true."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from aitc.targets.target import Target

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def shape(code: str) -> list[str]:
    """The syntax of each statement, without comments and layout."""
    return [ast.dump(s) for s in ast.parse(code).body]


def test_rule_and_row_are_those_of_the_source() -> None:
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    (row,) = [b for b in blocks if b.startswith("row(")]
    (rule,) = [b for b in blocks if "_match_silu" in b]
    pointwise = shape((ROOT / "aitc/ops/pointwise.py").read_text(encoding="utf-8"))
    assert set(shape(row)) <= set(pointwise)
    assert set(shape(rule)) <= set(shape((ROOT / "aitc/rules/fuse/activations.py").read_text(encoding="utf-8")))


def test_the_target_is_one() -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    target = Target.read("sm87", block)
    assert target.gpu and target.warp == 32 and target.resident_blocks(256, 64, 0) == 4
