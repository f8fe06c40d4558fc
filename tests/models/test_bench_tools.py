"""The parts of bench/ that figures depend on and that need no device."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from bench import measure, record, scaling


def test_summary_orders_samples() -> None:
    figures = measure.summary([0.003, 0.001, 0.002, 0.010, 0.004])
    assert figures == {"median_ms": 3.0, "p10_ms": 1.0, "p90_ms": 10.0, "min_ms": 1.0, "samples": 5}


def test_contenders_take_turns_and_the_first_round_is_dropped() -> None:
    order: list[str] = []

    def contender(name: str) -> measure.Sampler:
        def sample(calls: int) -> list[float]:
            order.append(name)
            return [float(order.count(name))] * calls

        return sample

    figures = measure.in_turns({"a": contender("a"), "b": contender("b")}, calls=6, rounds=3)
    assert order == ["a", "b"] * 4
    assert figures["a"]["samples"] == 6 and figures["a"]["min_ms"] == 2000.0


@pytest.mark.parametrize(("power", "expected"), [(1, 1.0), (2, 2.0)])
def test_the_exponent_tells_linear_from_quadratic(power: int, expected: float) -> None:
    rows: list[dict[str, object]] = [{"nodes": n, "seconds": 0.001 * n**power} for n in scaling.SIZES]
    assert scaling.exponent(rows) == pytest.approx(expected)


def test_the_scaling_graph_is_valid_and_repeats() -> None:
    model = scaling.make_graph(200)
    assert 200 <= len(model.graph.node) < 240
    onnx.checker.check_model(model, full_check=True)
    assert model == scaling.make_graph(200)
    x = np.random.default_rng(0).normal(size=(3, 8, scaling.WIDTH)).astype(np.float32)
    (y,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    assert y.shape == x.shape and np.isfinite(y).all() and float(np.abs(y - x).max()) > 0.1


def test_a_result_says_what_it_was_measured_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AITC_COMMIT", "abc123")
    monkeypatch.setattr("sys.argv", ["/somewhere/bench/cpu.py", "--calls", "7"])
    path = record.write("cpu", [{"model": "m"}], "a processor", tmp_path)
    result = json.loads(path.read_text())
    assert result["rows"] == [{"model": "m"}]
    assert result["about"]["commit"] == "abc123" and result["about"]["device"] == "a processor"
    assert result["about"]["command"] == "python -m bench.cpu --calls 7"
    assert [p.name for p in tmp_path.iterdir()] == ["cpu.json"]
