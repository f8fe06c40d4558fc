"""Operators of com.microsoft against onnxruntime or float64, interpreted; tests/conformance/test_cases.py compiles the same cases."""

from __future__ import annotations

import pytest
from conformance.cases import contrib, fused
from conformance.cases.case import Case
from conformance.node_tests import as_arrays, mismatch

from aitc.importer.onnx import import_model
from aitc.ir.interpret import interpret

CASES = [*contrib.CASES, *fused.CASES]


@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_as_onnxruntime(case: Case) -> None:
    ((inputs, outputs),) = case.data_sets
    actual = interpret(import_model(case.model).graph, as_arrays(case.model, inputs))
    for expected, a in zip(outputs, actual.values(), strict=True):
        assert mismatch(expected, a, case.rtol, case.atol, case.steps) is None
