"""Figures of compiled kernels: read from code objects and from ptxas, and what follows from them for a machine."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from aitc.build.resources import Resources, from_image, from_ptxas
from aitc.targets.target import find_target

PTXAS = """
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'gemm_4' for 'sm_90a'
ptxas info    : Function properties for gemm_4
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 9 barriers
ptxas info    : Compile time = 3.155 ms
ptxas info    : Compiling entry function 'gemm_5' for 'sm_80'
ptxas info    : Function properties for gemm_5
    32 bytes stack frame, 28 bytes spill stores, 36 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 32 bytes cumulative stack size, 1024 bytes smem, 400 bytes cmem[0]
"""


def test_what_ptxas_says() -> None:
    assert from_ptxas(PTXAS) == [
        Resources("gemm_4", "sm_90a", 168),
        Resources("gemm_5", "sm_80", 255, smem_bytes=1024, spills=36, stack_bytes=32),
    ]
    assert from_ptxas("[1/2] g++ -c model.cpp") == []


def packed(x: Any) -> bytes:
    """MessagePack, in its longest forms and its shortest by turns."""
    if isinstance(x, dict):
        return struct.pack(">BH", 0xDE, len(x)) + b"".join(packed(k) + packed(v) for k, v in x.items())
    if isinstance(x, list):
        return bytes([0x90 | len(x)]) + b"".join(map(packed, x))
    if isinstance(x, str):
        return bytes([0xA0 | len(x)]) + x.encode() if len(x) < 32 else struct.pack(">BB", 0xD9, len(x)) + x.encode()
    if isinstance(x, bool):
        return b"\xc3" if x else b"\xc2"
    return bytes([x]) if x < 128 else struct.pack(">BH", 0xCD, x) if x < 65536 else struct.pack(">BI", 0xCE, x)


def code_object(arch: str, **kernel: Any) -> bytes:
    """An ELF file with an AMDGPU metadata note and another note before it."""
    facts = {"amdhsa.target": f"amdgcn-amd-amdhsa--{arch}", "amdhsa.kernels": [{f".{k}": v for k, v in kernel.items()}]}
    described = packed(facts)
    notes = struct.pack("<III", 4, 3, 3) + b"GNU\0" + b"abc\0"
    notes += struct.pack("<III", 7, len(described), 32) + b"AMDGPU\0\0" + described + b"\0" * (-len(described) % 4)
    header = b"\x7fELF\x02\x01" + bytes(34) + struct.pack("<Q", 64 + len(notes)) + bytes(10) + struct.pack("<HHH", 64, 2, 0)
    header = header[:40] + struct.pack("<Q", 64 + len(notes)) + bytes(10) + struct.pack("<HHH", 64, 2, 0)
    sections = bytes(64) + struct.pack("<IIQQQQ", 1, 7, 0, 0, 64, len(notes)) + bytes(24)
    return header + notes + sections


FACTS = {
    "vgpr_count": 220, "agpr_count": 64, "sgpr_count": 62, "group_segment_fixed_size": 0, "vgpr_spill_count": 3, "sgpr_spill_count": 1,
    "private_segment_fixed_size": 131072, "max_flat_workgroup_size": 256, "uses_dynamic_stack": False,
}  # fmt: skip


def test_code_objects_and_bundles() -> None:
    expected = [Resources("conv_1", a, 220, 64, 62, 0, 3, 1, 131072, 256) for a in ("gfx90a", "gfx942")]
    objects = [code_object(a, name="conv_1", **FACTS) for a in ("gfx90a", "gfx942")]
    assert [from_image(o) for o in objects] == [[e] for e in expected]
    names = ["host-x86_64-unknown-linux", *(f"hipv4-amdgcn-amd-amdhsa--{e.arch}" for e in expected)]
    head = 32 + sum(24 + len(n) for n in names)
    bundle = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", 3)
    place = head
    for name, part in zip(names, [b"", *objects]):
        bundle += struct.pack("<QQQ", place, len(part), len(name)) + name.encode()
        place += len(part)
    assert from_image(bundle + b"".join(objects)) == expected
    assert from_image(b"\x7fELF\x02\x01" + bytes(80)) == []  # no notes: the emulator's


@pytest.mark.parametrize(
    ("target", "threads", "registers", "smem", "blocks"),
    [
        ("h200", 384, 168, 213000, 1),  # 168 x 384 = 64512 registers of 65536
        ("h200", 128, 64, 0, 8),  # 8 warps of each SIMD's 16384 registers
        ("h200", 1024, 64, 0, 1),
        ("h200", 32, 24, 1000, 32),
        ("h200", 1024, 80, 0, 0),
        ("l4", 256, 32, 51200, 1),  # 1 KiB of shared memory goes to the system
        ("mi250", 256, 220, 0, 2),  # 512 registers a lane on each SIMD
        ("mi250", 256, 128, 40960, 1),
        ("mi300x", 64, 32, 512, 32),
        ("mi300x", 256, 129, 0, 3),
        ("mi300x", 512, 64, 32768, 2),
    ],
)
def test_resident_blocks(target: str, threads: int, registers: int, smem: int, blocks: int) -> None:
    assert find_target(target).resident_blocks(threads, registers, smem) == blocks
