"""Sequences without steps, interpreted; tests/conformance/test_cases.py compiles the same cases."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from conformance.cases import recurrent
from conformance.cases.case import Case
from conformance.node_tests import as_arrays, mismatch

from aitc.importer.onnx import import_model
from aitc.ir.interpret import interpret


@pytest.mark.parametrize("case", recurrent.CASES, ids=[c.name for c in recurrent.CASES])
def test_some_sequences_have_no_steps(case: Case) -> None:
    graph = import_model(case.model).graph
    for inputs, outputs in case.data_sets:
        actual = interpret(graph, as_arrays(case.model, inputs))
        for expected, a in zip(outputs, actual.values(), strict=True):
            assert mismatch(expected, a, case.rtol, case.atol, case.steps) is None


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_no_steps_at_all(op: str) -> None:
    """As ONNX Runtime: what there is no last step of is 0."""
    gates = 4 * recurrent.GATES[op]
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[T, 2, 3] x, float[1, {gates}, 3] w, float[1, {gates}, 4] r, float[1, 2, 4] h0) => (float[S, D, B, H] y, float[D, B, H] h) {{
            y, h = {op} <hidden_size = 4> (x, w, r, , , h0)
        }}""")
    feeds = {"x": (0, 2, 3), "w": (1, gates, 3), "r": (1, gates, 4), "h0": (1, 2, 4)}
    y, h = interpret(import_model(model).graph, {n: np.ones(s, np.float32) for n, s in feeds.items()}).values()
    assert y.shape == (0, 1, 2, 4) and not h.any()
