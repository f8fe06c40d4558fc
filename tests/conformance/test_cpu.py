"""ONNX's node tests on cpu: imported, scheduled, emitted, compiled and run, many models in one library (see many.py). ``make test`` runs
the first two of each operator, ``make test-rest`` the others.

``cpu.toml`` lists the tests that need not pass here, beside those that ``reference.toml`` says are refused or random, with their reasons. A listed test
that passes fails here, so that the list stays true.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conformance.coverage import selection
from conformance.many import build_many, plan_of
from conformance.node_tests import cases, node_names
from conformance.run_many import run_many
from frames import faults

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
NAMES = node_names()


def _chunks() -> list[object]:
    """Chunks of names: two tests of each operator, and then the others."""
    here = [*selection(0), *selection(1)]
    parts = ((here, ()), ([name for name in NAMES if name not in set(here)], (pytest.mark.full,)))
    return [pytest.param(some[n : n + CHUNK], id=some[n], marks=marks) for some, marks in parts for n in range(0, len(some), CHUNK)]


@pytest.mark.slow
@pytest.mark.parametrize("chunk", _chunks())
def test_nodes(chunk: list[str], tmp_path: Path) -> None:
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
    library = build_many(plans, tmp_path)
    problems += [str(fault) for fault in faults(library)]
    results = run_many(library, [cases()[name] for name in planned])
    for name, wrong in results.items():
        if wrong is None and name in WRONG:
            problems.append(f"{name} passes now: it must leave the list")
        if wrong is not None and name not in WRONG and not (name in RANDOM and "differ" in wrong):
            problems.append(f"{name}: {wrong}")
    passed = sum(wrong is None for wrong in results.values())
    print(f"{len(chunk)} tests from {chunk[0]}: {passed} pass, {refused} are refused, {len(chunk) - passed - refused} differ")
    assert not problems, "\n".join(problems)


def test_every_name_is_in_one_chunk() -> None:
    assert sorted(name for chunk in _chunks() for name in chunk.values[0]) == list(NAMES)  # type: ignore[attr-defined]


def test_lists_name_tests() -> None:
    assert set(NAMES) >= REFUSED | WRONG
    assert not REFUSED & WRONG
