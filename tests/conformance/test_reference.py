"""ONNX's node tests through import and the numpy references: what every later stage is measured against.

``reference.toml`` lists the tests that need not pass, with their reasons. A listed test that passes fails here, so that
the list stays true.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from conformance.node_tests import as_arrays, cases, mismatch, node_names, tolerances

from aitc.errors import AitcError
from aitc.importer.onnx import import_model
from aitc.ir.interpret import interpret

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LISTS = tomllib.loads((Path(__file__).parent / "reference.toml").read_text(encoding="utf-8"))
REFUSED = {name: group["reason"] for group in LISTS["refused"] for name in group["tests"]}
STATIC = {name: group["reason"] for group in LISTS["static"] for name in group["tests"]}
RANDOM = {name: group["reason"] for group in LISTS["random"] for name in group["tests"]}


def run(model: onnx.ModelProto, case: Any) -> list[tuple[Any, Any]]:
    """(expected, actual) of every output of every data set. The model's inputs may be fewer than the case's."""
    graph = import_model(model).graph
    pairs: list[tuple[Any, Any]] = []
    for inputs, outputs in case.data_sets:
        given = as_arrays(case.model, inputs)
        actual = interpret(graph, {v.name: given[v.name] for v in graph.inputs})
        pairs += list(zip(outputs, actual.values()))
    return pairs


def check(pairs: list[tuple[Any, Any]], case: Any) -> None:
    for expected, actual in pairs:
        difference = mismatch(expected, actual, *tolerances(case))
        assert difference is None, difference


@pytest.mark.parametrize("name", node_names())
def test_node(name: str) -> None:
    case = cases()[name]
    if name in REFUSED:
        with pytest.raises(AitcError) as refusal:
            import_model(case.model)
        assert all(d.code in ("I05", "I06", "I09") for d in refusal.value.diagnostics), refusal.value
        return
    pairs = run(case.model, case)
    assert pairs
    if name in RANDOM:  # as large, of the same type; the numbers are others
        for expected, actual in pairs:
            assert np.asarray(actual).shape == np.asarray(expected).shape
            assert np.asarray(actual).dtype == np.asarray(expected).dtype
        return
    check(pairs, case)


@pytest.mark.parametrize("name", [n for n in node_names() if n not in REFUSED and n not in RANDOM])
def test_inputs_known_at_compile_time(name: str) -> None:
    """With every input a constant the answer is the same: what is then decided at import is decided rightly."""
    case = cases()[name]
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for key, value in as_arrays(case.model, case.data_sets[0][0]).items():
        if isinstance(value, np.ndarray):
            model.graph.initializer.append(onnx.numpy_helper.from_array(value, key))
    for inputs, outputs in case.data_sets[:1]:
        actual = interpret(
            import_model(model).graph,
            {k: v for k, v in as_arrays(case.model, inputs).items() if not isinstance(v, np.ndarray)},
        )
        check(list(zip(outputs, actual.values())), case)


@pytest.mark.parametrize("name", [n for n in node_names() if n not in REFUSED and n not in RANDOM])
def test_sizes_unknown_at_compile_time(name: str) -> None:
    """With every size above 1 a symbol the answer is the same, or the model is refused because the operator
    needs a static size."""
    case = cases()[name]
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for value in model.graph.input:
        tensor = value.type.tensor_type
        if len(tensor.shape.dim) == 1 and tensor.elem_type in (onnx.TensorProto.INT32, onnx.TensorProto.INT64):
            continue  # shapes, axes, bounds: how many there are is the rank of something
        for dim in tensor.shape.dim:
            if dim.dim_value > 1:
                dim.dim_param = f"s{dim.dim_value}"
    if name in STATIC:
        with pytest.raises(AitcError) as refusal:
            import_model(model)
        assert all(d.code in ("I04", "I05") for d in refusal.value.diagnostics), refusal.value
        return
    check(run(model, case), case)


def test_lists_name_tests() -> None:
    assert set(REFUSED) | set(RANDOM) | set(STATIC) <= set(cases())
    assert not set(REFUSED) & set(RANDOM)
