"""ONNX's node tests on cpu: imported, scheduled, emitted, compiled and run, many models in one library (see many.py).

``cpu.toml`` lists the tests that need not pass here, beside those that ``reference.toml`` says are refused or random, with their reasons. A listed test
that passes fails here, so that the list stays true.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conformance.many import build_many, plan_of
from conformance.node_tests import cases
from conformance.run_many import run_many

from aitc.errors import AitcError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
REFERENCE = tomllib.loads((HERE / "reference.toml").read_text(encoding="utf-8"))
CPU = tomllib.loads((HERE / "cpu.toml").read_text(encoding="utf-8"))
RANDOM = {name for group in REFERENCE["random"] for name in group["tests"]}
REFUSED = {name for lists in (REFERENCE, CPU) for group in lists.get("refused", ()) for name in group["tests"]}
WRONG = {name for group in CPU.get("wrong", ()) for name in group["tests"]}
CHUNK = 80
NAMES = sorted(cases())


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(NAMES), CHUNK))
def test_nodes(first: int, tmp_path: Path) -> None:
    chunk = NAMES[first : first + CHUNK]
    plans, planned, problems = [], [], []
    refused = 0
    for name in chunk:
        try:
            plan = plan_of(cases()[name].model, f"t{len(plans)}", f"{name}.onnx")
        except AitcError as e:
            refused += 1
            if name not in REFUSED:
                problems.append(f"{name} is refused: {e.diagnostics[0].message}")
            continue
        if name in REFUSED:
            problems.append(f"{name} is compiled now: it must leave the list")
        plans.append(plan)
        planned.append(name)
    results = run_many(build_many(plans, tmp_path), [cases()[name] for name in planned])
    for name, wrong in results.items():
        if wrong is None and name in WRONG:
            problems.append(f"{name} passes now: it must leave the list")
        if wrong is not None and name not in WRONG and not (name in RANDOM and "differ" in wrong):
            problems.append(f"{name}: {wrong}")
    passed = sum(wrong is None for wrong in results.values())
    print(f"{len(chunk)} tests from {chunk[0]}: {passed} pass, {refused} are refused, {len(chunk) - passed - refused} differ")
    assert not problems, "\n".join(problems)


def test_lists_name_tests() -> None:
    assert set(NAMES) >= REFUSED | WRONG
    assert not REFUSED & WRONG
