"""Single instructions with exact results (roundings included): the same on a device and in the emulator, so that each vouches for the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from .instruction_sm90_cases import HEADER as SM90
from .instruction_sm90_cases import integers, sm90_cases
from .problem import CTYPES, Input, Output, Problem, encode, rounded

HEADER = '#include "aitc/gpu/matmul/mma_sm80.h"\nusing namespace aitc;\n'


def _mma(dtype: str) -> Problem:
    """D(16,8) = A(16,k) B(k,8) + C from fragments that the kernel gathers element by element."""
    k = 8 if dtype == "f32" else 16
    a, b, c = integers(1, 16, k), integers(2, k, 8), integers(3, 16, 8, limit=99)
    t = CTYPES[dtype]
    source = f"""{HEADER}AITC_KERNEL(32) void AITC_ENTRY(mma)(const {t}* a, const {t}* b, const float* c, float* d) {{
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
    source = f"""{HEADER}AITC_KERNEL(32) void AITC_ENTRY(load_matrix)(const half_t* x, int* out) {{
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
    return Problem(f"instruction ldmatrix{' transposed' if transposed else ''}", source, "load_matrix", 1, 32, 512, arguments, warp=32)


def _copy_async() -> Problem:
    """cp.async of 4, 8 and 16 bytes, every third copy without a source: zeros."""
    x = np.arange(1, 32 * 7 + 1).astype(np.float64)
    expected = x.copy()
    for lane in range(0, 32, 3):
        for first, size in ((0, 1), (1, 2), (3, 4)):
            expected[32 * first + lane * size : 32 * first + (lane + 1) * size] = 0
    source = HEADER + """AITC_KERNEL(32) void AITC_ENTRY(copy)(const float* x, float* out) {
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


def _lanes() -> Problem:
    """Exchange between the lanes of a warp: shuffles, ballots, atomics in shared memory."""
    x = integers(4, 32, limit=99)
    lane = np.arange(32)
    want = np.stack([x[(5 * lane + 3) % 32], x[lane ^ 21], np.full(32, np.packbits(x > 0, bitorder="little").view(np.uint32)[0].astype(np.int32))], 1)
    want = np.concatenate([want, np.tile([x.sum(), x.max(), x.min()], (32, 1))], 1)
    source = HEADER + """AITC_KERNEL(32) void AITC_ENTRY(exchange)(const int* x, int* out) {
  int* cell = reinterpret_cast<int*>(shared_memory());
  const int l = lane_index(), v = x[l];
  if (l < 3) cell[l] = l == 1 ? -1000 : l == 2 ? 1000 : 0;
  warp_barrier();
  atomic_add(cell, v), atomic_max(cell + 1, v), atomic_min(cell + 2, v);
  warp_barrier();
  const int all[6] = {shuffle(v, (5 * l + 3) % 32), shuffle_xor(v, 21), int(aitc::ballot(v > 0)), cell[0], cell[1], cell[2]};
  for (int i = 0; i < 6; ++i) out[l * 6 + i] = all[i];
}
"""
    return Problem("instruction lanes", source, "exchange", 1, 32, 16, (Input(x, "i32"), Output(want, "i32")), warp=32)


def _conversions(dtype: str) -> Problem:
    """float to 16 or 8 bits: on and beside every number of the type and between them, subnormal ones included; twos as one instruction where there is one."""
    codes = np.arange(0, 1 << 16, 3 if dtype in ("f16", "bf16") else 256).astype(np.uint16)
    exact = {"f16": codes.view(np.float16).astype(np.float32), "bf16": (codes.astype(np.uint32) << 16).view(np.float32)}
    some = exact["f16"] if dtype != "bf16" else exact["bf16"]
    some = some[np.isfinite(some) & (np.abs(some) < {"f16": 6e4, "bf16": 3e38, "e4m3": 440, "e5m2": 5e4}[dtype])]
    x = np.concatenate([some, np.nextafter(some, np.float32(np.inf)), np.nextafter(some, np.float32(-np.inf)), some * np.float32(1.0004883)])
    x = x[: x.size // 128 * 128].astype(np.float64)
    t, raw = CTYPES[dtype], "uint16_t" if dtype in ("f16", "bf16") else "uint8_t"
    source = f"""{HEADER}AITC_KERNEL(64) void AITC_ENTRY(narrow_{dtype})(const float* x, {raw}* out) {{
  const int i = (blockIdx.x * 64 + thread_index()) * 2;
  Vec<float, 2> v;
  v[0] = x[i], v[1] = x[i + 1];
  store<2>(reinterpret_cast<{t}*>(out) + i, convert<{t}>(v));
}}
"""
    want = Output(rounded(x, dtype), dtype, 0.0) if raw == "uint16_t" else Output(encode(x, dtype), "u8")
    return Problem(f"instruction float to {dtype}", source, f"narrow_{dtype}", x.size // 128, 64, 0, (Input(x, "f32"), want), warp=32)


def _together(problems: Iterable[Problem]) -> Iterator[Problem]:
    """The same, with the kernels of a header in one source: two compiles instead of hundreds. Equal kernels are one entry."""
    entries: dict[str, dict[str, str]] = {}
    renamed: list[tuple[Problem, str, str]] = []
    for p in problems:
        header = next(h for h in (HEADER, SM90) if p.source.startswith(h))
        family = header + f"// {' '.join(p.name.split()[1:3])}\n" if "wgmma" in p.name else header
        bodies = entries.setdefault(family, {})
        name = bodies.setdefault(p.source.removeprefix(header), f"{p.entry}_{len(bodies)}")
        renamed.append((p, family, name))
    for p, family, name in renamed:
        texts = (body.replace(f"AITC_ENTRY({body.split('AITC_ENTRY(')[1].split(')')[0]})", f"AITC_ENTRY({n})") for body, n in entries[family].items())
        yield replace(p, source=family + "\n".join(texts), entry=name)


def cases() -> Iterator[Problem]:
    """Every instruction of mma_sm80.h and mma_sm90.h, exact results throughout."""
    every = [*(_mma(t) for t in ("f16", "bf16", "f32")), _load_matrix(False), _load_matrix(True), _copy_async(), _lanes()]
    every += [_conversions(t) for t in ("f16", "bf16", "e4m3", "e5m2")]
    yield from _together([*every, *sm90_cases()])
