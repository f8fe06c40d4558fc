"""What the hardware rounds, to the bit: TF32 by the copy engine, sums of float8 by wgmma. The same on a device and in the emulator."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .problem import CTYPES, Input, Map, Output, Problem, rounded, rounded_tf32

Array = np.ndarray


def _tf32() -> Problem:
    """Floats through a map of TF32: to nearest, ties to even, in every exponent and both signs."""
    rng = np.random.default_rng(8)
    x = rng.integers(0x00800000, 0x7F000000, (16, 32)).astype(np.uint32) | rng.integers(0, 2, (16, 32)).astype(np.uint32) << 31
    x[:8] = x[:8] & ~np.uint32(0x1FFF) | 0x1000
    x[8, :3] = x[8, :3] & ~np.uint32(0x1FFF) | np.array([0xFFF, 0x1001, 0], np.uint32)
    values = x.view(np.float32)
    source = """#include "aitc/gpu/hopper/mma_sm90.h"
using namespace aitc;
AITC_KERNEL(32) void AITC_ENTRY(load_box)(const int*, AITC_GRID_CONSTANT CUtensorMap map, int* out) {
  const uint32_t tile = to_shared(shared_memory()), barrier = tile + 2048;
  if (thread_index() == 0) barrier_init(barrier, 1), fence_barrier_init();
  block_barrier();
  if (thread_index() == 0) barrier_expect(barrier, 2048), tma_load(tile, map, 0, 0, barrier);
  barrier_wait(barrier, 0);
  for (int i = thread_index(); i < 512; i += 32) out[i] = reinterpret_cast<int*>(shared_memory())[i];
}
"""
    map_ = Map(0, of=0, dtype="tf32", sizes=(32, 16), strides=(128,), box=(32, 16), swizzle=0)
    bits = rounded_tf32(values).astype(np.float32).view(np.int32)
    return Problem("rounding tf32 map", source, "load_box", 1, 32, 2064, (Input(x.view(np.int32), "i32"), map_, Output(bits, "i32")), warp=32, arch="90a")


def float8_product(a: Array, b: Array) -> Array:
    """A(m,k) B(k,n) by a chain of wgmma on float8, 32 of k each.

    The products of one instruction and the sum so far are aligned to the greatest exponent (of a product: the sum of its operands'), lose
    what lies more than 13 bits below it, and are added exactly; the sum, whose exponent may be greater, then loses what lies 13 bits below
    its own. Found from what an H200 made of 24,116 sums of each type: all agree.
    """

    def exponent(x: Array) -> Array:
        return np.where(x == 0, -1000, np.frexp(x)[1] - 1)

    def power(top: Array) -> Array:
        return np.exp2(13.0 - np.where(top < -500, 0, top))

    total = np.zeros((a.shape[0], b.shape[1]))
    for k in range(0, a.shape[1], 32):
        left, right = a[:, k : k + 32, None], b[None, k : k + 32, :]
        top = np.maximum((exponent(left) + exponent(right)).max(1), exponent(total))
        scale = power(top)
        total = (np.trunc(left * right * scale[:, None]).sum(1) + np.trunc(total * scale)) / scale
        scale = power(exponent(total))
        total = np.trunc(total * scale) / scale
    return total


def _float8(dtype: str) -> Problem:
    """D(64,64) = A(64,128) B(128,64), four products in a chain: what they lose is part of the result."""
    rng = np.random.default_rng(9)
    a, b = (rounded(rng.standard_normal(s), dtype) for s in ((64, 128), (128, 64)))
    b[:, :8] = np.abs(b[:, :8]) * np.sign(a[0])[:, None]  # sums that grow
    maps = [Map(0, of=n, dtype=dtype, sizes=(128, 64), strides=(128,), box=(128, 64)) for n in (0, 1)]
    t = CTYPES[dtype]
    source = f"""#include "aitc/gpu/hopper/mma_sm90.h"
using namespace aitc;
AITC_KERNEL(128) void AITC_ENTRY(product)(const {t}*, const {t}*, AITC_GRID_CONSTANT CUtensorMap map_a, AITC_GRID_CONSTANT CUtensorMap map_b, float* d) {{
  const uint32_t a = to_shared(shared_memory()), b = a + 8192, barrier = b + 8192;
  if (thread_index() == 0) barrier_init(barrier, 1), fence_barrier_init();
  block_barrier();
  if (thread_index() == 0) barrier_expect(barrier, 16384), tma_load(a, map_a, 0, 0, barrier), tma_load(b, map_b, 0, 0, barrier);
  barrier_wait(barrier, 0);
  float acc[32];
  wgmma_fence();
  for (int k = 0; k < 4; ++k) wgmma<{t}, 64>(acc, matrix_descriptor(a) + 2 * k, matrix_descriptor(b) + 2 * k, k);
  wgmma_commit();
  wgmma_wait<0>(acc);
  const int row = thread_index() / 32 * 16 + thread_index() % 32 / 4, col = thread_index() % 4 * 2;
  for (int i = 0; i < 32; ++i) d[(row + i % 4 / 2 * 8) * 64 + i / 4 * 8 + col + i % 2] = acc[i];
}}
"""
    arguments = (Input(a, dtype), Input(b.T, dtype), *maps, Output(float8_product(a, b), "f32", 0.0))
    return Problem(f"rounding wgmma {dtype}", source, "product", 1, 128, 16400, arguments, warp=32, arch="90a")


def cases() -> Iterator[Problem]:
    """One problem for each rounding."""
    yield _tf32()
    yield _float8("e4m3")
    yield _float8("e5m2")
