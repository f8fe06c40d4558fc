"""``aitc bench --report``: what somebody with another machine can send: versions, device, correctness, times. Nothing of the models.

Models are named by the digest of their file alone. No name of a node, an input, a file, a user or a machine is in it, no weight
and no shape but those in the names of configurations; ``fields`` of each part are listed here, and nothing else gets in.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from typing import Any

from aitc import __version__
from aitc.build.toolchain import found_tools
from aitc.profile import Profile
from aitc.targets.machine import devices, drivers

FORMAT = 1
_VERIFICATION = ("status", "oracle", "runs", "roundoff", "depth")
_OUTPUT = ("dtype", "elements", "ok", "max_abs", "max_rel", "rms_rel", "max_ulp", "cosine", "allowed", "wrong")


def field_report(models: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The file's content; ``models`` from ``model_report``."""
    return {
        "format": FORMAT,
        "aitc": __version__,
        "system": {"os": platform.system(), "machine": platform.machine(), "python": platform.python_version()},
        "toolchain": {name: tool.version for name, tool, _ in found_tools() if tool is not None},
        "drivers": drivers(),
        "devices": [{"api": d.api, "name": d.name, "arch": d.arch, "target": d.target} for d in devices()],
        "models": list(models),
    }


def model_report(report: Mapping[str, Any], answer: Mapping[str, Any], profile: Profile) -> dict[str, Any]:
    """One model: its report by the compile, what its binary answered, and the profile."""
    verification = report["verification"]
    return {
        "model": report["digests"]["model"],
        "aitc": report["aitc"],
        "targets": report["targets"],
        "precision": report["precision"],
        "device": answer["device"],
        "emulated": answer["device"].startswith("aitc emulator"),  # then the times mean nothing
        "verification": {
            **{k: verification[k] for k in _VERIFICATION if k in verification},
            "outputs": [{k: o[k] for k in _OUTPUT if k in o} for o in verification.get("outputs", ())],
        },
        "iterations": answer["iterations"],
        "latency_ms": dict(answer["latency_ms"]),
        "floor_us": profile.floor_us,
        "launches": [
            {
                "kernel": n.kernel, "config": n.config, "us": n.us, "min_us": n.min_us, "floor_us": n.floor_us, "tflops": n.tflops, "gbps": n.gbps,
            }
            for n in profile.launches
        ],
    }  # fmt: skip


def line(model: Mapping[str, Any]) -> str:
    """A model of the report in a line."""
    outputs = model["verification"]["outputs"]
    worst = f", max rel {max(float(o['max_rel']) for o in outputs):.2e}" if outputs else ""
    return (
        f"{model['model'][:12]} {','.join(model['targets'])} {model['precision']}: verification "
        f"{model['verification']['status']}{worst}; p50 {model['latency_ms']['p50']:.4f} ms, {len(model['launches'])} launches"
        + (" (emulated: the times mean nothing)" if model["emulated"] else "")
    )
