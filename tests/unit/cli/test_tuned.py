"""What `aitc tune` says of its result, and how to go on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from aitc_cli.commands.tune import lines, summary
from aitc_cli.main import main

from aitc.errors import Exit
from aitc.targets.target import find_target
from aitc.tune import Problem, Tuned

CPU = find_target("cpu")
SETTLED = Problem("k a", "k", 2, "slow", {"slow": 10.0, "fast": 8.0}, {}, settled="fast", saved_us=3.0)
BY_ITSELF = Problem("k b", "k", 1, "slow", {"slow": 5.0, "fast": 4.0}, {})


def test_figures() -> None:
    tuned = Tuned(CPU, "a device", (SETTLED, BY_ITSELF), passes=4, table=Path("t.json"), runs_us=(30.0, 27.5))
    text = "\n".join(lines(tuned, None))
    assert "2 x k a: slow 10.00 us -> fast 8.00 us, of 2, in whole runs: 3.00 us less" in text
    assert "1 x k b: slow 5.00 us -> fast 4.00 us, the fastest of 2" in text and "gained 4.0 of 25.0 us (16.0%)" in text
    assert "a run, launch after launch, took 30.0 us, with what whole runs chose in the measured places 27.5 us" in text
    told = summary(tuned, None)
    assert told["gained_us"] == sum(p["gained_us"] for p in told["problems"]) == 4.0 and told["runs_us"] == [30.0, 27.5]


def test_whole_runs_that_change_nothing_are_one_figure() -> None:
    assert "a run, launch after launch, took 30.0 us" in lines(Tuned(CPU, "a device", (BY_ITSELF,), runs_us=(30.0, 30.0)), None)


@pytest.mark.parametrize(
    ("tuned", "said"),
    [
        (Tuned(CPU, before=3), "nothing to measure: 3 problems were measured before (--again)"),
        (Tuned(CPU, passes=2), "nothing measured: of what can be chosen nothing runs with these inputs"),
        (Tuned(CPU, passes=1, interrupted=True), "nothing measured"),
    ],
)
def test_nothing(tuned: Tuned, said: str) -> None:
    assert lines(tuned, None) == [said]


@pytest.mark.parametrize(("missing", "way_on"), [(True, "run it again to go on"), (False, "all were measured once; --again compares them anew")])
def test_how_to_go_on(
    missing: bool, way_on: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned = Tuned(CPU, "a device", (BY_ITSELF,), interrupted=True, missing=missing, table=tmp_path / "t.json")
    monkeypatch.setattr("aitc.tune.tune", lambda *args: tuned)
    (tmp_path / "m.onnx").write_bytes(b"")
    assert main(["tune", str(tmp_path / "m.onnx"), "--target", "cpu", "--json"]) == Exit.INTERRUPTED
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert error["help"] == way_on and error["message"] == f"interrupted; 1 problems are kept in {tmp_path / 't.json'}"
