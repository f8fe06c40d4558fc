"""The node tests of former releases of onnx on cpu (old_nodes.py). ``old.toml`` lists those that need not pass, with reasons."""

from __future__ import annotations

from pathlib import Path

import pytest
from conformance.old_nodes import old_cases, old_reasons
from conformance.outcomes import outcomes_of, plans_of
from conformance.suites import names

PARTS = 16  # the tests are known only after a download: by place, so that workers share them


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_nodes_of_former_releases(part: int, tmp_path: Path) -> None:
    mine = names("old")[part::PARTS]
    plans, outcomes = plans_of(mine, "cpu", "old")
    outcomes |= outcomes_of(plans, "cpu", "run", tmp_path, "old")
    assert mine and len(outcomes) == len(mine)
    expected = dict.fromkeys(old_reasons("refused"), "refused") | dict.fromkeys(old_reasons("wrong"), "failed")
    expected |= dict.fromkeys(old_reasons("random"), "random")
    wrong = [f"{n} {status}: {said}" for n, (status, said) in outcomes.items() if status != expected.get(n, "passed")]
    assert not wrong, "\n".join(wrong)


@pytest.mark.full
def test_the_list_names_tests() -> None:
    assert set(old_cases()) >= {*old_reasons("refused"), *old_reasons("wrong"), *old_reasons("random")}
