"""ONNX's node tests once more on cpu binaries, in other forms (variants.py): the answers are the same.

A third of them each time, all of them with ``AITC_TEST_FUZZ=1``; ``make test`` runs the first of each form. Functions that are already spelled out are left
to test_cpu.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from conformance.outcomes import outcomes_of, plans_of
from conformance.suites import names, refusal_is_right
from conformance.variants import VARIANTS
from hypothesis import settings

ALL = not settings.default.derandomize  # see conftest.py
EVERY = {"constant": 3, "symbolic": 3, "in_branch": 9}
CHUNK = 80


def _names(variant: str) -> list[str]:
    return names(variant) if ALL else names(variant)[:: EVERY[variant]]


CHUNKS = [
    pytest.param(v, chosen[i : i + CHUNK], id=f"{v}-{chosen[i]}", marks=pytest.mark.full if i else ())
    for v in VARIANTS
    for chosen in (_names(v),)
    for i in range(0, len(chosen), CHUNK)
]


@pytest.mark.slow
@pytest.mark.parametrize(("variant", "some"), CHUNKS)
def test_variants(variant: str, some: list[str], tmp_path: Path) -> None:
    plans, outcomes = plans_of(some, "cpu", variant)
    outcomes |= outcomes_of(plans, "cpu", "run", tmp_path, variant)
    assert len(outcomes) == len(some)
    problems = [
        f"{name} {status}: {said}"
        for name, (status, said) in outcomes.items()
        if status != "passed" and not (status == "refused" and refusal_is_right(variant, name, said))
    ]
    assert not problems, "\n".join(problems)
