"""aitc compiles ONNX models to self-contained binaries for CPUs, CUDA and HIP GPUs."""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"
__all__ = ["load"]


def __getattr__(name: str) -> Any:
    """Lazily: ``aitc.load``, so that the command line starts without numpy and ctypes."""
    if name == "load":
        from aitc.runtime import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
