"""The file that users send: what is in it, and that nothing else gets in."""

from __future__ import annotations

import json
from typing import Any

from aitc.field_report import field_report, line, model_report
from aitc.profile import LaunchTime, Profile

SECRET = "patient_records"
REPORT: dict[str, Any] = {
    "name": SECRET, "aitc": "1.2.3", "targets": ["gfx90a"], "precision": "fp16", "model": {"file": f"/home/me/{SECRET}.onnx"},
    "digests": {"model": "ab" * 32, "weights": "cd" * 32}, "inputs": [{"name": SECRET}],
    "verification": {
        "status": "passed", "reason": f"because of {SECRET}", "oracle": "onnxruntime 1.2", "seed": 1, "dims": {SECRET: 3}, "runs": 2,
        "outputs": [{"name": SECRET, "dtype": "f16", "shape": [3, 7], "elements": 21, "ok": True, "max_rel": "nan", "note": SECRET}],
    },
}  # fmt: skip
ANSWER: dict[str, Any] = {"model": SECRET, "device": "AMD Instinct MI250X (gfx90a)", "iterations": 9, "latency_ms": {"p50": 1.5}}
LAUNCH = LaunchTime(f"000_{SECRET}", "gemm_cdna", "64x64x64_w22", 10.0, 9.0, 1.0, 2.0, 3.0, 0.3, 0.1, SECRET, (SECRET,))
PROFILE = Profile(SECRET, "AMD Instinct", "gfx90a", 1500.0, 10.0, 3.0, 0.0, 0.0, (LAUNCH,), ((0, 0.0, 10.0),))


def test_nothing_of_the_model_gets_in() -> None:
    text = json.dumps(field_report([model_report(REPORT, ANSWER, PROFILE)]))
    assert SECRET not in text and "/home" not in text


def test_what_matters_is_there() -> None:
    model = model_report(REPORT, ANSWER, PROFILE)
    assert model["verification"]["outputs"] == [{"dtype": "f16", "elements": 21, "ok": True, "max_rel": "nan"}]
    assert model["launches"][0]["config"] == "64x64x64_w22" and model["device"].startswith("AMD Instinct MI250X")
    content = field_report([model])
    assert {"aitc", "system", "toolchain", "drivers", "devices", "models"} <= set(content)
    assert "c++" in content["toolchain"]


def test_emulated_times_say_so() -> None:
    model = model_report(REPORT, {**ANSWER, "device": "aitc emulator (emulated)"}, PROFILE)
    assert model["emulated"] and "times mean nothing" in line(model)


def test_a_model_without_verification_has_a_line() -> None:
    report = {**REPORT, "verification": {"status": "not run", "reason": "no device"}}
    assert "verification not run; p50 1.5000 ms, 1 launches" in line(model_report(report, ANSWER, PROFILE))
