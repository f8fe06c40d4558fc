"""ONNX's node tests through import and the numpy references: what every later stage is measured against.

``reference.toml`` lists the tests that need not pass, with their reasons. A listed test that passes fails here, so that the list stays true.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aitc.errors import AitcError
from aitc.importer.onnx import import_model
from aitc.ir.interpret import interpret
from conformance.node_tests import as_arrays, cases, mismatch, tolerances

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LISTS = tomllib.loads((Path(__file__).parent / "reference.toml").read_text(encoding="utf-8"))
REFUSED = {name: group["reason"] for group in LISTS["refused"] for name in group["tests"]}
RANDOM = {name: group["reason"] for group in LISTS["random"] for name in group["tests"]}


def run(case: Any) -> list[tuple[Any, Any]]:
    """(expected, actual) of every output of every data set."""
    graph = import_model(case.model).graph
    pairs: list[tuple[Any, Any]] = []
    for inputs, outputs in case.data_sets:
        given = as_arrays(case.model, inputs)
        actual = interpret(graph, {v.name: given[v.name] for v in graph.inputs})
        pairs += list(zip(outputs, actual.values()))
    return pairs


@pytest.mark.parametrize("name", sorted(cases()))
def test_node(name: str) -> None:
    case = cases()[name]
    if name in REFUSED:
        with pytest.raises(AitcError) as refusal:
            import_model(case.model)
        assert all(d.code in ("I05", "I06", "I09") for d in refusal.value.diagnostics), refusal.value
        return
    pairs = run(case)
    assert pairs
    if name in RANDOM:  # as large, of the same type; the numbers are others
        for expected, actual in pairs:
            assert np.asarray(actual).shape == np.asarray(expected).shape
            assert np.asarray(actual).dtype == np.asarray(expected).dtype
        return
    for expected, actual in pairs:
        difference = mismatch(expected, actual, *tolerances(case))
        assert difference is None, difference


def test_lists_name_tests() -> None:
    assert set(REFUSED) | set(RANDOM) <= set(cases())
    assert not set(REFUSED) & set(RANDOM)
