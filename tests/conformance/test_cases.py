"""Our own cases on cpu binaries (``cases/``), many models in one library."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import pytest
from conformance import cases as families
from conformance.many import build_many, plan_of
from conformance.run_many import run_many

FAMILIES = sorted(m.name for m in pkgutil.iter_modules(families.__path__) if m.name != "case")


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_family(family: str, tmp_path: Path) -> None:
    module = importlib.import_module(f"conformance.cases.{family}")
    precision = getattr(module, "PRECISION", "model")
    plans = [plan_of(c.model, f"t{n}", f"{c.name}.onnx", c.dims, precision) for n, c in enumerate(module.CASES)]
    results = run_many(build_many(plans, tmp_path), module.CASES)
    assert len(results) == len(module.CASES), "names are unique"
    wrong = [f"{name}: {what}" for name, what in results.items() if what is not None]
    assert not wrong, f"{len(wrong)} of {len(results)} are wrong:\n" + "\n".join(wrong)
