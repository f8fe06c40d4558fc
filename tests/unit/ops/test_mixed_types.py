"""Operators whose operands may be of several element types at once."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import onnx.parser
import pytest

from aitc.importer.onnx import import_model
from aitc.ir.interpret import interpret

TYPES = {"float": np.float32, "float16": np.float16, "double": np.float64, "bfloat16": ml_dtypes.bfloat16}


@pytest.mark.parametrize("training", [0, 1])
@pytest.mark.parametrize("names", list(itertools.product(TYPES, repeat=3)), ids="-".join)
def test_batch_normalization(names: tuple[str, str, str], training: int) -> None:
    """Data, scale and statistics each have a type of their own."""
    rng = np.random.default_rng(0)
    of_x, of_scale, of_mean = names
    outputs = [f"{of_x}[2,3,4] y", *([f"{of_mean}[3] m_out", f"{of_mean}[3] v_out"] if training else [])]
    text = f"""<ir_version: 9, opset_import: ["": 15]>
        main ({of_x}[2,3,4] x, {of_scale}[3] s, {of_scale}[3] b, {of_mean}[3] m, {of_mean}[3] v) => ({", ".join(outputs)}) {{
          {", ".join(o.split()[1] for o in outputs)} = BatchNormalization<training_mode={training}>(x, s, b, m, v) }}"""
    x = rng.normal(size=(2, 3, 4)).astype(TYPES[of_x])
    s, b = (rng.normal(size=3).astype(TYPES[of_scale]) for _ in range(2))
    m, v = (rng.uniform(0.5, 2, size=3).astype(TYPES[of_mean]) for _ in range(2))
    feeds = {"x": x, "s": s, "b": b, "m": m, "v": v}
    y, *statistics = interpret(import_model(onnx.parser.parse_model(text)).graph, feeds).values()
    wide = x.astype(np.float64)
    mean, var = (wide.mean((0, 2)), wide.var((0, 2))) if training else (m.astype(float), v.astype(float))
    want = (wide - mean[:, None]) / np.sqrt(var[:, None] + 1e-5) * s.astype(float)[:, None] + b.astype(float)[:, None]
    assert y.dtype == TYPES[of_x]
    coarse = max(float(ml_dtypes.finfo(TYPES[n]).eps) for n in (names if training else names[:1]))
    np.testing.assert_allclose(y.astype(float), want, rtol=8 * coarse, atol=8 * coarse)
    for got, old, now in zip(statistics, (m, v), (mean, var)):
        assert got.dtype == TYPES[of_mean]
        np.testing.assert_allclose(got.astype(float), 0.9 * old.astype(float) + 0.1 * now, rtol=8 * coarse)
