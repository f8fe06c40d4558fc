"""The parts of bench/ that figures depend on and that need no device."""

from __future__ import annotations

import json
from pathlib import Path

import click
import numpy as np
import onnx
import onnxruntime
import pytest

from aitc.schedule.choose.table import shipped_table, to_text
from aitc.targets.target import find_target
from bench import beside, kernels, measure, plot, record, scaling, ship, suite


def test_another_tree_says_why_it_does_not_compile(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"no model")
    with pytest.raises(RuntimeError, match=r"(?s)compile .*m.onnx.* exited with [1-9].*m.onnx"):
        beside.compile_with(record.ROOT, tmp_path / "m.onnx", tmp_path / "out", "--target", "cpu")
    assert not (tmp_path / "out").exists()


def test_summary_orders_samples() -> None:
    figures = measure.summary([0.003, 0.001, 0.002, 0.010, 0.004])
    assert figures == {"median_ms": 3.0, "p10_ms": 1.0, "p90_ms": 10.0, "min_ms": 1.0, "samples": 5}


def test_contenders_take_turns_and_the_first_round_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def contender(name: str) -> measure.Sampler:
        def sample(calls: int) -> list[float]:
            order.append(name)
            return [float(order.count(name))] * calls

        return sample

    figures = measure.in_turns({"a": contender("a"), "b": contender("b")}, calls=6, rounds=3)
    assert order == ["a", "b"] * 4
    assert figures["a"]["samples"] == 6 and figures["a"]["min_ms"] == 2000.0
    rests: list[float] = []
    monkeypatch.setattr(measure.time, "sleep", rests.append)
    assert measure.in_turns({"a": contender("a")}, calls=6, rounds=3, rest=0.5)["a"]["samples"] == 6 and rests == [0.5] * 4


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
    monkeypatch.setattr("sys.argv", [str(record.ROOT / "bench" / "cpu.py"), "--calls", "7"])
    path = record.write("cpu", [{"model": "m"}], "a processor", tmp_path)
    result = json.loads(path.read_text())
    assert result["rows"] == [{"model": "m"}]
    assert result["about"]["commit"] == "abc123" and result["about"]["device"] == "a processor"
    assert result["about"]["command"] == "python -m bench.cpu --calls 7"
    assert [p.name for p in tmp_path.iterdir()] == ["cpu.json"]


def test_a_command_names_the_script_and_no_folder_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    root = record.ROOT
    monkeypatch.setattr("sys.argv", [str(root / "tests/models/on_device.py"), "--full", f"{root}/models/tiny/a.onnx"])
    assert record.command() == "python tests/models/on_device.py --full models/tiny/a.onnx"


def test_rows_of_the_suite_are_models_of_the_catalog_with_all_their_dims() -> None:
    rows = [suite.parse_row(text) for text in suite.SUITE]
    assert ("bert_base", {"batch": 8, "seq": 128}) in rows and ("sd15_unet", {"batch": 2}) in rows
    assert len({(name, *dims.items()) for name, dims in rows}) == len(suite.SUITE)


@pytest.mark.parametrize("text", ["resnet51", "resnet50,seq=128", "resnet50,batch=many"])
def test_a_row_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        suite.parse_row(text)


@pytest.mark.parametrize(
    ("latency", "notes", "done"),
    [
        ({"aitc": {}, "eager": {}}, {}, True),
        ({"aitc": {}}, {"eager": "RuntimeError: no"}, True),
        ({"aitc": {}}, {"eager": "skipped: no time left"}, False),
        ({"aitc": {}}, {}, False),
    ],
)
def test_a_row_is_measured_again_only_for_what_it_lacks(
    latency: dict[str, object], notes: dict[str, str], done: bool
) -> None:
    assert suite.has_all({"latency": latency, "notes": notes}, ["eager"]) is done
    assert not suite.has_all(None, [])


def test_rows_of_another_commit_or_device_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AITC_COMMIT", "abc123")
    record.write("gpu", [{"model": "m"}], "a device", tmp_path)
    assert record.earlier("gpu", "a device", tmp_path) == [{"model": "m"}]
    assert record.earlier("gpu", "another", tmp_path) == [] == record.earlier("none", "a device", tmp_path)
    monkeypatch.setenv("AITC_COMMIT", "def456")
    assert record.earlier("gpu", "a device", tmp_path) == []


def test_the_picture_has_a_panel_for_each_row(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib comes with the extra [models]")
    figures = {"median_ms": 2.0, "p10_ms": 1.9, "p90_ms": 2.2}
    rows = [
        {"model": name, "dims": dims, "precision": "fp16", "floor_ms": 0.4, "latency": {"aitc": figures, "compile": figures}}
        for name, dims in map(suite.parse_row, suite.SUITE)
    ]
    plot.draw({"about": {"device": "none", "commit": "abc", "date": "2026-01-01"}, "rows": rows}, tmp_path / "gpu.svg")
    text = (tmp_path / "gpu.svg").read_text()
    assert text.startswith("<?xml") and text.count("<g id=\"axes_") >= len(rows)


def test_the_page_of_kernels_lists_what_is_slower_than_the_library_first() -> None:
    def race(name: str, rival: float, *ours: float) -> dict[str, object]:
        tried = [{"us": us, "name": f"tile{i}", "error": 1e-4} for i, us in enumerate(ours)]
        return {"race": name, "flops": 2e9, "bytes": 1e6, "rival_us": rival, "candidates": tried}

    found = {
        "about": {"device": "GPU", "commit": "abc", "date": "2026-01-01T00:00", "versions": {"torch": "2"}, "command": "python x"},
        "problems": [{"name": "gemm_sm90 f16", "good": True, "error": 1.0, "limit": 4.0, "faults": []}],
        "races": [race("gemm_sm90 A", 10.0, 9.0, 8.0), race("gemm_sm90 B", 8.0, 16.0, 20.0), race("gemm_sm80 C", 1.0, 4.0)],
    }
    text = kernels.page(found, "kernels.json")
    assert "| gemm_sm90 | 1 | 1 | 0.25 |" in text
    first, second = text.split("## All")
    assert "1 of 2 races" in first and "gemm_sm90 B | 8.00 | 16.00 | 0.50" in first and "gemm_sm90 A" not in first
    assert "gemm_sm90 A | 10.00 | 8.00 | 1.25 | 250.0 TFLOP/s | tile1" in second and "gemm_sm80 C" in second


def test_rows_of_another_commit_keep_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AITC_COMMIT", "first")
    record.write("builds", [{"model": "a"}], "mi250 (not run)", tmp_path)
    monkeypatch.setenv("AITC_COMMIT", "second")
    assert record.rows_of("builds", "mi250 (not run)", tmp_path) == [{"model": "a", "commit": "first"}]
    assert record.rows_of("builds", "another", tmp_path) == record.earlier("builds", "mi250 (not run)", tmp_path) == []


@pytest.mark.parametrize(
    ("run_us", "settled", "saved_us", "expected"),
    [
        (100.0, "wide", 2.0, "wide"),  # whole runs chose it, and it is faster by itself
        (100.0, "deep", 2.0, "deep"),  # slower by itself, but saves a lot
        (100.0, "deep", 0.5, "wide"),  # not enough for that: the fastest by itself
        (100.0, "auto", 0.0, "auto"),  # kept against the others
        (5000.0, "auto", 0.0, "wide"),  # long runs are noisy
        (5000.0, "deep", 90.0, "wide"),
        (5000.0, "near", 40.0, "wide"),  # less than a hundredth of a long run
        (None, None, 0.0, "wide"),  # no whole runs
    ],
)
def test_what_ships(run_us: float | None, settled: str | None, saved_us: float, expected: str) -> None:
    us = {"auto": [1.0, 10.0], "wide": [1.0, 9.0], "deep": [1.0, 10.5], "near": [1.0, 9.9]}
    detail = {"problem": "k p", "launches": 1, "chosen": "auto", "settled": settled, "saved_us": saved_us, "us": us}
    entry = ship.decide(run_us, detail)
    assert entry is not None and (entry.config, entry.us) == (expected, us[expected][1])
    assert ship.decide(None, {**detail, "us": {"auto": [1.0, 10.0], "wide": [1.0, 9.9]}}) is None


def test_the_table_that_ships_is_made_of_the_recorded_run() -> None:
    result = json.loads((record.RESULTS / "score_h200.json").read_text())
    assert to_text(ship.entries(result)) == shipped_table(find_target("h200")).read_text()
