"""Single instructions of sm_90 with exact results: the copy engine, wgmma, barriers, clusters."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .problem import CTYPES, SIZES, Input, Map, Output, Problem, Scalar, operand_map_type

Array = np.ndarray
HEADER = '#include "aitc/gpu/hopper/mma_sm90.h"\nusing namespace aitc;\n'


def integers(seed: int, *shape: int, limit: int = 8) -> Array:
    """From -limit to limit."""
    return np.random.default_rng(seed).integers(-limit, limit + 1, shape).astype(np.float64)


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


_TMA = """AITC_KERNEL(64) void AITC_ENTRY(load_box)(const half_t*, AITC_GRID_CONSTANT CUtensorMap map, half_t* out, int x, int y, int z, int u) {
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
    source = HEADER + _TMA.replace("LOAD", load).replace("BYTES", str(2 * expected.size))
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
    z = (np.arange(3 * 20 * 72) % 2039).reshape(3, 20, 72).astype(np.float64)
    map_ = Map(0, of=0, sizes=(72, 20, 3), strides=(144, 2880), box=(64, 16, 1))
    yield _tma("3-D", "tma_load(tile, map, x, y, z, barrier)", z, map_, (24, 9, 1, 0), _swizzled(_window(z, (1, 9, 24), (1, 16, 64), (1, 1, 1)), 128))


def _bulk() -> Problem:
    """A copy of bytes without a map."""
    source = HEADER + """AITC_KERNEL(64) void AITC_ENTRY(bulk)(const half_t* x, half_t* out) {
  const uint32_t tile = to_shared(shared_memory()), barrier = tile + 1024;
  if (thread_index() == 0) barrier_init(barrier, 1), fence_barrier_init();
  block_barrier();
  if (thread_index() == 0) barrier_expect(barrier, 1024), bulk_load(tile, x + 8, 1024, barrier);
  barrier_wait(barrier, 0);
  for (int i = thread_index(); i < 512; i += 64) out[i] = reinterpret_cast<half_t*>(shared_memory())[i];
}
"""
    x = np.arange(528).astype(np.float64)
    return Problem("instruction bulk copy", source, "bulk", 1, 64, 1040, (Input(x, "f16"), Output(x[8:520], "f16", 0.0)), warp=32, arch="90a")


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


def _wgmma(dtype: str, n: int, transposed_a: bool = False, transposed_b: bool = False, swizzle: int = 128) -> Problem:
    """D(64,n) = A(64,K) B(K,n), rows of K elements being as wide as the swizzle (or 32 bytes, in units of 16, without one): operands by TMA, a product for
    each 32 bytes, accumulators by their documented places."""
    size, limit = SIZES[dtype], 4 if SIZES[dtype] == 1 else 8
    row = swizzle or 32
    k = row // size
    a, b = integers(n, 64, k, limit=limit), integers(n + 1, k, n, limit=limit)
    stored_a, stored_b = (a.T if transposed_a else a), (b if transposed_b else b.T)
    rows_b = k if transposed_b else n
    columns_b = n if transposed_b else k
    boxes = -(-n // 64) if transposed_b else 1  # N-major: one box for 64 columns
    width = (swizzle or 16) // size
    kind = operand_map_type(dtype)
    map_a = Map(0, of=0, dtype=kind, sizes=stored_a.shape[::-1], strides=(size * stored_a.shape[1],), box=(width, stored_a.shape[0]), swizzle=swizzle)
    map_b = Map(0, of=1, dtype=kind, sizes=(columns_b, rows_b), strides=(size * columns_b,), box=(width, rows_b), swizzle=swizzle)
    bytes_a, bytes_b = 64 * row, boxes * rows_b * row
    t = CTYPES[dtype]
    flags = f", {str(transposed_a).lower()}, {str(transposed_b).lower()}" if transposed_a or transposed_b else ""
    plain = f"matrix_descriptor<{swizzle}>({{0}}) + 2 * k" if swizzle else "matrix_descriptor({0}, 0, 128, {1} * 16)"
    turned = "matrix_descriptor_transposed({0}, 8192) + 128 * k"
    load = "tma_load(a, map_a, 0, 0, barrier);\n    " + f"for (int i = 0; i < {boxes}; ++i) tma_load(b + i * 8192, map_b, i * 64, 0, barrier);"
    if not swizzle:  # units of 16 bytes, all rows of the first one and then of the second
        load = f"for (int i = 0; i < 2; ++i) tma_load(a + i * 1024, map_a, i * 8, 0, barrier), tma_load(b + i * {n * 16}, map_b, i * 8, 0, barrier);"
    words = f"{dtype}_{n}" + "".join(w for f, w in ((transposed_a, "_ta"), (transposed_b, "_tb"), (swizzle != 128, f"_s{swizzle}")) if f)
    source = f"""{HEADER}AITC_KERNEL(128) void AITC_ENTRY(wgmma_{words})(
    const {t}*, const {t}*, AITC_GRID_CONSTANT CUtensorMap map_a, AITC_GRID_CONSTANT CUtensorMap map_b, float* d) {{
  constexpr int N = {n};
  const uint32_t a = to_shared(shared_memory()), b = a + {bytes_a}, barrier = b + {bytes_b};
  if (thread_index() == 0) barrier_init(barrier, 1), fence_barrier_init();
  block_barrier();
  if (thread_index() == 0) {{
    barrier_expect(barrier, {bytes_a} + {bytes_b});
    {load}
  }}
  barrier_wait(barrier, 0);
  float acc[N / 2];
  wgmma_fence();
  for (int k = 0; k < {row // 32}; ++k) {{
    const uint64_t da = {(turned if transposed_a else plain).format("a", 64)};
    const uint64_t db = {(turned if transposed_b else plain).format("b", n)};
    wgmma<{t}, N{flags}>(acc, da, db, k);
  }}
  wgmma_commit();
  wgmma_wait<0>(acc);
  const int row = thread_index() / 32 * 16 + thread_index() % 32 / 4, col = thread_index() % 4 * 2;
  for (int i = 0; i < N / 2; ++i) d[(row + i % 4 / 2 * 8) * N + i / 4 * 8 + col + i % 2] = acc[i];
}}
"""
    arguments = (Input(stored_a, dtype), Input(stored_b, dtype), map_a, map_b, Output(a @ b, "f32", 0.0))
    form = "".join(f" {w}" for f, w in ((transposed_a, "A M-major"), (transposed_b, "B N-major"), (swizzle != 128, f"swizzle {swizzle}")) if f)
    return Problem(f"instruction wgmma {dtype} n{n}{form}", source, f"wgmma_{words}", 1, 128, bytes_a + bytes_b + 16, arguments, warp=32, arch="90a")


def _wgmma_registers(dtype: str, n: int) -> Problem:
    """A(64,16) from registers in the accumulators' layout, B N-major."""
    a, b = integers(5, 64, 16), integers(6, 16, n)
    map_b = Map(0, of=1, dtype=dtype, sizes=(n, 16), strides=(2 * n,), box=(64, 16))
    t, boxes = CTYPES[dtype], -(-n // 64)
    source = f"""{HEADER}AITC_KERNEL(128) void AITC_ENTRY(wgmma_registers_{dtype}_{n})(
    const {t}* a, const {t}*, AITC_GRID_CONSTANT CUtensorMap map_b, float* d) {{
  constexpr int N = {n};
  const uint32_t b = to_shared(shared_memory()), barrier = b + {boxes} * 2048;
  if (thread_index() == 0) barrier_init(barrier, 1), fence_barrier_init();
  block_barrier();
  if (thread_index() == 0) {{
    barrier_expect(barrier, {boxes} * 2048);
    for (int i = 0; i < {boxes}; ++i) tma_load(b + i * 2048, map_b, i * 64, 0, barrier);
  }}
  barrier_wait(barrier, 0);
  const int row = thread_index() / 32 * 16 + thread_index() % 32 / 4, col = thread_index() % 4 * 2;
  uint32_t r[4];
  for (int i = 0; i < 4; ++i) memcpy(&r[i], a + (row + i % 2 * 8) * 16 + i / 2 * 8 + col, 4);
  float acc[N / 2];
  wgmma_fence();
  wgmma_transposed<{t}, N>(acc, r, matrix_descriptor_transposed(b, 2048), 0);
  wgmma_commit();
  wgmma_wait<0>(acc);
  for (int i = 0; i < N / 2; ++i) d[(row + i % 4 / 2 * 8) * N + i / 4 * 8 + col + i % 2] = acc[i];
}}
"""
    arguments = (Input(a, dtype), Input(b, dtype), map_b, Output(a @ b, "f32", 0.0))
    name, entry = f"instruction wgmma registers {dtype} n{n}", f"wgmma_registers_{dtype}_{n}"
    return Problem(name, source, entry, 1, 128, boxes * 2048 + 16, arguments, warp=32, arch="90a")


def _store(rank: int) -> Problem:
    """stmatrix into a swizzled patch of 16 rows, then a TMA store that the tensor's edges clip."""
    tile = integers(7, 16, 64, limit=900)
    if rank == 3:
        at, map_ = (40, 12, 0), Map(0, of=0, sizes=(72, 20, 1), strides=(144, 2880), box=(64, 16, 1))
        expected = np.full((1, 20, 72), np.nan)
        expected[0, 12:, 40:] = tile[:8, :32]
    else:
        at, map_ = (40, 3, 2, 1), Map(0, of=0, sizes=(72, 6, 5, 2), strides=(144, 864, 4320), box=(64, 4, 4, 1))
        expected = np.full((2, 5, 6, 72), np.nan)
        expected[1, 2:, 3:, 40:] = tile.reshape(4, 4, 64)[:3, :3, :32]
    source = f"""{HEADER}AITC_KERNEL(32) void AITC_ENTRY(store_box)(half_t*, AITC_GRID_CONSTANT CUtensorMap map, const half_t* tile) {{
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
  if (l == 0) tma_store(map, {", ".join(map(str, at))}, patch), bulk_commit(), bulk_wait_read<0>();
}}
"""
    arguments = (Output(expected, "f16", 0.0), map_, Input(tile, "f16"))
    return Problem(f"instruction stmatrix {rank}-D", source, "store_box", 1, 32, 2048, arguments, warp=32, arch="90a")


def _cluster() -> Problem:
    """Two blocks: each multicasts half of a tile to both, gives its neighbour a number, and signals the neighbour's barrier."""
    x = (np.arange(16 * 64) % 2039).reshape(16, 64).astype(np.float64)
    both = _swizzled(x, 128)
    source = HEADER + """AITC_KERNEL(32) void AITC_ENTRY(neighbours)(const half_t*, AITC_GRID_CONSTANT CUtensorMap map, half_t* out, float* numbers) {
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


def _im2col_multicast() -> Problem:
    """Two blocks, each loads 16 pixels of a 3 x 3 window's tap for both."""
    x = (np.arange(7 * 9 * 64) % 2039 + 1).reshape(7, 9, 64).astype(np.float64)
    m, r, s = 12, 2, 1
    rows = np.zeros((32, 64))
    for i in range(32):
        line, place = (m + i) // 9 - 1 + r, (m + i) % 9 - 1 + s
        if line < 7 and 0 <= place < 9:
            rows[i] = x[line, place]
    source = f"""{HEADER}AITC_KERNEL(32) void AITC_ENTRY(window)(const half_t*, AITC_GRID_CONSTANT CUtensorMap map, half_t* out) {{
  const uint32_t tile = to_shared(shared_memory()), full = tile + 4096, rank = cluster_rank();
  if (thread_index() == 0) barrier_init(full, 1), fence_barrier_init();
  block_barrier();
  if (thread_index() == 0) barrier_expect(full, 4096);
  cluster_arrive();
  cluster_wait();
  const int pixel = {m} + int(rank) * 16;
  if (thread_index() == 0) tma_load_im2col_multicast(tile + rank * 2048, map, 0, pixel % 9 - 1, pixel / 9 - 1, 0, {s}, {r}, full, 3);
  barrier_wait(full, 0);
  for (int i = thread_index(); i < 2048; i += 32) out[blockIdx.x * 2048 + i] = reinterpret_cast<half_t*>(shared_memory())[i];
  cluster_arrive();
  cluster_wait();
}}
"""
    corners = ((-1, -1), (-1, -1), 64, 16)
    map_ = Map(0, of=0, sizes=(64, 9, 7, 1), strides=(128, 1152, 8064), steps=(1, 1, 1, 1), im2col=corners)
    arguments = (Input(x, "f16"), map_, Output(np.stack([_swizzled(rows, 128)] * 2), "f16", 0.0))
    return Problem("instruction tma im2col multicast", source, "window", 2, 32, 4112, arguments, warp=32, cluster=2, arch="90a")


def _barriers() -> Problem:
    """A ring of two places between two groups of 128 threads, by mbarriers that all of a group arrive at; then one hand-over by a named barrier."""
    source = HEADER + """AITC_KERNEL(256) void AITC_ENTRY(ring)(const float* x, float* out) {
  float* place = reinterpret_cast<float*>(shared_memory());
  const uint32_t full = to_shared(shared_memory()) + 1536, empty = full + 16;
  const int group = thread_index() / 128, t = thread_index() % 128;
  if (thread_index() == 0) {
    for (int i = 0; i < 2; ++i) barrier_init(full + 8 * i, 128), barrier_init(empty + 8 * i, 128);
    fence_barrier_init();
  }
  block_barrier();
  Ring<2> ring;
  float sum = 0;
  for (int i = 0; i < 7; ++i, ring.next()) {
    if (group == 0) {
      barrier_wait(empty + 8 * ring.stage, ring.parity ^ 1);
      place[ring.stage * 128 + t] = x[i * 128 + t];
      barrier_arrive(full + 8 * ring.stage);
    } else {
      barrier_wait(full + 8 * ring.stage, ring.parity);
      sum = 2 * sum + place[ring.stage * 128 + (t + 37) % 128];
      barrier_arrive(empty + 8 * ring.stage);
    }
  }
  if (group == 1) {
    place[256 + t] = sum;
    named_arrive(1, 256);
  } else {
    named_sync(1, 256);
    out[t] = place[383 - t];
  }
}
"""
    x = integers(9, 7, 128)
    total = np.zeros(128)
    for row in x:
        total = 2 * total + np.roll(row, -37)
    return Problem("instruction mbarrier", source, "ring", 1, 256, 1568, (Input(x, "f32"), Output(total[::-1], "f32", 0.0)), warp=32, arch="90a")


WIDTHS = (8, 16, 24, 32, 40, 48, 64, 80, 96, 112, 128, 144, 160, 168, 176, 192, 208, 224, 240, 256)
REGISTER_WIDTHS = (8, 16, 24, 32, 40, 48, 64, 72, 80, 96, 112, 128, 160, 192, 256)
"""Of the columns that ``wgmma`` and ``wgmma_transposed`` of mma_sm90.h take."""


def sm90_cases() -> Iterator[Problem]:
    """Every instruction of mma_sm90.h, wgmma in every width."""
    yield from _tma_tiled()
    yield from _tma_im2col()
    yield _bulk()
    for dtype in ("f16", "bf16", "f32", "e4m3", "e5m2"):
        for n in WIDTHS:
            yield _wgmma(dtype, n)
    for transposed_a, transposed_b in ((True, False), (False, True), (True, True)):
        for n in (64, 128, 192, 256):
            yield _wgmma("f16", n, transposed_a, transposed_b)
            yield _wgmma("bf16", n, transposed_a, transposed_b)
    for swizzle in (64, 0):
        yield _wgmma("f16", 64, swizzle=swizzle)
        yield _wgmma("bf16", 40, swizzle=swizzle)
    for dtype in ("f16", "bf16"):
        for n in REGISTER_WIDTHS:
            yield _wgmma_registers(dtype, n)
    yield _store(3)
    yield _store(4)
    yield _cluster()
    yield _im2col_multicast()
    yield _barriers()
