"""ONNX's tests of small models (simple, pytorch-converted, pytorch-operator) on cpu binaries; ``models.toml`` lists those that are refused.

The light models are in the development set (models/devset.py): tests/models/test_devset_on_cpu.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from conformance.lists import reasons
from conformance.outcomes import outcomes_of, plans_of
from conformance.suites import names

PARTS = 2
REFUSED = reasons("refused", "models.toml")


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_small_models(part: int, tmp_path: Path) -> None:
    mine = names("models")[part::PARTS]
    plans, outcomes = plans_of(mine, "cpu", "models")
    outcomes |= outcomes_of(plans, "cpu", "run", tmp_path, "models")
    assert len(outcomes) == len(mine)
    wrong = {n: o for n, o in outcomes.items() if o[0] != ("refused" if n in REFUSED else "passed")}
    assert not wrong


@pytest.mark.slow
def test_small_models_for_gpus() -> None:
    """They are planned for GPUs; on_device.py --suite models runs them there."""
    for target in ("h200", "mi250"):
        plans, others = plans_of(names("models"), target, "models")
        assert {n for n, (status, _) in others.items() if status == "refused"} == set(REFUSED) == set(others)
        assert len(plans) + len(others) == len(names("models"))


def test_the_list_names_tests() -> None:
    assert set(names("models")) >= set(REFUSED)
