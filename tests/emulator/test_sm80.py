"""sm_80's instructions against the layouts in the PTX manual (sections mma.m16n8k16, mma.m16n8k8, ldmatrix, stmatrix, cp.async)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import emulator
from emulator import EmulatorError, Kernels, guarded, poisoned

Array = NDArray[Any]


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    return emulator.build(Path(__file__).parent / "kernels" / "sm80.cpp", "sm80")


def test_ldmatrix(kernels: Kernels) -> None:
    x = guarded(np.arange(256, dtype=np.uint16) * 257)
    out = poisoned((3, 32, 4), np.uint32)
    kernels.launch("load_matrices", 1, 32, 512, x, out)
    m = x.reshape(4, 8, 8).astype(np.uint32)
    pair = lambda lo, hi: int(lo) | int(hi) << 16  # noqa: E731
    for lane in range(32):
        row, col = lane // 4, lane % 4 * 2
        for i in range(4):
            assert out[0, lane, i] == pair(m[i, row, col], m[i, row, col + 1])
            assert out[1, lane, i] == pair(m[i, col, row], m[i, col + 1, row])
        for i in range(2):
            assert out[2, lane, i] == pair(m[i, row, col], m[i, row, col + 1])
        assert out[2, lane, 2] == pair(m[0, col, row], m[0, col + 1, row])


def test_stmatrix_undoes_ldmatrix(kernels: Kernels) -> None:
    x = guarded(np.random.default_rng(2).integers(0, 65536, 256).astype(np.uint16))
    loaded, stored = poisoned((3, 32, 4), np.uint32), poisoned(256, np.uint16)
    kernels.launch("load_matrices", 1, 32, 512, x, loaded)
    for form in (0, 1):
        kernels.launch("store_matrices", 1, 32, 512, guarded(loaded[form]), stored, form)
        assert (stored == x).all()


def fragments(a: Array, b: Array, per_register: int) -> tuple[Array, Array]:
    """The registers of A (16, K) and B (K, 8) as the manual lays them out, elements in the last axis."""
    ra = np.zeros((32, 4, per_register), a.dtype)
    rb = np.zeros((32, 2, per_register), b.dtype)
    half = 4 * per_register
    for lane in range(32):
        group, place = lane // 4, lane % 4
        for e in range(per_register):
            k = place * per_register + e
            for i in range(4):  # a0: (g, k), a1: (g + 8, k), a2: (g, k + half), a3: (g + 8, k + half)
                ra[lane, i, e] = a[group + 8 * (i % 2), k + half * (i // 2)]
            for i in range(2):
                rb[lane, i, e] = b[k + half * i, group]
    return ra, rb


def accumulators(c: Array) -> Array:
    """(16, 8) to (32, 4): c0, c1 = (g, 2t), (g, 2t + 1); c2, c3 eight rows below."""
    return np.array(
        [[c[lane // 4 + i // 2 * 8, lane % 4 * 2 + i % 2] for i in range(4)] for lane in range(32)], np.float32
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["f16", "bf16", "tf32"])
def test_mma(kernels: Kernels, kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    k = 8 if kind == "tf32" else 16
    a, b = rng.integers(-9, 10, (16, k)).astype(np.float32), rng.integers(-9, 10, (k, 8)).astype(np.float32)
    c = rng.integers(-99, 99, (16, 8)).astype(np.float32)
    if kind == "f16":
        ra, rb = fragments(a.astype(np.float16), b.astype(np.float16), 2)
    elif kind == "bf16":
        high = lambda x: (x.view(np.uint32) >> 16).astype(np.uint16)  # noqa: E731
        ra, rb = fragments(high(a), high(b), 2)
    else:
        ra, rb = fragments(a, b, 1)
    d = guarded(accumulators(c))
    kernels.launch(f"mma_{kind}", 1, 32, 0, guarded(ra), guarded(rb), d)
    assert (d == accumulators(a @ b + c)).all()


def test_mma_tf32_ignores_the_low_bits(kernels: Kernels) -> None:
    a, b = np.zeros((16, 8), np.float32), np.zeros((8, 8), np.float32)
    a[3, 2] = np.uint32(0x3F801FFF).view(np.float32)
    b[2, 5] = 1
    ra, rb = fragments(a, b, 1)
    d = guarded(accumulators(np.zeros((16, 8), np.float32)))
    kernels.launch("mma_tf32", 1, 32, 0, guarded(ra), guarded(rb), d)
    expected = np.zeros((16, 8), np.float32)
    expected[3, 5] = 1
    assert (d == accumulators(expected)).all()


def test_round_tf32(kernels: Kernels) -> None:
    bits = np.zeros(32, np.uint32)
    bits[:5] = (0x3F800FFF, 0x3F801000, 0x3F803000, 0xBF801000, 0x7F800000)
    x = guarded(bits)
    kernels.launch("round_tf32", 1, 32, 0, x)
    assert list(x[:5]) == [0x3F800000, 0x3F802000, 0x3F804000, 0xBF802000, 0x7F800000]


@pytest.mark.parametrize("pending", [0, 1, 2])
@pytest.mark.parametrize("order", ["forward", "reverse", "3"])
def test_cp_async_lands_at_the_wait(
    kernels: Kernels, pending: int, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AITC_EMULATOR_ORDER", order)
    x, out = guarded(np.arange(384, dtype=np.float32).reshape(3, 32, 4)), poisoned((3, 32, 4), np.float32)
    kernels.launch(f"copy_wait_{pending}", 1, 32, 1536, x, out)
    expected = x.copy()
    expected[1, 1::2] = 0
    landed = 3 - pending
    assert (out[:landed] == expected[:landed]).all()
    assert np.isnan(out[landed:]).all()


@pytest.mark.parametrize(
    ("name", "smem", "arguments", "match"),
    [
        ("load_in_flight", 512, (np.zeros(512, np.uint8), np.zeros(32, np.uint32)), "a copy in flight is writing"),
        ("copy_misaligned", 512, (np.zeros(64, np.uint8), 8, 0), "not aligned to 16"),
        ("copy_misaligned", 512, (np.zeros(64, np.uint8), 0, 8), "not aligned to 16"),
        ("copy_misaligned", 512, (np.zeros(64, np.uint8), 0, 512), "outside the 512 bytes"),
        ("load_outside", 512, (np.zeros(32, np.uint32),), "outside the 512 bytes"),
    ],
)
def test_detects(kernels: Kernels, name: str, smem: int, arguments: tuple[Array | int, ...], match: str) -> None:
    with pytest.raises(EmulatorError, match=match) as caught:
        kernels.launch(name, 1, 32, smem, *(guarded(a) if isinstance(a, np.ndarray) else a for a in arguments))
    assert "lane" in str(caught.value) and ".cpp:" in str(caught.value)


def test_detects_partial_warp(kernels: Kernels) -> None:
    with pytest.raises(EmulatorError, match="all 32 lanes"):
        kernels.launch("partial_warp", 1, 64, 0, poisoned(64, np.float32))
