"""Runs a plan's launches on the emulator one by one, without host code: every buffer is memory of its own, so that launches can be judged alone.

The kernels' texts are compiled together, a dozen in a source, each in a namespace: most of a compiler's time goes into headers that all share.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import emulator
import numpy as np

from aitc.emit.project import emit
from aitc.ir.dtype import ALL
from aitc.schedule.plan.plan import DimArg, Launch, Plan, PointerArg, Space, TensorMapArg

BYTES = {d.c: d.bytes for d in ALL}
MAP_TYPES = {"f16": 6, "f32": 7, "bf16": 9}
TOGETHER = 12  # kernels of a source


def _constant(d: object) -> int:
    assert isinstance(d, int), f"{d}: plans of fixed sizes only"
    return d


def _joined(texts: Sequence[tuple[str, str]]) -> str:
    """(entry, text) of kernels with the same directives, as one text; each in a namespace named after its entry."""
    head = "".join(line + "\n" for line in texts[0][1].splitlines() if line.startswith("#"))
    parts = []
    for entry, text in texts:
        body = "".join(line + "\n" for line in text.splitlines() if not line.startswith(("#", "using namespace")))
        parts.append(f"namespace in_{entry} {{\nusing namespace aitc;\n{body}}}\nusing in_{entry}::{entry};\n")
    return head + "".join(parts)


def sources(plan: Plan, entries: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(text, entries in it) of the kernels that are named."""
    files = {path.rsplit("/", 1)[1].rsplit(".", 1)[0]: text for path, text in emit(plan).items() if path.startswith("kernels/")}
    alike: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for kernel in plan.kernels:
        if kernel.entry in entries:
            text = files[kernel.entry]
            alike[kernel.kernel, "\n".join(re.findall(r"^#.*$", text, re.M))].append((kernel.entry, text))
    for texts in alike.values():
        for first in range(0, len(texts), TOGETHER):
            part = texts[first : first + TOGETHER]
            yield _joined(part), tuple(entry for entry, _ in part)


class Run:
    """A plan's memory, with its inputs and weights in place and NaN elsewhere, and the texts of its kernels ``entries``."""

    def __init__(self, plan: Plan, entries: Sequence[str], inputs: Mapping[str, np.ndarray]) -> None:
        self.memory: dict[str, np.ndarray] = {}
        for b in plan.buffers:
            size = _constant(b.bytes)
            zeroed = b.space is Space.STATE
            self.memory[b.name] = emulator.guarded(np.zeros(size, np.uint8)) if zeroed else emulator.poisoned(size, np.uint8)
        for p in plan.inputs:
            self.memory[p.buffer][:] = np.ascontiguousarray(inputs[p.name]).view(np.uint8).reshape(-1)
        for w in plan.weights:
            self.memory[w.name] = emulator.guarded(np.ascontiguousarray(w.data).view(np.uint8).reshape(-1))
        self.sources = {name: (text, names) for text, names in sources(plan, entries) for name in names}
        self.target = plan.targets[0]

    def launch(self, launch: Launch) -> None:
        """Runs one launch; EmulatorError where it does what it may not."""
        kernels = self.kernels_of(launch.entry)
        arguments = [self._argument(kernels, a) for a in launch.args]
        grid = [_constant(d) for d in launch.grid]
        kernels.launch(launch.entry, grid, launch.block, launch.smem_bytes, *arguments, cluster=launch.cluster)

    def kernels_of(self, entry: str) -> emulator.Kernels:
        """The library that a kernel is in, compiled if it is not yet."""
        text, names = self.sources[entry]
        return emulator.build(text, self.target, entries=names)

    @staticmethod
    def written(launch: Launch) -> list[str]:
        """The buffers that a launch writes, its scratch (which no other launch uses) included."""
        return [a.buffer for a in launch.args if not isinstance(a, DimArg) and not a.const]

    @staticmethod
    def read(launch: Launch) -> list[str]:
        """The buffers that a launch reads."""
        return [a.buffer for a in launch.args if not isinstance(a, DimArg) and a.const]

    def _argument(self, kernels: emulator.Kernels, a: PointerArg | DimArg | TensorMapArg) -> np.ndarray | np.generic | bytes:
        if isinstance(a, DimArg):
            return (np.int64 if a.c_type == "int64_t" else np.int32)(_constant(a.value))
        raw = self.memory[a.buffer]
        if isinstance(a, PointerArg):
            return raw[_constant(a.offset) * BYTES[a.c_type] :]
        size = a.dtype.bytes
        raw = raw[_constant(a.offset) * size :]
        kind = 11 if a.tf32 else MAP_TYPES.get(a.dtype.name, 0)
        sizes, strides = [_constant(d) for d in a.sizes], [_constant(d) for d in a.strides]
        if a.im2col is None:
            return kernels.tensor_map(raw, a.box, swizzle=a.swizzle, size=sizes, pitch=strides, step=a.element_strides, type_=kind)
        view = np.lib.stride_tricks.as_strided(raw.view({1: np.uint8, 2: np.float16, 4: np.float32}[size]), sizes[::-1], (*strides[::-1], size))
        return kernels.im2col_map(view, *a.im2col, a.element_strides, swizzle=a.swizzle, type_=kind)
