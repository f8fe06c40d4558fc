"""What a case is: a model in ONNX's text form, the inputs of its runs, and what must come out of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx.reference
import onnxruntime

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Array]
Expect = Callable[..., Any]  # the inputs by name -> the output, or a tuple of them

EPS = float(np.finfo(np.float32).eps)


@dataclass(frozen=True, slots=True)
class Case:
    """As ONNX's own ``TestCase``: ``data_sets`` has (inputs, outputs) of each run, in the model's order."""

    name: str
    model: onnx.ModelProto
    data_sets: list[tuple[list[Array], list[Any]]]
    rtol: float
    atol: float
    dims: Mapping[str, tuple[int, int]]  # bounds of symbols, where they are not 1 to any
    steps: int = 0  # by how many units integers may differ


def parse(text: str, opset: int = 21, domains: str = "") -> onnx.ModelProto:
    """A model from ``(inputs) => (outputs) { nodes }``; ``domains`` are further opset imports, as ``"name" : version``."""
    more = f", {domains}" if domains else ""
    header = f'<ir_version: 9, opset_import: ["" : {opset}{more}]>\nmain '
    return onnx.parser.parse_model(header + text)


def onnxruntime_gives(model: onnx.ModelProto) -> Expect:
    """ONNX Runtime on the CPU without its fusions."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda **feeds: tuple(session.run(None, feeds))


def specification_gives(model: onnx.ModelProto) -> Expect:
    """``onnx.reference``, where ONNX Runtime differs from the specification or lacks the operator."""
    evaluator = onnx.reference.ReferenceEvaluator(model)
    return lambda **feeds: tuple(evaluator.run(None, feeds))


def case(
    name: str,
    text: str,
    *runs: Feeds,
    expect: Expect | None = None,
    oracle: Callable[[onnx.ModelProto], Expect] = onnxruntime_gives,
    opset: int = 21,
    domains: str = "",
    rtol: float = 1e-4,
    scale: float = 32 * EPS,
    dims: Mapping[str, tuple[int, int]] | None = None,
) -> Case:
    """A case whose outputs are those of ``expect``, else of ``oracle``. ``scale``: the error that is allowed everywhere,
    relatively to the largest finite value that is expected."""
    model = parse(text, opset, domains)
    compute = expect or oracle(model)
    names = [i.name for i in model.graph.input]
    types = [onnx.helper.tensor_dtype_to_np_dtype(o.type.tensor_type.elem_type) for o in model.graph.output]
    data_sets: list[tuple[list[Array], list[Any]]] = []
    largest = 0.0
    for feeds in runs:
        outputs = compute(**feeds)
        outputs = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
        outputs = [np.asarray(o).astype(t) for o, t in zip(outputs, types, strict=True)]
        data_sets.append(([feeds[n] for n in names], outputs))
        finite = [np.abs(o.astype(np.float64))[np.isfinite(o)] for o in outputs if o.dtype.kind == "f"]
        largest = max(largest, *(float(f.max(initial=0)) for f in finite), 0.0)
    return Case(name, model, data_sets, rtol, scale * largest, dims or {})


def normal(*shape: int, seed: int = 0, scale: float = 1, mean: float = 0, dtype: Any = np.float32) -> Array:
    """Normal numbers, the same in each run."""
    return np.asarray(np.random.default_rng(seed).standard_normal(shape) * scale + mean).astype(dtype)


def whole(*shape: int, lo: int = 0, hi: int = 10, seed: int = 0, dtype: Any = np.int64) -> Array:
    """Whole numbers of ``lo <= n < hi``."""
    return np.asarray(np.random.default_rng(seed).integers(lo, hi, shape)).astype(dtype)


def lines(rows: Sequence[str]) -> str:
    """Nodes, one a line, in braces."""
    return "{\n" + "\n".join(rows) + "\n}"
