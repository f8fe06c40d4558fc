"""Our own cases on cpu binaries (``cases/``), many models in one library."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import pytest
from conformance import cases as families
from conformance import many_gpu
from conformance.cases import precision
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


@pytest.mark.slow
def test_half_precision_on_an_emulated_gpu(tmp_path: Path) -> None:
    chosen = [case for case in precision.CASES if case.name in precision.EMULATED]
    assert len(chosen) == len(precision.EMULATED)
    plans = [plan_of(c.model, f"t{n}", f"{c.name}.onnx", c.dims, "fp16", "h200") for n, c in enumerate(chosen)]
    results = run_many(many_gpu.build_many(plans, tmp_path, many_gpu.Compilers.of("h200", True)), chosen)
    assert not {name: what for name, what in results.items() if what is not None}
