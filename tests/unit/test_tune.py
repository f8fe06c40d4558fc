"""Tuning: what is measured, what drops out, what is kept; the way through on cpu, where everything can run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper as nh
import pytest
from product import isa_of_tests

from aitc import runtime
from aitc.errors import AitcError, Exit
from aitc.pipeline import Options, compile
from aitc.progress import Silent
from aitc.schedule.choose.select import Choice
from aitc.schedule.choose.table import Entry, merge_into, read_table
from aitc.targets.machine import devices
from aitc.tune import Problem, TuneOptions, _Slot, promote, tune

OPTIONS = Options(targets=("cpu",), isas=(isa_of_tests(),), verify="skip")


def model(path: Path, layers: int = 2) -> Path:
    """x[8, 48] through equal products and Tanh."""
    w = nh.from_array(np.random.default_rng(0).standard_normal((48, 48)).astype(np.float32) / 7, "w")
    nodes = []
    for i in range(layers):
        nodes += [oh.make_node("MatMul", [f"h{i}", "w"], [f"p{i}"]), oh.make_node("Tanh", [f"p{i}"], [f"h{i + 1}"])]
    x, y = (oh.make_tensor_value_info(n, 1, [8, 48]) for n in ("h0", f"h{layers}"))
    onnx.save(oh.make_model(oh.make_graph(nodes, "t", [x], [y], [w]), opset_imports=[oh.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """One object cache for the module, one table for each test."""
    monkeypatch.setenv("AITC_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "tune-cache"))


def test_measures_and_the_table_is_read_by_compile(tmp_path: Path) -> None:
    path, table = model(tmp_path / "m.onnx", layers=3), tmp_path / "table.json"  # the third is not measured with all of them
    tuned = tune(path, OPTIONS, TuneOptions(seconds=0, most=3, table=table))
    (problem,) = tuned.problems
    assert tuned.others == () and problem.launches == 3 and set(problem.times) == {"auto", "4x2", "6x2"} == set(problem.scores)
    assert all(us > 0 for us in problem.times.values()) and not tuned.interrupted
    (entry,) = read_table(table)
    assert entry.problem == problem.key and entry.config == problem.best and set(entry.times) == set(problem.times)

    merge_into(table, [Entry(entry.problem, "6x2", 1.0)])  # whatever was the fastest here
    plan = compile(path, Options(targets=("cpu",), tuning=table, stop_after="plan")).plan
    assert plan is not None and [k.config for k in plan.kernels] == ["6x2"] and plan.launches[0].chosen == "table"


def test_all_candidates_compute_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the library of a tuning as it is, and with each candidate alone: the model's result every time."""
    results: list[np.ndarray] = []
    profile = runtime.Model.profile

    def run_too(
        self: runtime.Model, iters: int, warmup: int, inputs: list[np.ndarray], chosen: list[bool] | None = None
    ) -> list[runtime.Span]:
        spans = profile(self, iters, warmup, inputs, chosen)
        if chosen is None:  # all at once, to know what marks cost
            return spans
        assert sum(chosen) == 2 and sum(s.run == 0 for s in spans) == 2
        results.extend(self(*inputs))
        return spans

    monkeypatch.setattr(runtime.Model, "profile", run_too)
    tune(model(tmp_path / "m.onnx"), OPTIONS, TuneOptions(seconds=0, most=3, table=tmp_path / "table.json"))
    assert len(results) >= 3
    x = runtime.load(compiled(tmp_path)).random_inputs()[0]
    w = np.random.default_rng(0).standard_normal((48, 48)).astype(np.float32) / 7
    for y in results:
        np.testing.assert_allclose(y, np.tanh(np.tanh(x @ w) @ w), rtol=1e-4, atol=1e-5)


def compiled(folder: Path) -> Path:
    compile(folder / "m.onnx", Options(targets=("cpu",), isas=(isa_of_tests(),), verify="skip", output=folder / "out"))
    return folder / "out"


def test_runs_of_chosen_launches(tmp_path: Path) -> None:
    """What is left out is not computed, and later runs are whole again."""
    model(tmp_path / "m.onnx", layers=40)
    network = runtime.load(compiled(tmp_path))
    inputs = network.random_inputs()
    (before,) = network(*inputs)
    whole, nothing = (min(network.bench(30, 2, inputs, [flag] * len(network.launches))) for flag in (True, False))
    assert nothing < whole / 2
    np.testing.assert_array_equal(network(*inputs)[0], before)


class Impatient(Silent):
    """Ctrl-C after some passes."""

    def __init__(self, passes: int):
        self.left = passes

    def step(self, done: int, total: int, what: str = "") -> None:
        if "gained" in what or "nothing known" in what:
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt


def test_stopped_and_resumed(tmp_path: Path) -> None:
    path, table = model(tmp_path / "m.onnx"), tmp_path / "table.json"
    how = TuneOptions(seconds=60, most=4, table=table)
    stopped = tune(path, OPTIONS, how, Impatient(2))
    assert stopped.interrupted and stopped.passes == 2 and stopped.missing
    assert set(read_table(table)[0].times) == {"auto", "4x2"}
    resumed = tune(path, OPTIONS, TuneOptions(seconds=0, most=4, table=table))
    assert not resumed.interrupted and resumed.before == 1 and not resumed.missing
    assert set(read_table(table)[0].times) == {"auto", "4x2", "6x2", "8x2"}
    assert resumed.passes == 3 + (stopped.problems[0].best != "auto")  # the default and the best so far again, and what was missing
    idle = tune(path, OPTIONS, TuneOptions(seconds=0, most=4, table=table))
    assert idle.problems == () and idle.before == 1 and idle.passes == 0
    assert tune(path, OPTIONS, TuneOptions(seconds=0, most=2, table=table, again=True)).problems


def test_stopped_before_anything_is_known_keeps_nothing(tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    stopped = tune(model(tmp_path / "m.onnx"), OPTIONS, TuneOptions(table=table), Impatient(1))
    assert stopped.interrupted and stopped.problems == () and not table.exists()


def test_promoted_entries_are_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aitc.tune.shipped_table", lambda target: tmp_path / f"{target.name}.json")
    tuned = tune(model(tmp_path / "m.onnx"), OPTIONS, TuneOptions(seconds=0, most=2, table=tmp_path / "table.json"))
    assert promote(tuned) == tmp_path / "cpu.json"
    (entry,) = read_table(tmp_path / "cpu.json")
    assert entry.tried == {} and entry.problem == tuned.problems[0].key
    (tmp_path / "cpu.json").unlink()
    promote(tune(tmp_path / "m.onnx", OPTIONS, TuneOptions(seconds=0, most=2, table=tmp_path / "table.json")))  # measured before
    assert read_table(tmp_path / "cpu.json") == [entry]


def test_without_the_device_nothing_is_built(tmp_path: Path) -> None:
    if any(d.target == "gfx90a" for d in devices()):
        pytest.skip("this machine has an MI200")
    with pytest.raises(AitcError, match="no gfx90a") as e:
        tune(tmp_path / "not even there.onnx", Options(targets=("mi250",)))
    assert e.value.exit_code is Exit.RUNTIME
    with pytest.raises(AitcError, match="one target"):
        tune(tmp_path / "m.onnx", Options(targets=("h200", "a100")))


def test_a_table_that_cannot_be_kept_is_told_before_anything_is_built(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "junk").write_text("no table")
    for name, code in (("folder", Exit.IO), ("junk", Exit.USAGE), ("junk/table.json", Exit.IO)):
        with pytest.raises(AitcError) as e:
            tune(tmp_path / "not even there.onnx", OPTIONS, TuneOptions(again=True, table=tmp_path / name))
        assert e.value.exit_code is code and str(tmp_path / name) in str(e.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "junk"]


# --- what is kept


def problem(**times: float) -> Problem:
    return Problem("k p", "k", 3, "auto", times, {})


def test_a_default_that_is_nearly_the_fastest_stays() -> None:
    assert problem(auto=10.0, wide=9.9).best == "auto"
    assert problem(auto=10.0, wide=9.0, narrow=9.5).best == "wide"
    assert problem(auto=10.0, wide=9.0).gained_us == pytest.approx(3.0)


def test_what_an_earlier_run_left_does_not_come_back() -> None:
    """`wide` is faster by itself, but whole runs of an earlier tuning chose `narrow`."""
    later = replace(problem(auto=10.0, wide=8.0, narrow=9.0, new=9.5), beaten=frozenset({"wide"}))
    assert later.best == "narrow" and later.entry().times == {"auto": 10.0, "wide": 8.0, "narrow": 9.0, "new": 9.5}


def test_a_best_that_is_gone_is_replaced(tmp_path: Path) -> None:
    path, table = model(tmp_path / "m.onnx"), tmp_path / "table.json"
    key = tune(path, OPTIONS, TuneOptions(seconds=0, most=2, table=table)).problems[0].key
    merge_into(table, [Entry(key, "of an older aitc", 1e-6, {"auto": 1e3})])
    tune(path, OPTIONS, TuneOptions(seconds=0, most=2, table=table))
    (entry,) = read_table(table)
    assert entry.config in ("auto", "4x2") and "of an older aitc" in entry.tried


def test_a_branch_that_is_not_taken(tmp_path: Path) -> None:
    """Its launches have no times: the others' are kept, and nothing waits for it."""
    f32 = lambda name, *shape: oh.make_tensor_value_info(name, 1, shape)  # noqa: E731
    weights = {"w": np.ones((48, 40)), "u": np.ones((48, 24)), "v": np.ones((24, 40)), "never": np.array(1e9)}
    taken = oh.make_graph([oh.make_node("MatMul", ["x", "w"], ["e"])], "taken", [], [f32("e", 8, 40)])
    never = [oh.make_node("MatMul", ["x", "u"], ["m"]), oh.make_node("MatMul", ["m", "v"], ["t"])]
    nodes = [
        oh.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        oh.make_node("Greater", ["s", "never"], ["c"]),
        oh.make_node("If", ["c"], ["y"], then_branch=oh.make_graph(never, "never", [], [f32("t", 8, 40)]), else_branch=taken),
    ]
    init = [nh.from_array(a.astype(np.float32), n) for n, a in weights.items()]
    graph = oh.make_graph(nodes, "t", [f32("x", 8, 48)], [f32("y", 8, 40)], init)
    path = tmp_path / "m.onnx"
    onnx.save(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8), path)
    tuned = tune(path, OPTIONS, TuneOptions(seconds=0, most=2, table=tmp_path / "table.json"))
    assert [p.launches for p in tuned.problems] == [1] and len(tuned.keys) > len(tuned.problems) and tuned.passes == 2
    assert [e.problem for e in read_table(tmp_path / "table.json")] == [tuned.problems[0].key]
    assert problem(auto=10.0, wide=9.0).entry() == Entry("k p", "wide", 9.0, {"auto": 10.0})


def slot(*times: float) -> _Slot:
    choices = tuple(Choice("k", None, str(i), "candidate", 1.0) for i in range(len(times)))
    return _Slot(choices, list(range(len(times))), [[t * 1e-6] * 3 for t in times], list(range(len(times))))


def test_slow_candidates_drop_out_and_the_default_stays_to_compare_with() -> None:
    s = slot(3.0, 1.0, 1.2, 2.0)
    s.drop(1.5)
    assert s.alive == [0, 1, 2]


def test_a_default_alone_is_not_measured_on() -> None:
    s = slot(1.0, 3.0, 4.0)
    s.drop(1.5)
    assert s.alive == []


def test_noise_only_makes_samples_longer() -> None:
    s = slot(1.0)
    s.samples[0] = [2e-6, 1e-6, 9e-6, 1.1e-6, 1.2e-6]
    assert s.us(0) == pytest.approx(1.1)
