"""Builds problems with nvcc and runs them on a CUDA device, through the driver interface; memory is torch's."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from .problem import MAP_TYPES, RIM, Map, Problem, Scalar, Verdict, initial_bytes, judge, map_bytes

INCLUDE = Path(__file__).resolve().parents[3] / "codegen_templates" / "include"
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


def build(problem: Problem, folder: Path, arch: str = "90") -> Path:
    """Compiles the problem's source to a cubin; raises RuntimeError with the compiler's words."""
    folder.mkdir(parents=True, exist_ok=True)
    arch = problem.arch or arch
    cubin = folder / f"{problem.digest}_{arch}.cubin"
    if cubin.exists():
        return cubin
    source = folder / f"{problem.digest}.cu"
    source.write_text(problem.source)
    part = cubin.with_suffix(f".{os.getpid()}")
    command = [
        "nvcc",
        "-cubin",
        f"-gencode=arch=compute_{arch},code=sm_{arch}",
        "-std=c++17",
        "-Xptxas=-v",
        f"-I{INCLUDE}",
        str(source),
        "-o",
        str(part),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{problem.name}: {done.stderr[:3000]}")
    cubin.with_suffix(".log").write_text(done.stderr)
    part.replace(cubin)
    return cubin


def spills(cubin: Path) -> bool:
    """Whether the compiler reported registers spilled to memory."""
    log = cubin.with_suffix(".log").read_text()
    return "bytes spill" in log and "0 bytes spill stores" not in log


class _LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "smem_bytes")),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p), ("count", ctypes.c_uint32),
    )  # fmt: skip


class Kernel:
    """A loaded entry point."""

    def __init__(self, problem: Problem, cubin: Path) -> None:
        self.problem = problem
        self.cuda = ctypes.CDLL("libcuda.so.1")
        module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        self._check(self.cuda.cuModuleLoadData(ctypes.byref(module), cubin.read_bytes()), "cuModuleLoadData")
        self._check(
            self.cuda.cuModuleGetFunction(ctypes.byref(self.function), module, problem.entry.encode()),
            "cuModuleGetFunction",
        )
        if problem.smem_bytes > 48 * 1024:
            self._check(
                self.cuda.cuFuncSetAttribute(self.function, _MAX_DYNAMIC_SHARED, problem.smem_bytes),
                "cuFuncSetAttribute",
            )

    @staticmethod
    def _check(code: int, what: str) -> None:
        if code:
            raise RuntimeError(f"{what}: CUDA error {code}")

    def arguments(self, pointers: list[int]) -> tuple[ctypes.Array[Any], list[Any]]:
        """The parameter array for the given buffers, and what must outlive it."""
        holders: list[Any] = []
        left = iter(pointers)
        for argument in self.problem.arguments:
            if isinstance(argument, Map):
                holders.append(self._tensor_map(argument, pointers[argument.of]))
            elif isinstance(argument, Scalar):
                holders.append((ctypes.c_int64 if argument.dtype == "i64" else ctypes.c_int32)(argument.value))
            else:
                holders.append(ctypes.c_void_p(next(left)))
        return (ctypes.c_void_p * len(holders))(*[ctypes.addressof(h) for h in holders]), holders

    def _tensor_map(self, m: Map, pointer: int) -> ctypes.Array[Any]:
        room = (ctypes.c_uint64 * 32)()  # the map lies on 64 bytes
        skip = -ctypes.addressof(room) % 64
        out = (ctypes.c_uint64 * 16).from_buffer(room, skip)
        rank, kind = len(m.sizes), MAP_TYPES[m.dtype]
        base = ctypes.c_void_p(pointer + m.offset * map_bytes(m))
        sizes, strides = (ctypes.c_uint64 * rank)(*m.sizes), (ctypes.c_uint64 * (rank - 1))(*m.strides)
        steps = (ctypes.c_uint32 * rank)(*(m.steps or (1,) * rank))
        swizzle = {0: 0, 32: 1, 64: 2, 128: 3}[m.swizzle]
        if m.im2col is None:
            box = (ctypes.c_uint32 * rank)(*m.box)
            self._check(
                self.cuda.cuTensorMapEncodeTiled(out, kind, rank, base, sizes, strides, box, steps, 0, swizzle, 3, 0),
                "cuTensorMapEncodeTiled",
            )
            return out
        lower, upper, channels, pixels = m.im2col
        corners = [(ctypes.c_int * (rank - 2))(*c) for c in (lower, upper)]
        code = self.cuda.cuTensorMapEncodeIm2col(
            out, kind, rank, base, sizes, strides, *corners, channels, pixels, steps, 0, swizzle, 3, 0
        )
        self._check(code, "cuTensorMapEncodeIm2col")
        if m.sizes[-1] * m.strides[-1] < 131072:  # drivers up to CUDA 13.1 set a bit that is wrong for small tensors
            out[1] &= ~(1 << 21)
        return out

    def launch(self, arguments: ctypes.Array[Any], stream: int) -> None:
        """Enqueues one launch."""
        p = self.problem
        if p.cluster > 1:
            attribute = (ctypes.c_uint32 * 18)(4, 0, p.cluster, 1, 1)  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            config = _LaunchConfig(
                p.blocks, p.grid_y, 1, p.threads, 1, 1, p.smem_bytes, stream, ctypes.addressof(attribute), 1
            )
            self._check(
                self.cuda.cuLaunchKernelEx(ctypes.byref(config), self.function, arguments, None),
                f"{p.name}: cuLaunchKernelEx",
            )
            return
        code = self.cuda.cuLaunchKernel(
            self.function,
            p.blocks,
            p.grid_y,
            1,
            p.threads,
            1,
            1,
            p.smem_bytes,
            ctypes.c_void_p(stream),
            arguments,
            None,
        )
        self._check(code, f"{p.name}: cuLaunchKernel")


def name() -> str:
    """The device's name, as torch says it."""
    import torch

    return str(torch.cuda.get_device_name())


def run(problem: Problem, cubin: Path) -> Verdict:
    """Launches and judges one problem."""
    import torch

    buffers = [torch.from_numpy(initial_bytes(a)).cuda() for a in problem.arguments if not isinstance(a, Scalar)]
    kernel = Kernel(problem, cubin)
    arguments, _keep = kernel.arguments([b.data_ptr() + RIM for b in buffers])
    kernel.launch(arguments, torch.cuda.current_stream().cuda_stream)
    torch.cuda.synchronize()
    after: list[np.ndarray] = [b.cpu().numpy() for b in buffers]
    return judge(problem, after)
