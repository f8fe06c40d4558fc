"""The GPUs of this machine, asked of the drivers through ctypes, without any toolkit."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from aitc.targets.isa import X86, needs
from aitc.targets.target import Target, all_targets

CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU: ``index`` as the driver counts, ``target`` the name of the target that fits it ("" if none does)."""

    api: str  # cuda, hip
    index: int
    name: str
    arch: str  # "90" or "gfx90a"
    target: str


@lru_cache(maxsize=1)
def devices() -> tuple[Device, ...]:
    """Every GPU that a driver of this machine reports, CUDA's first. Never raises: no driver means no device."""
    return tuple(_cuda_devices() + _hip_devices())


def default_target() -> str:
    """The name of the target of the first GPU that has one, else cpu."""
    return next((d.target for d in devices() if d.target), "cpu")


def cpu_isa() -> str:
    """The instruction set that a library with all of them takes on this processor: avx512, avx2 or native."""
    flags = set(_cpuinfo().get("flags", "").split())
    return next((isa for isa in reversed(X86) if needs(isa) <= flags), "native")


def processor() -> str:
    """What ``-march=native`` and ``-mcpu=native`` depend on, beside the compiler: equal texts, equal code."""
    said = _cpuinfo()
    words = ("vendor_id", "cpu family", "model", "stepping", "flags", "CPU implementer", "CPU architecture", "CPU part", "Features")
    return "\n".join(f"{word}: {said[word]}" for word in words if word in said)


def _cpuinfo() -> dict[str, str]:
    """What /proc/cpuinfo says of the first processor; empty where there is no such file."""
    try:
        text = CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.strip().partition("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def can_run(targets: Sequence[Target]) -> bool:
    """Whether a binary for ``targets`` runs on this machine: always for cpu, else if a device of theirs is present."""
    names = {t.name for t in targets}
    return any(t.api == "cpu" for t in targets) or any(d.target in names or _newer(d, targets) for d in devices())


def _newer(device: Device, targets: Sequence[Target]) -> bool:
    """A CUDA binary holds PTX of its oldest portable target, which newer devices compile at load."""
    if device.api != "cuda":
        return False
    portable = [int(t.arch) for t in targets if t.api == "cuda" and t.arch.isdigit()]
    return bool(portable) and int(device.arch) >= min(portable)


def _target_for(api: str, arch: str) -> str:
    """The target of that architecture; for CUDA a newer minor version runs what the nearest older one of its
    generation does."""
    best = ""
    best_arch = -1
    for t in all_targets():
        if t.api != api:
            continue
        digits = t.arch.rstrip("af")
        if api == "hip":
            if t.arch == arch:
                return t.name
        elif digits == arch:
            return t.name
        elif t.arch.isdigit() and best_arch < int(digits) <= int(arch) and int(digits) // 10 == int(arch) // 10:
            best, best_arch = t.name, int(digits)
    return best


def drivers() -> dict[str, str]:
    """Versions of what runs GPU code here, as far as they can be had without running anything: drivers, ROCm."""
    found: dict[str, str] = {}
    try:
        version = ctypes.c_int()
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version)) == 0:
            found["cuda"] = f"{version.value // 1000}.{version.value % 1000 // 10}"
    except (OSError, AttributeError):
        pass
    for name, file, pattern in (
        ("nvidia", "/proc/driver/nvidia/version", r"\b(\d+\.\d+(?:\.\d+)?)\b"),
        ("amdgpu", "/sys/module/amdgpu/version", r"(\S+)"),
        ("rocm", "/opt/rocm/.info/version", r"(\S+)"),
    ):
        try:
            match = re.search(pattern, Path(file).read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue
        if match:
            found[name] = match.group(1)
    return found


def _cuda_devices() -> list[Device]:
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int()
        if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
            return []
        found = []
        for i in range(count.value):
            device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
            name = ctypes.create_string_buffer(128)
            if cuda.cuDeviceGet(ctypes.byref(device), i):
                continue
            cuda.cuDeviceGetName(name, 128, device)
            cuda.cuDeviceGetAttribute(ctypes.byref(major), 75, device)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
            cuda.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)
            arch = f"{major.value}{minor.value}"
            found.append(Device("cuda", i, name.value.decode(errors="replace"), arch, _target_for("cuda", arch)))
        return found
    except (OSError, AttributeError):
        return []


def _hip_devices() -> list[Device]:
    # The kernel driver's own list: loading the HIP library costs a second, and its structs differ between versions.
    found: list[Device] = []
    for node in sorted(
        Path("/sys/class/kfd/kfd/topology/nodes").glob("*/properties"), key=lambda p: int(p.parent.name)
    ):
        try:
            properties = dict(line.split(None, 1) for line in node.read_text().splitlines() if " " in line)
            version = int(properties.get("gfx_target_version", "0"))
        except (OSError, ValueError):
            continue
        if version:
            arch = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
            found.append(Device("hip", len(found), arch, arch, _target_for("hip", arch)))
    return found
