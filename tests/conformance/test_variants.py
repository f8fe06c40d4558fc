"""ONNX's node tests once more on cpu binaries, in other forms (variants.py): the answers are the same.

A third of them each time, all of them with ``AITC_TEST_FUZZ=1``. Functions that are already spelled out are left to test_cpu.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from conformance.many import build_many, plan_of
from conformance.node_tests import cases
from conformance.run_many import run_many
from conformance.test_cpu import RANDOM, REFUSED
from conformance.variants import VARIANTS
from hypothesis import settings

from aitc.errors import AitcError

ALL = not settings.default.derandomize  # see conftest.py
EVERY = {"constant": 3, "symbolic": 3, "in_branch": 9}
CODES = ("I04", "I05", "I09", "S01", "S02")  # an operator that needs to know a size, and says so
CHUNK = 80
# with symbols, a size that is 1 is beside another: it has to be a 1 in the model (aitc/schedule/requirements.py), and the run says so
UNEQUAL = {"test_linear_attention_gated_per_head_decay"}


def _names(variant: str) -> list[str]:
    names = [n for n in sorted(cases()) if n not in REFUSED and n not in RANDOM and not n.endswith("_expanded")]
    return names if ALL else names[:: EVERY[variant]]


CHUNKS = [(v, names[i : i + CHUNK]) for v in VARIANTS for names in (_names(v),) for i in range(0, len(names), CHUNK)]


@pytest.mark.slow
@pytest.mark.parametrize(("variant", "names"), CHUNKS, ids=[f"{v}-{names[0]}" for v, names in CHUNKS])
def test_variants(variant: str, names: list[str], tmp_path: Path) -> None:
    forms, plans, problems = [], [], []
    for name in names:
        form = VARIANTS[variant](cases()[name])
        try:
            plans.append(plan_of(form.model, f"t{len(plans)}", f"{name}.onnx"))
            forms.append(form)
        except AitcError as error:
            if variant != "symbolic" or error.diagnostics[0].code not in CODES:
                problems.append(f"{name} is refused: {error}")
    results = run_many(build_many(plans, tmp_path), forms)
    for name, wrong in results.items():
        refused = variant == "symbolic" and name in UNEQUAL
        if not (wrong or "").startswith("error: error[R02]") if refused else wrong is not None:
            problems.append(f"{name}: {wrong}")
    assert not problems, "\n".join(problems)
