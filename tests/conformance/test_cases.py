"""Our own cases on cpu binaries (``cases/``), many models in one library; ``on_device.py --suite cases`` runs them on a GPU."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from conformance.cases import attention, precision, recurrent
from conformance.outcomes import outcomes_of, plans_of
from conformance.suites import FAMILIES, names


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_family(family: str, tmp_path: Path) -> None:
    mine = [name for name in names("cases") if name.startswith(f"{family}.")]
    plans, outcomes = plans_of(mine, "cpu", "cases")
    outcomes |= outcomes_of(plans, "cpu", "run", tmp_path, "cases")
    assert mine and len(outcomes) == len(mine)
    wrong = [f"{name} {status}: {said}" for name, (status, said) in outcomes.items() if status != "passed"]
    assert not wrong, f"{len(wrong)} of {len(mine)} are wrong:\n" + "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("family", [attention, precision, recurrent], ids=["attention", "precision", "recurrent"])
def test_on_an_emulated_gpu(family: ModuleType, tmp_path: Path) -> None:
    chosen = [f"{family.__name__.rsplit('.')[-1]}.{name}" for name in family.EMULATED]
    plans, outcomes = plans_of(chosen, "h200", "cases")
    outcomes |= outcomes_of(plans, "h200", "emulated", tmp_path, "cases")
    assert outcomes == dict.fromkeys(chosen, ("passed", ""))
