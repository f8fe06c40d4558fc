"""Compile a model for the CPU, let the pipeline verify it, and compare it once more through `aitc.load`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from frames import faults

import aitc
from aitc import pipeline
from aitc.errors import AitcError
from models.inputs import Array

TOLERANCE = 2e-3  # of the largest value of an output, float32; half precision gets ten times that


def session(model: str | bytes) -> onnxruntime.InferenceSession:
    """ONNX Runtime on the CPU without its warnings about unused initializers."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def compile_for_cpu(
    model: Path | bytes, folder: Path, shapes: Mapping[str, Sequence[int | str]] | None = None, **options: object
) -> pipeline.Result:
    """The compile's result; the test fails with the diagnostic when it could not compile or did not verify, or where its code may fault."""
    chosen = pipeline.Options(
        targets=("cpu",),
        output=folder,
        input_shapes=tuple((name, tuple(shape)) for name, shape in (shapes or {}).items()),
        **options,  # type: ignore[arg-type]
    )
    try:
        result = pipeline.compile(model, chosen)
    except AitcError as error:
        pytest.fail(f"does not compile:\n{error}", pytrace=False)
    assert result.verification is not None
    assert result.verification.ok, result.verification
    assert result.output is not None and not faults(result.output / f"lib{result.name}.so")
    return result


def compare(
    folder: Path, model: Path | bytes, feeds: Sequence[Mapping[str, Array]], tolerance: float = TOLERANCE
) -> None:
    """Run each feed through the library in `folder` and through ONNX Runtime: names, shapes, types and values."""
    reference = session(model if isinstance(model, bytes) else str(model))
    with aitc.load(folder) as network:
        for feed in feeds:
            ours = network(**feed)
            theirs = reference.run(None, dict(feed))
            assert len(ours) == len(theirs)
            for port, a, b in zip(network.outputs, ours, theirs):
                assert a.shape == b.shape and a.dtype == b.dtype, port.name
                scale = max(1e-6, float(np.abs(b.astype(np.float64)).max(initial=0)))
                worst = float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max(initial=0)) / scale
                assert worst <= tolerance * (10 if b.dtype == np.float16 else 1), f"{port.name}: off by {worst:.2e}"
