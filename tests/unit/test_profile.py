"""Profiles: rates, floors and gaps from what a binary and its report say."""

from __future__ import annotations

from typing import Any

import pytest

from aitc.profile import chrome_trace, floor_us, profile_of, table
from aitc.targets.target import find_target

REPORT: dict[str, Any] = {
    "targets": ["sm90"],
    "dims": [{"name": "batch", "input": 0, "axis": 0}],
    "launches": [
        {
            "kernel": "gemm_sm90", "config": "128x128", "rate": "fp16", "flops": "2000000 * batch", "bytes": 4096,
            "note": "MatMul + Relu", "nodes": ['m.onnx: node #0 "fc" (MatMul)'],
        },
        {"kernel": "map", "config": "t256", "rate": "fp32", "flops": 0, "bytes": "84000 * batch", "note": "Add", "nodes": []},
    ],
}  # fmt: skip
ANSWER: dict[str, Any] = {
    "model": "m",
    "device": "a device",
    "inputs": [{"shape": [10, 3]}],
    "latency_ms": {"p50": 0.012},
    "launches": [{"name": "000_gemm", "us": 4.0, "min_us": 3.5}, {"name": "001_map", "us": 6.0, "min_us": 5.0}],
    "timeline": [
        {"launch": 0, "begin_us": 1.0, "end_us": 5.0},
        {"launch": 1, "begin_us": 5.5, "end_us": 11.5},
    ],
}


def test_rates_are_of_the_dims_that_ran() -> None:
    gemm, copy = profile_of(ANSWER, REPORT).launches
    assert gemm.tflops == pytest.approx(20e6 / 4e-6 * 1e-12)
    assert copy.gbps == pytest.approx(840e3 / 6e-6 * 1e-9)
    assert copy.floor_us == pytest.approx(840e3 / (find_target("sm90").gbps * 1e3), abs=1e-3)
    assert copy.share == pytest.approx(copy.floor_us / 6.0, abs=1e-3)


def test_gaps_are_between_launches_alone() -> None:
    profile = profile_of(ANSWER, REPORT)
    assert [launch.gap_us for launch in profile.launches] == [0.0, 0.5]
    assert profile.between_us == pytest.approx(1.0)  # (12 - 10) / 2


def test_a_launch_that_runs_twice_has_both_gaps() -> None:
    again = {"launch": 0, "begin_us": 12.0, "end_us": 13.0}
    profile = profile_of({**ANSWER, "timeline": [*ANSWER["timeline"], again]}, REPORT)
    assert profile.launches[0].gap_us == 0.5 and len(chrome_trace(profile)["traceEvents"]) == 5


def test_the_floor_is_the_larger_of_both() -> None:
    h200 = find_target("h200")
    assert floor_us(h200, "fp16", 7e8, 0) == pytest.approx(1.0)
    assert floor_us(h200, "fp16", 7e8, 4200e3 * 3) == pytest.approx(3.0)
    assert floor_us(find_target("cpu"), "fp16", 2e5, 0) == pytest.approx(1.0)  # a rate the target lacks: float32's


def test_the_table_is_sorted_and_names_nodes() -> None:
    lines = table(profile_of(ANSWER, REPORT)).splitlines()
    assert "001_map" in lines[2] and "000_gemm" in lines[3] and lines[4].endswith('<- node #0 "fc" (MatMul)')


def test_a_trace_has_an_event_for_each_span() -> None:
    event = chrome_trace(profile_of(ANSWER, REPORT))["traceEvents"][2]
    assert (event["ph"], event["ts"], event["dur"], event["cat"]) == ("X", 1.0, 4.0, "gemm_sm90")
    assert event["args"]["ONNX nodes"] == ['m.onnx: node #0 "fc" (MatMul)']


def test_what_marks_cost_is_taken_off_every_launch() -> None:
    profile = profile_of({**ANSWER, "latency_ms": {"p50": 0.007}}, REPORT)  # 10 us with marks
    assert profile.mark_us == 1.5 and profile.between_us == 0.0
    assert [(r.us, r.min_us) for r in profile.launches] == [(2.5, 2.0), (4.5, 3.5)]
    assert "less 1.50 us each" in table(profile)
    hardly = profile_of({**ANSWER, "latency_ms": {"p50": 0.0}}, REPORT)
    assert [r.us for r in hardly.launches] == [0.8, 1.2]  # never less than a fifth
