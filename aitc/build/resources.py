"""What compiled GPU kernels use of a machine: registers, shared memory, spills.

AMD's figures are read from the code objects (the metadata note of https://llvm.org/docs/AMDGPUUsage.html#code-object-v4-metadata, MessagePack in an ELF
file, several of them in a bundle); NVIDIA's from what ptxas says under ``-v``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from aitc.schedule.plan.plan import KernelSource, Plan
from aitc.targets.target import Target, find_target

_NOTE_METADATA = 32  # NT_AMDGPU_METADATA
_SECTION_NOTE = 7  # SHT_NOTE


@dataclass(frozen=True, slots=True)
class Resources:
    """A kernel's figures on one architecture, as its compiler counts them: registers of a lane, bytes of a block or of a lane."""

    entry: str
    arch: str  # gfx90a, sm_90a
    registers: int  # 32-bit, of a lane; AMD: vector registers of both kinds, as they share one file
    accumulation_registers: int = 0  # AMD: AGPRs, part of ``registers``
    scalar_registers: int = 0  # AMD: SGPRs, of a wave
    smem_bytes: int = 0  # static; what the launch asks for comes on top
    spills: int = 0  # vector registers (AMD) or bytes (NVIDIA) that went to memory
    scalar_spills: int = 0  # AMD: scalar registers that went into lanes of vector registers
    stack_bytes: int = 0  # private memory of a lane
    threads: int = 0  # of a block at most, 0: not said


@dataclass(frozen=True, slots=True)
class Usage:
    """A GPU kernel's figures and what they mean for its launches: blocks on a multiprocessor, warps on a SIMD of it."""

    kernel: KernelSource
    resources: Resources
    target: Target
    smem_bytes: int  # static and dynamic
    blocks: int
    warps: float

    @property
    def claimed(self) -> int:
        """Blocks that the configuration counts on; 0: it counts on none."""
        return int(getattr(self.kernel.context, "min_blocks", 0))


def usage(plan: Plan, resources: Sequence[Resources]) -> list[Usage]:
    """What each kernel of the plan uses on each architecture that it was compiled for."""
    kernels = {k.entry: k for k in plan.kernels}
    targets = [find_target(name) for name in plan.targets]
    result = []
    for r in resources:
        target = next((t for t in targets if t.arch == r.arch.removeprefix("sm_")), targets[0])
        mine = [launch for launch in plan.launches if launch.entry == r.entry]
        threads = max((prod(launch.block) for launch in mine), default=r.threads)
        smem = r.smem_bytes + max((launch.smem_bytes for launch in mine), default=0)
        blocks = target.resident_blocks(threads, r.registers, smem)
        warps = blocks * -(-threads // target.warp) / target.unit.simds
        result.append(Usage(kernels[r.entry], r, target, smem, blocks, warps))
    return result


def resources_json(u: Usage) -> dict[str, Any]:
    """One entry of ``resources``; ``claimed_blocks`` only where the configuration claims some."""
    r = u.resources
    amd = {"accumulation_registers": r.accumulation_registers, "scalar_registers": r.scalar_registers, "scalar_spills": r.scalar_spills}
    return {
        "entry": r.entry,
        "kernel": u.kernel.kernel,
        "config": u.kernel.config,
        "arch": r.arch,
        "registers": r.registers,
        **(amd if u.target.api == "hip" else {}),
        "smem_bytes": u.smem_bytes,
        "spills": r.spills,
        "stack_bytes": r.stack_bytes,
        "blocks": u.blocks,
        "warps_per_simd": round(u.warps, 2),
        **({"claimed_blocks": u.claimed} if u.claimed else {}),
    }


def from_image(image: bytes) -> list[Resources]:
    """The kernels in a HIP code object or a bundle of them."""
    return [kernel for elf in _code_objects(image) for kernel in _kernels(elf)]


def from_ptxas(log: str) -> list[Resources]:
    """The kernels that ``ptxas -v`` speaks of in a compiler's output."""
    found: list[Resources] = []
    entry = arch = ""
    stack = spills = 0
    for line in log.splitlines():
        if match := re.search(r"Compiling entry function '(\w+)' for '(\w+)'", line):
            entry, arch = match.groups()
        elif match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            stack, spills = int(match[1]), max(int(match[2]), int(match[3]))
        elif entry and (match := re.search(r"Used (\d+) registers", line)):
            smem = re.search(r"(\d+) bytes smem", line)
            found.append(
                Resources(entry, arch, int(match[1]), smem_bytes=int(smem[1]) if smem else 0, spills=spills, stack_bytes=stack)
            )
            entry = ""
    return found


def _code_objects(image: bytes) -> Iterator[bytes]:
    """The ELF files of a bundle (https://clang.llvm.org/docs/ClangOffloadBundler.html), but for the host's empty one."""
    magic = b"__CLANG_OFFLOAD_BUNDLE__"
    if not image.startswith(magic):
        yield image
        return
    (count,) = struct.unpack_from("<Q", image, len(magic))
    at = len(magic) + 8
    for _ in range(count):
        offset, size, length = struct.unpack_from("<QQQ", image, at)
        at += 24 + length
        if size:
            yield image[offset : offset + size]


def _notes(elf: bytes) -> Iterator[tuple[int, bytes]]:
    """(type, description) of each note of a 64-bit little-endian ELF file."""
    if elf[:6] != b"\x7fELF\x02\x01":
        return
    (sections,) = struct.unpack_from("<Q", elf, 40)
    size, count = struct.unpack_from("<HH", elf, 58)
    for i in range(count):
        _, kind, _, _, offset, length = struct.unpack_from("<IIQQQQ", elf, sections + i * size)
        at = offset
        while kind == _SECTION_NOTE and at < offset + length:
            name, described, note = struct.unpack_from("<III", elf, at)
            at += 12 + (name + 3) // 4 * 4
            yield note, elf[at : at + described]
            at += (described + 3) // 4 * 4


def _kernels(elf: bytes) -> Iterator[Resources]:
    for note, data in _notes(elf):
        if note != _NOTE_METADATA:
            continue
        metadata, _ = _unpack(data, 0)
        arch = str(metadata.get("amdhsa.target", "")).rpartition("--")[2]
        for k in metadata.get("amdhsa.kernels", ()):
            yield Resources(
                k[".name"],
                arch,
                k[".vgpr_count"],
                k.get(".agpr_count", 0),
                k[".sgpr_count"],
                k[".group_segment_fixed_size"],
                k.get(".vgpr_spill_count", 0),
                k.get(".sgpr_spill_count", 0),
                k[".private_segment_fixed_size"],
                k[".max_flat_workgroup_size"],
            )


def _unpack(data: bytes, at: int) -> tuple[Any, int]:
    """The MessagePack value at ``at`` and where it ends; the types that metadata has (https://msgpack.org)."""
    tag = data[at]
    at += 1
    if tag <= 0x7F:
        return tag, at
    if tag >= 0xE0:
        return tag - 256, at
    if tag in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[tag], at
    if tag in (0xCC, 0xCD, 0xCE, 0xCF, 0xD0, 0xD1, 0xD2, 0xD3):
        form = ">" + "BHIQbhiq"[tag - 0xCC]
        return struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)
    lengths = {0xD9: "B", 0xDA: "H", 0xDB: "I", 0xDC: "H", 0xDD: "I", 0xDE: "H", 0xDF: "I"}
    if tag in lengths:
        (count,) = struct.unpack_from(">" + lengths[tag], data, at)
        at += struct.calcsize(">" + lengths[tag])
    elif 0xA0 <= tag <= 0xBF:
        count, tag = tag & 31, 0xD9
    elif 0x90 <= tag <= 0x9F:
        count, tag = tag & 15, 0xDC
    elif 0x80 <= tag <= 0x8F:
        count, tag = tag & 15, 0xDE
    else:
        raise ValueError(f"MessagePack type {tag:#x} in a code object's metadata")
    if tag <= 0xDB:
        return data[at : at + count].decode(), at + count
    values = []
    for _ in range(count * (2 if tag >= 0xDE else 1)):
        value, at = _unpack(data, at)
        values.append(value)
    return (dict(zip(values[::2], values[1::2])) if tag >= 0xDE else values), at
