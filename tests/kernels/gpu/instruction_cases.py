"""Single instructions with exact results: the same on a device and in the emulator, so that each vouches for the other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .problem import CTYPES, Input, Map, Output, Problem, Scalar

Array = np.ndarray


def _integers(seed: int, *shape: int, limit: int = 8) -> Array:
    return np.random.default_rng(seed).integers(-limit, limit + 1, shape).astype(np.float64)


def _mma(dtype: str) -> Problem:
    """D(16,8) = A(16,k) B(k,8) + C from fragments that the kernel gathers element by element."""
    k = 8 if dtype == "f32" else 16
    a, b, c = _integers(1, 16, k), _integers(2, k, 8), _integers(3, 16, 8, limit=99)
    t = CTYPES[dtype]
    source = f"""#include "aitc/gpu/mma_sm80.h"
using namespace aitc;
AITC_KERNEL(32) void AITC_ENTRY(mma)(const {t}* a, const {t}* b, const float* c, float* d) {{
  constexpr int K = {k}, P = K / 8;  // elements of a register, neighbours along k
  const int g = lane_index() / 4, t = lane_index() % 4;
  uint32_t ra[4] = {{}}, rb[2] = {{}};
  for (int i = 0; i < 4; ++i)
    for (int e = 0; e < P; ++e) {{
      const int k = i / 2 * (K / 2) + t * P + e;
      uint32_t x = 0, y = 0;
      memcpy(&x, &a[(g + i % 2 * 8) * K + k], sizeof({t}));
      ra[i] |= x << 16 * e;
      if (i % 2 == 0) memcpy(&y, &b[k * 8 + g], sizeof({t})), rb[i / 2] |= y << 16 * e;
    }}
  float r[4];
  for (int i = 0; i < 4; ++i) r[i] = c[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
  Mma<{t}>::run(r, ra, rb);
  for (int i = 0; i < 4; ++i) d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = r[i];
}}
"""
    arguments = (Input(a, dtype), Input(b, dtype), Input(c, "f32"), Output(a @ b + c, "f32", 0.0))
    return Problem(f"instruction mma {dtype}", source, "mma", 1, 32, 0, arguments, warp=32)


def _load_matrix(transposed: bool) -> Problem:
    """ldmatrix.x4 of four 8x8 matrices; register m of lane l as two 16-bit numbers."""
    x = np.arange(256).reshape(4, 8, 8)
    lanes = np.arange(32)
    row, pair = lanes // 4, lanes % 4 * 2
    first, second = ((pair, row), (pair + 1, row)) if transposed else ((row, pair), (row, pair + 1))
    expected = np.stack([x[:, first[0], first[1]], x[:, second[0], second[1]]], -1).transpose(1, 0, 2)  # (lane, matrix, half)
    source = f"""#include "aitc/gpu/mma_sm80.h"
using namespace aitc;
AITC_KERNEL(32) void AITC_ENTRY(load_matrix)(const half_t* x, int* out) {{
  half_t* tile = reinterpret_cast<half_t*>(shared_memory());
  const int l = lane_index();
  for (int i = l; i < 256; i += 32) tile[i] = x[i];
  block_barrier();
  uint32_t r[4];
  load_matrix_x4{"_trans" if transposed else ""}(r, to_shared(shared_memory()) + 16 * l);
  for (int i = 0; i < 8; ++i) out[l * 8 + i] = int(half_to_float(uint16_t(r[i / 2] >> i % 2 * 16)));
}}
"""
    arguments = (Input(x, "f16"), Output(expected, "i32"))
    return Problem(f"instruction ldmatrix transposed {transposed}", source, "load_matrix", 1, 32, 512, arguments, warp=32)


def _copy_async() -> Problem:
    """cp.async of 4, 8 and 16 bytes, every third copy without a source: zeros."""
    x = np.arange(1, 32 * 7 + 1).astype(np.float64)
    expected = x.copy()
    for lane in range(0, 32, 3):
        for first, size in ((0, 1), (1, 2), (3, 4)):
            expected[32 * first + lane * size : 32 * first + (lane + 1) * size] = 0
    source = """#include "aitc/gpu/mma_sm80.h"
using namespace aitc;
AITC_KERNEL(32) void AITC_ENTRY(copy)(const float* x, float* out) {
  const int l = lane_index();
  const auto to = to_shared(shared_memory());
  copy_async<4>(to + 4 * l, x + l, l % 3 != 0);
  copy_async_commit();
  copy_async<8>(to + 128 + 8 * l, x + 32 + 2 * l, l % 3 != 0);
  copy_async_commit();
  copy_async<16>(to + 384 + 16 * l, x + 96 + 4 * l, l % 3 != 0);
  copy_async_commit();
  copy_async_wait<0>();
  block_barrier();
  for (int i = l; i < 224; i += 32) out[i] = reinterpret_cast<float*>(shared_memory())[i];
}
"""
    return Problem("instruction cp.async", source, "copy", 1, 32, 896, (Input(x, "f32"), Output(expected, "f32", 0.0)), warp=32)


# ---------------------------------------------------------------- sm_90


def _window(x: Array, start: tuple[int, ...], size: tuple[int, ...], step: tuple[int, ...]) -> Array:
    """x[start : start + size : step], outermost first, zero outside."""
    out = np.zeros([-(-n // s) for n, s in zip(size, step, strict=True)])
    for index in np.ndindex(*out.shape):
        at = tuple(b + i * s for b, i, s in zip(start, index, step, strict=True))
        if all(0 <= a < n for a, n in zip(at, x.shape, strict=True)):
            out[index] = x[at]
    return out


def _swizzled(rows: Array, swizzle: int) -> Array:
    """(rows, elements) of 2 bytes as they lie in shared memory: 16-byte unit i moves to i ^ (i / 8) within the swizzle."""
    units = rows.reshape(-1, 8)
    if not swizzle:
        return units.reshape(-1)
    out = np.empty_like(units)
    for i in range(len(units)):
        out[i ^ (i // 8 % (swizzle // 16))] = units[i]
    return out.reshape(-1)


_TMA = """#include "aitc/gpu/mma_sm90.h"
using namespace aitc;
AITC_KERNEL(64) void AITC_ENTRY(load_box)(const half_t*, AITC_GRID_CONSTANT CUtensorMap map, half_t* out, int x, int y, int z, int u) {
  const uint32_t tile = to_shared(shared_memory()), barrier = tile + BYTES;
  if (thread_index() == 0) barrier_init(barrier, 1), fence_barrier_init();
  block_barrier();
  if (thread_index() == 0) {
    barrier_expect(barrier, BYTES);
    LOAD;
  }
  barrier_wait(barrier, 0);
  for (int i = thread_index(); i < BYTES / 2; i += 64) out[i] = reinterpret_cast<half_t*>(shared_memory())[i];
}
"""


def _tma(name: str, load: str, x: Array, map_: Map, at: tuple[int, int, int, int], expected: Array) -> Problem:
    """One TMA load into shared memory, dumped as it lies there."""
    source = _TMA.replace("LOAD", load).replace("BYTES", str(2 * expected.size))
    arguments = (Input(x, "f16"), map_, Output(expected, "f16", 0.0), *(Scalar(i) for i in at))
    smem = 2 * expected.size + 16
    return Problem(f"instruction tma {name}", source, "load_box", 1, 64, smem, arguments, warp=32, arch="90a")


def _tma_tiled() -> Iterator[Problem]:
    x = (np.arange(40 * 72) % 2039).reshape(40, 72).astype(np.float64)
    for swizzle, columns in ((128, 64), (64, 32), (32, 16), (0, 64)):
        for at in ((0, 0), (56, 30), (-8, -3)):
            map_ = Map(0, of=0, sizes=(72, 40), strides=(144,), box=(columns, 16), swizzle=swizzle)
            expected = _swizzled(_window(x, at[::-1], (16, columns), (1, 1)), swizzle)
            yield _tma(f"2-D swizzle {swizzle} at {at[0]},{at[1]}", "tma_load(tile, map, x, y, barrier)", x, map_, (*at, 0, 0), expected)
    y = (np.arange(2 * 9 * 6 * 32) % 2039).reshape(2, 9, 6, 32).astype(np.float64)
    for step in (1, 2):
        map_ = Map(0, of=0, sizes=(32, 6, 9, 2), strides=(64, 384, 3456), box=(32, 4, 5, 1), steps=(1, 1, step, 1), swizzle=64)
        expected = _swizzled(_window(y, (1, 3, -1, 0), (1, 5, 4, 32), (1, step, 1, 1)).reshape(-1, 32), 64)
        yield _tma(f"4-D step {step}", "tma_load(tile, map, x, y, z, u, barrier)", y, map_, (0, -1, 3, 1), expected)


def _tma_im2col() -> Iterator[Problem]:
    windows = (((2, 7, 9, 64), (3, 3), 1, 1, 1), ((3, 8, 6, 72), (3, 3), 2, 1, 1), ((2, 10, 11, 24), (5, 3), 1, 2, 2))
    for (n, h, w, c), (r_, s_), stride, pad, dilation in windows:
        p = (h + 2 * pad - (r_ - 1) * dilation - 1) // stride + 1
        q = (w + 2 * pad - (s_ - 1) * dilation - 1) // stride + 1
        x = (np.arange(n * h * w * c) % 2039 + 1).reshape(n, h, w, c).astype(np.float64)
        upper = (pad - (s_ - 1) * dilation, pad - (r_ - 1) * dilation)
        strides, corners = (2 * c, 2 * c * w, 2 * c * w * h), ((-pad, -pad), upper, 64, 32)
        map_ = Map(0, of=0, sizes=(c, w, h, n), strides=strides, steps=(1, stride, stride, 1), im2col=corners)
        for m, r, s, first in ((0, 0, 0, 0), (q + 3, r_ - 1, 1, 0), (n * p * q - 20, 1, s_ - 1, (c - 1) // 64 * 64)):
            rows = np.zeros((32, 64))
            for i in range(32):
                image, line, place = (m + i) // q // p, (m + i) // q % p * stride - pad, (m + i) % q * stride - pad
                line, place = line + r * dilation, place + s * dilation
                if image < n and 0 <= line < h and 0 <= place < w:
                    channels = x[image, line, place, first : first + 64]
                    rows[i, : len(channels)] = channels
            load = f"tma_load_im2col(tile, map, x, y, z, u, {s * dilation}, {r * dilation}, barrier)"
            at = (first, m % q * stride - pad, m // q % p * stride - pad, m // q // p)
            yield _tma(f"im2col {n}x{h}x{w}x{c} pixel {m} tap {r},{s}", load, x, map_, at, _swizzled(rows, 128))


def _wgmma(dtype: str, n: int, transposed_a: bool, transposed_b: bool) -> Problem:
    """D(64,n) = A(64,64) B(64,n): operands by TMA in the 128-byte swizzle, four products, accumulators by their documented places."""
    a, b = _integers(n, 64, 64), _integers(n + 1, 64, n)
    stored_a, stored_b = (a.T if transposed_a else a), (b if transposed_b else b.T)
    rows_b = 64 if transposed_b else n
    columns_b = n if transposed_b else 64
    boxes = -(-n // 64) if transposed_b else 1  # N-major: one box for 64 columns
    map_a = Map(0, of=0, dtype=dtype, sizes=(64, 64), strides=(128,), box=(64, 64))
    map_b = Map(0, of=1, dtype=dtype, sizes=(columns_b, rows_b), strides=(2 * columns_b,), box=(64, rows_b))
    bytes_b = boxes * rows_b * 128
    t = CTYPES[dtype]
    flags = f", {str(transposed_a).lower()}, {str(transposed_b).lower()}"
    source = f"""#include "aitc/gpu/mma_sm90.h"
using namespace aitc;
AITC_KERNEL(128) void AITC_ENTRY(product)(const {t}*, const {t}*, AITC_GRID_CONSTANT CUtensorMap map_a, AITC_GRID_CONSTANT CUtensorMap map_b, float* d) {{
  constexpr int N = {n};
  const uint32_t a = to_shared(shared_memory()), b = a + 8192, barrier = b + {bytes_b};
  if (thread_index() == 0) barrier_init(barrier, 1), fence_barrier_init();
  block_barrier();
  if (thread_index() == 0) {{
    barrier_expect(barrier, 8192 + {bytes_b});
    tma_load(a, map_a, 0, 0, barrier);
    for (int i = 0; i < {boxes}; ++i) tma_load(b + i * 8192, map_b, i * 64, 0, barrier);
  }}
  barrier_wait(barrier, 0);
  float acc[N / 2];
  wgmma_fence();
  for (int k = 0; k < 4; ++k) {{
    const uint64_t da = {"matrix_descriptor_transposed(a, 8192) + 128 * k" if transposed_a else "matrix_descriptor(a) + 2 * k"};
    const uint64_t db = {"matrix_descriptor_transposed(b, 8192) + 128 * k" if transposed_b else "matrix_descriptor(b) + 2 * k"};
    wgmma<{t}, N{flags}>(acc, da, db, k);
  }}
  wgmma_commit();
  wgmma_wait<0>(acc);
  const int row = thread_index() / 32 * 16 + thread_index() % 32 / 4, col = thread_index() % 4 * 2;
  for (int i = 0; i < N / 2; ++i) d[(row + i % 4 / 2 * 8) * N + i / 4 * 8 + col + i % 2] = acc[i];
}}
"""
    arguments = (Input(stored_a, dtype), Input(stored_b, dtype), map_a, map_b, Output(a @ b, "f32", 0.0))
    name = f"instruction wgmma {dtype} n{n} transposed {int(transposed_a)}{int(transposed_b)}"
    return Problem(name, source, "product", 1, 128, 8192 + bytes_b + 16, arguments, warp=32, arch="90a")


def _wgmma_registers() -> Problem:
    """A from registers in the accumulators' layout, B N-major."""
    a, b = _integers(5, 64, 16), _integers(6, 16, 64)
    map_b = Map(0, of=1, sizes=(64, 16), strides=(128,), box=(64, 16))
    source = """#include "aitc/gpu/mma_sm90.h"
using namespace aitc;
AITC_KERNEL(128) void AITC_ENTRY(product)(const half_t* a, const half_t*, AITC_GRID_CONSTANT CUtensorMap map_b, float* d) {
  const uint32_t b = to_shared(shared_memory()), barrier = b + 2048;
  if (thread_index() == 0) barrier_init(barrier, 1), fence_barrier_init();
  block_barrier();
  if (thread_index() == 0) barrier_expect(barrier, 2048), tma_load(b, map_b, 0, 0, barrier);
  barrier_wait(barrier, 0);
  const int row = thread_index() / 32 * 16 + thread_index() % 32 / 4, col = thread_index() % 4 * 2;
  uint32_t r[4];
  for (int i = 0; i < 4; ++i) memcpy(&r[i], a + (row + i % 2 * 8) * 16 + i / 2 * 8 + col, 4);
  float acc[32];
  wgmma_fence();
  wgmma_transposed<half_t, 64>(acc, r, matrix_descriptor_transposed(b, 2048), 0);
  wgmma_commit();
  wgmma_wait<0>(acc);
  for (int i = 0; i < 32; ++i) d[(row + i % 4 / 2 * 8) * 64 + i / 4 * 8 + col + i % 2] = acc[i];
}
"""
    arguments = (Input(a, "f16"), Input(b, "f16"), map_b, Output(a @ b, "f32", 0.0))
    return Problem("instruction wgmma registers", source, "product", 1, 128, 2064, arguments, warp=32, arch="90a")


def _store() -> Problem:
    """stmatrix into a swizzled patch of 16 rows, then a TMA store that the tensor's edges clip."""
    tile = _integers(7, 16, 64, limit=900)
    x, y = 40, 12
    expected = np.full((1, 20, 72), np.nan)
    expected[0, y:, x:] = tile[: 20 - y, : 72 - x]
    source = f"""#include "aitc/gpu/mma_sm90.h"
using namespace aitc;
AITC_KERNEL(32) void AITC_ENTRY(store_box)(half_t*, AITC_GRID_CONSTANT CUtensorMap map, const half_t* tile) {{
  const int l = lane_index();
  const uint32_t patch = to_shared(shared_memory());
  for (int j = 0; j < 8; j += 2) {{  // two groups of 8 columns: upper and lower rows of each
    uint32_t r[4];
    for (int i = 0; i < 4; ++i) memcpy(&r[i], tile + (l / 4 + i % 2 * 8) * 64 + (j + i / 2) * 8 + l % 4 * 2, 4);
    const uint32_t row = uint32_t(l) % 16, unit = uint32_t(j + l / 16);
    stmatrix(patch + row * 128 + (unit ^ row % 8) * 16, r[0], r[1], r[2], r[3]);
  }}
  fence_async_proxy();
  block_barrier();
  if (l == 0) tma_store(map, {x}, {y}, 0, patch), bulk_commit(), bulk_wait_read<0>();
}}
"""
    map_ = Map(0, of=0, sizes=(72, 20, 1), strides=(144, 2880), box=(64, 16, 1))
    arguments = (Output(expected, "f16", 0.0), map_, Input(tile, "f16"))
    return Problem("instruction stmatrix and tma store", source, "store_box", 1, 32, 2048, arguments, warp=32, arch="90a")


def _cluster() -> Problem:
    """Two blocks: each multicasts half of a tile to both, gives its neighbour a number, and signals the neighbour's barrier."""
    x = (np.arange(16 * 64) % 2039).reshape(16, 64).astype(np.float64)
    both = _swizzled(x, 128)
    source = """#include "aitc/gpu/mma_sm90.h"
using namespace aitc;
AITC_KERNEL(32) void AITC_ENTRY(neighbours)(const half_t*, AITC_GRID_CONSTANT CUtensorMap map, half_t* out, float* numbers) {
  const uint32_t tile = to_shared(shared_memory()), full = tile + 2048, told = full + 8, number = full + 16, rank = cluster_rank();
  if (thread_index() == 0) {
    barrier_init(full, 1), barrier_init(told, 1), fence_barrier_init();
    barrier_expect(full, 2048);
  }
  cluster_arrive();
  cluster_wait();
  if (thread_index() == 0) {
    tma_load_multicast(tile + rank * 1024, map, 0, int(rank) * 8, 0, full, 3);
    store_peer(peer_address(number, rank ^ 1), float2{float(rank) + 10, float(blockIdx.x) + 20});
  }
  barrier_wait(full, 0);
  cluster_arrive();
  cluster_wait();  // the numbers are there
  if (thread_index() == 0) barrier_arrive(told, rank ^ 1);
  barrier_wait(told, 0);
  for (int i = thread_index(); i < 1024; i += 32) out[blockIdx.x * 1024 + i] = reinterpret_cast<half_t*>(shared_memory())[i];
  if (thread_index() < 2) numbers[blockIdx.x * 2 + thread_index()] = reinterpret_cast<float*>(shared_memory())[516 + thread_index()];
  cluster_arrive();
  cluster_wait();
}
"""
    map_ = Map(0, of=0, sizes=(64, 16, 1), strides=(128, 2048), box=(64, 8, 1))
    numbers = np.array([[11, 21], [10, 20], [11, 23], [10, 22]], np.float64)
    arguments = (Input(x, "f16"), map_, Output(np.stack([both] * 4), "f16", 0.0), Output(numbers, "f32", 0.0))
    return Problem("instruction cluster", source, "neighbours", 4, 32, 2080, arguments, warp=32, cluster=2, arch="90a")


def cases() -> Iterator[Problem]:
    """Every instruction of mma_sm80.h and mma_sm90.h, small integers throughout."""
    for dtype in ("f16", "bf16", "f32"):
        yield _mma(dtype)
    yield _load_matrix(False)
    yield _load_matrix(True)
    yield _copy_async()
    yield from _tma_tiled()
    yield from _tma_im2col()
    for dtype, n in (("f16", 8), ("f16", 64), ("bf16", 96), ("f16", 168), ("bf16", 256)):
        yield _wgmma(dtype, n, False, False)
    for transposed_a, transposed_b in ((True, False), (False, True), (True, True)):
        yield _wgmma("f16", 64, transposed_a, transposed_b)
        yield _wgmma("bf16", 128, transposed_a, transposed_b)
    yield _wgmma_registers()
    yield _store()
    yield _cluster()
