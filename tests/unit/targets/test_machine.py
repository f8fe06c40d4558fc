from __future__ import annotations

from pathlib import Path

import pytest

from aitc.targets import machine
from aitc.targets.machine import Device, can_run, default_target
from aitc.targets.target import find_target


def with_devices(monkeypatch: pytest.MonkeyPatch, *devices: Device) -> None:
    monkeypatch.setattr(machine, "devices", lambda: devices)


H200 = Device("cuda", 0, "NVIDIA H200", "90", "sm90")
ORIN = Device("cuda", 0, "Orin", "87", "sm86")
UNKNOWN = Device("cuda", 0, "a GPU of tomorrow", "130", "")


def test_no_gpu_means_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    with_devices(monkeypatch)
    assert default_target() == "cpu"
    assert can_run([find_target("cpu")]) and not can_run([find_target("h200")])


def test_the_gpu_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    with_devices(monkeypatch, H200)
    assert default_target() == "sm90"
    assert can_run([find_target("h200")]) and can_run([find_target("mi250"), find_target("h100")])
    assert not can_run([find_target("mi250")])


def test_newer_devices_run_older_portable_code_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    with_devices(monkeypatch, H200)
    assert can_run([find_target("a100")])
    with_devices(monkeypatch, UNKNOWN)
    assert can_run([find_target("a100")]) and not can_run([find_target("h200")])
    assert default_target() == "cpu"
    with_devices(monkeypatch, ORIN)
    assert not can_run([find_target("h200")]) and not can_run([find_target("l4")])


@pytest.mark.parametrize(
    ("api", "arch", "want"),
    [
        ("cuda", "90", "sm90"),
        ("cuda", "80", "sm80"),
        ("cuda", "121", "sm120"),
        ("cuda", "89", "sm89"),
        ("cuda", "100", "sm100"),
        ("cuda", "103", ""),
        ("cuda", "61", ""),
        ("hip", "gfx90a", "gfx90a"),
        ("hip", "gfx1100", ""),
    ],
)
def test_target_of_an_architecture(api: str, arch: str, want: str) -> None:
    assert machine._target_for(api, arch) == want


def test_asking_the_drivers_never_fails() -> None:
    machine.devices.cache_clear()
    assert isinstance(machine.devices(), tuple)


CPUINFO = """processor\t: 0
vendor_id\t: GenuineIntel
model\t\t: {model}
flags\t\t: fpu {flags}

processor\t: 1
flags\t\t: fpu
"""
AVX2 = "avx2 fma f16c bmi1 bmi2"


@pytest.mark.parametrize(
    ("flags", "isa"),
    [
        (AVX2, "avx2"),
        (AVX2.replace("f16c ", ""), "native"),
        (f"{AVX2} avx512f avx512bw avx512dq", "avx2"),
        (f"{AVX2} avx512f avx512bw avx512vl avx512dq", "avx512"),
        ("", "native"),
    ],
)
def test_the_widest_set_that_a_processor_runs(flags: str, isa: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpuinfo").write_text(CPUINFO.format(model=1, flags=flags))
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    assert machine.cpu_isa() == isa
    first = machine.processor()
    (tmp_path / "cpuinfo").write_text(CPUINFO.format(model=2, flags=flags))
    assert machine.processor() != first
    (tmp_path / "cpuinfo").unlink()
    assert machine.cpu_isa() == "native" and machine.processor() == ""
