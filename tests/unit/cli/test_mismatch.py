"""A binary that is wrong never exits with 0, whatever else was asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from aitc_cli.main import main

from aitc.errors import Exit
from aitc.passes.base import Context
from aitc.pipeline import Result
from aitc.targets.target import find_target
from aitc.verify.compare import OutputReport
from aitc.verify.run import Verification

WRONG = OutputReport("y", "f32", (2, 3), 6, False, 0.5, 0.1, 0.1, 9e5, 0.9, 1e-6, 2, (1, 2), "0.25", "0.75")
RIGHT = OutputReport("z", "f32", (2,), 2, True)


@pytest.fixture()
def mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile(*_: object, **__: object) -> Result:
        cpu = find_target("cpu")
        verification = Verification("failed", "1 of 2 outputs differ", "onnxruntime 1", outputs=(WRONG, RIGHT))
        report = {
            "name": "m",
            "files": {"libm.so": 1},
            "targets": ["cpu"],
            "precision": "model",
            "nodes": [],
            "launches": [],
            "kernels": {"files": 1},
        }
        return Result("m", (cpu,), Context(cpu), verification=verification, output=Path("out.failed"), report=report)

    monkeypatch.setattr("aitc.pipeline.compile", compile)
    monkeypatch.setattr("aitc.pipeline.load_all", lambda verifying: None)


@pytest.mark.parametrize("flags", [[], ["-q"], ["--bisect"], ["-v"], ["--json"]])
def test_exit_code(mismatch: None, flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "m.onnx", "-t", "cpu", *flags]) == Exit.VERIFY
    out, err = capsys.readouterr()
    assert "error[V01]: m does not match the reference (onnxruntime 1)" in err
    assert "y f32[2, 3]: 2 of 6 elements differ; worst at [1, 2]: 0.25, the reference's is 0.75" in err
    assert "z f32" not in err
    if "--json" in flags:
        answer = json.loads(out)
        assert answer["ok"] is False and answer["exit"] == 6 and answer["errors"][0]["code"] == "V01"
    else:
        assert "out.failed" in out
