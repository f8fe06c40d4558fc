"""ONNX's node tests for GPUs, without one: every test is planned and emitted for h200 and mi250; a few of each operator run on the emulator, and some of
these go through nvcc and hipcc. ``make test`` plans an eighth of them and emulates one of each operator for h200; ``make test-rest`` does the rest.
``on_device.py`` runs all of them, wherever there is time or a device.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from conformance import many, many_gpu
from conformance.coverage import own_tests, selection
from conformance.lists import reasons
from conformance.node_tests import node_names
from conformance.outcomes import outcomes_of, plans_of

from aitc.build.toolchain import find_toolchain
from aitc.emit.project import emit
from aitc.errors import AitcError
from aitc.targets.target import find_target

TARGETS = ("h200", "mi250")
REFUSED = set(reasons("refused"))
NAMES = node_names()
PLANNED, RUN = 8, 6  # parts, for as many processes as there are


@pytest.mark.slow
@pytest.mark.parametrize("part", [0, *(pytest.param(n, marks=pytest.mark.full) for n in range(1, PLANNED))])
@pytest.mark.parametrize("target", TARGETS)
def test_every_node_test_is_planned_and_emitted(target: str, part: int) -> None:
    plans, others = plans_of(NAMES[part::PLANNED], target)
    assert not {name: what for name, what in others.items() if what[0] != "refused" or name not in REFUSED}
    assert not set(plans) & REFUSED
    for plan in plans.values():
        files = emit(plan)
        assert sum(path.startswith("kernels/") for path in files) == len(plan.kernels)


@pytest.mark.slow
@pytest.mark.parametrize(("target", "which", "part"), [
    pytest.param(target, which, part, marks=pytest.mark.full if target == "mi250" else ())
    for target, which in (("h200", 0), ("mi250", 1)) for part in range(RUN)
])  # fmt: skip
def test_a_test_of_each_operator_on_the_emulator(target: str, which: int, part: int, tmp_path: Path) -> None:
    names = [name for name in selection(which)[part::RUN] if name not in REFUSED]
    plans, others = plans_of(names, target)
    assert plans and not others
    outcomes = outcomes_of(plans, target, "emulated", tmp_path)
    assert not {name: what for name, what in outcomes.items() if what[0] not in ("passed", "random")}


@pytest.mark.slow
@pytest.mark.parametrize(
    "target", [pytest.param("h200", marks=pytest.mark.cuda), pytest.param("mi250", marks=pytest.mark.hip)]
)
def test_kernels_of_some_operators_compile(target: str, tmp_path: Path) -> None:
    try:
        find_toolchain(find_target(target).api)
    except AitcError as error:
        pytest.skip(f"no compiler for {target}: {error.diagnostics[0].message}")
    plans, _ = plans_of([name for name in selection(0)[::8] if name not in REFUSED], target)
    outcomes = outcomes_of(plans, target, "compiled", tmp_path)
    assert plans and not {name: what for name, what in outcomes.items() if what[0] != "compiled"}


def test_every_node_test_is_of_one_operator() -> None:
    assert sorted(name for names in own_tests().values() for name in names) == list(NAMES)


@pytest.mark.slow
@pytest.mark.full
def test_a_kernel_that_does_not_compile_is_its_own_tests_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans, _ = plans_of(["test_abs", "test_neg", "test_sign"], "h200")
    units = many_gpu.kernel_units

    def spoilt(texts: list[tuple[str, str]]) -> list[tuple[list[str], str]]:
        return units([(name, text.replace("sign_(", "no_such_function(")) for name, text in texts])

    monkeypatch.setattr(many_gpu, "kernel_units", spoilt)
    outcomes = outcomes_of(plans, "h200", "emulated", tmp_path)
    assert {name: status for name, (status, _) in outcomes.items()} == {
        "test_abs": "passed",
        "test_neg": "passed",
        "test_sign": "failed",
    }
    assert "no_such_function" in outcomes["test_sign"][1]
    assert not many.INCLUDE.search(units(many.shared_kernels(list(plans.values()))[1])[0][1].partition("namespace")[2])
