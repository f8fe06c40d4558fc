"""ONNX's official tests, of nodes and of small models: loading them, and comparing outputs as ONNX's own runner does."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx


@lru_cache(maxsize=1)
def cases() -> dict[str, Any]:
    """The node tests of the installed onnx, by name."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for case in load_model_tests(kind="node")}


Operator = tuple[str, str]  # domain ("" is ai.onnx) and name


def operator_of(node: onnx.NodeProto) -> Operator:
    return ("" if node.domain == "ai.onnx" else node.domain, node.op_type)


@lru_cache(maxsize=1)
def operators() -> dict[str, Operator]:
    """The operator that each test in ``cases()`` is of, sorted by name. An ``_expanded`` twin, the body of the same operator, belongs to it, too.

    onnx computes all references, for seconds, to say which tests there are: a file in the tests' cache keeps the answer.
    """
    folder = os.environ.get("AITC_CACHE_DIR")  # see tests/conftest.py
    kept = Path(folder, f"operators-of-onnx-{onnx.__version__}.json") if folder else None
    if kept is not None and kept.exists():
        return {name: (domain, op) for name, (domain, op) in json.loads(kept.read_text()).items()}
    found = {}
    for name in sorted(cases()):
        owner = name.partition("_expanded")[0] if name.endswith("_expanded") or "_expanded_ver" in name else name
        (node,) = cases()[owner].model.graph.node
        found[name] = operator_of(node)
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        partial = kept.with_name(f"{kept.name}.{os.getpid()}")
        partial.write_text(json.dumps(found))
        partial.replace(kept)
    return found


def node_names() -> tuple[str, ...]:
    """The names in ``cases()``, sorted."""
    return tuple(operators())


@dataclass(frozen=True, slots=True)
class ModelTest:
    """As ONNX's own ``TestCase`` of a node, which holds its model and data."""

    name: str
    model: onnx.ModelProto
    data_sets: list[tuple[list[Any], list[Any]]]
    rtol: float
    atol: float


@lru_cache(maxsize=1)
def small_models() -> dict[str, ModelTest]:
    """ONNX's tests of small models (simple, pytorch-converted, pytorch-operator), by name."""
    from onnx.backend.test.loader import load_model_tests

    found = {}
    for kind in ("simple", "pytorch-converted", "pytorch-operator"):
        for case in load_model_tests(kind=kind):
            folder = Path(str(case.model_dir))
            model = onnx.load(folder / "model.onnx")
            sets = [
                tuple([value((d / f"{of}_{n}.pb").read_bytes(), v) for n, v in enumerate(values) if (d / f"{of}_{n}.pb").exists()]
                      for of, values in (("input", model.graph.input), ("output", model.graph.output)))
                for d in sorted(folder.glob("test_data_set_*"))
            ]  # fmt: skip
            assert case.name not in found
            found[case.name] = ModelTest(case.name, model, sets, case.rtol, case.atol)
    return found


def value(data: bytes, of: onnx.ValueInfoProto) -> Any:
    """What a test's file holds for the input or output ``of``: a tensor, a list, or None for an optional without a value."""
    kind = of.type.WhichOneof("value")
    if kind == "optional_type":
        held = onnx.numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
        return held if held is None or isinstance(held, list) else onnx.numpy_helper.from_array(held)
    if kind == "sequence_type":
        return onnx.numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    tensor = onnx.TensorProto.FromString(data)
    if of.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16 and tensor.data_type == onnx.TensorProto.UINT16:
        tensor.data_type = onnx.TensorProto.BFLOAT16  # former releases wrote the bits
    return tensor


def tolerances(case: Any) -> tuple[float, float]:
    """rtol and atol of a test: ONNX's own, but for transforms the rounding noise of the expectation, which numpy
    computes in float32."""
    if case.name.startswith(("test_dft", "test_stft")):
        largest = max((float(np.max(np.abs(o))) for _, outputs in case.data_sets for o in outputs), default=0.0)
        return case.rtol, max(case.atol, float(np.finfo(np.float32).eps) * largest)
    return case.rtol, case.atol


def as_arrays(model: onnx.ModelProto, values: Sequence[Any]) -> dict[str, Any]:
    """A data set's inputs by name; None is an absent optional."""
    return {i.name: as_array(v) for i, v in zip(model.graph.input, values)}


def as_array(value: Any) -> Any:
    """Types that numpy lacks come as TensorProto."""
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    if isinstance(value, (list, tuple)):
        return [as_array(v) for v in value]
    return value


def mismatch(expected: Any, actual: Any, rtol: float, atol: float, steps: int = 0) -> str | None:
    """What differs between an expected output and the actual one; None if they agree. ``steps``: by how many units integers may differ."""
    expected = as_array(expected)
    if isinstance(expected, (list, tuple)):
        if len(expected) != len(actual):
            return f"{len(actual)} elements instead of {len(expected)}"
        return next((m for e, a in zip(expected, actual) if (m := mismatch(e, a, rtol, atol, steps))), None)
    if expected is None:
        return None if actual is None else "a value instead of none"
    expected, actual = np.asarray(expected), np.asarray(actual)
    if expected.shape != actual.shape:
        return f"shape {list(actual.shape)} instead of {list(expected.shape)}"
    if expected.dtype != actual.dtype:
        return f"element type {actual.dtype} instead of {expected.dtype}"
    if expected.dtype.kind in "iubO":
        wrong = np.abs(expected.astype(np.int64) - actual.astype(np.int64)) > steps if steps else expected != actual
        return f"{int(np.sum(wrong))} of {expected.size} elements differ" if np.any(wrong) else None
    if expected.dtype.kind == "c":
        e, a = expected, actual
    else:
        e, a = expected.astype(np.float64), actual.astype(np.float64)
        # a test's expectation was rounded after every step; two units in the last place of the type are always allowed
        rtol = max(rtol, {"float16": 2.0**-9, "bfloat16": 2.0**-6}.get(expected.dtype.name, 0))
    with np.errstate(all="ignore"):
        close = np.isclose(a, e, rtol=rtol, atol=atol, equal_nan=True)
        if close.all():
            return None
        finite = np.isfinite(a) & np.isfinite(e)
        worst = np.max(np.abs(np.where(finite, a - e, 0)))
    return f"{int(np.sum(~close))} of {e.size} elements differ, by up to {worst:.3g}"
