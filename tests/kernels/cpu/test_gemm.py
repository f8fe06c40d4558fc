"""cpu/gemm.h: every form of operand, storage type and edge against float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from aitc.kernels.matmul.gemm_cpu import CPU_TILES

from .library import HAVE_COMPILER, ISAS, PROLOGUE, STORAGE, assert_sums, build, call, sum_type, values

pytestmark = pytest.mark.skipif(not HAVE_COMPILER, reason="no g++")


@dataclass(frozen=True)
class Case:
    M: int
    N: int
    K: int
    batch: int = 1
    a: str = "float"
    b: str = "float"
    a_major: str = "K"
    b_form: str = "packed"  # or a major: N, K, none
    dynamic: str = ""  # letters of M, N, K, B that are read at run time
    width: int = 16
    gap: int = 0  # elements between rows of A and of unpacked B
    tile: str = ""  # of registers: rows, vectors; the instruction set's own if empty


CASES = (
    Case(1, 1, 1), Case(1, 33, 31), Case(1, 1000, 96), Case(2, 64, 64), Case(3, 31, 33), Case(4, 32, 16), Case(9, 17, 5), Case(10, 16, 31),
    Case(11, 65, 40), Case(31, 33, 32), Case(33, 31, 1), Case(49, 48, 100), Case(7, 96, 640), Case(130, 64, 65), Case(600, 40, 33),
    Case(32, 64, 1024), Case(13, 80, 0), Case(5, 24, 8, width=8), Case(12, 36, 8, width=4), Case(6, 7, 9, width=1), Case(6, 31, 9, width=2),
    Case(300, 320, 128), Case(8, 2048, 256),
    Case(1, 65, 48, dynamic="M"), Case(5, 64, 48, dynamic="MK"), Case(13, 33, 48, dynamic="MNK"), Case(129, 96, 31, dynamic="MN"),
    Case(20, 40, 17, batch=3, dynamic="MNKB"), Case(0, 8, 8, dynamic="M"),
    Case(33, 47, 29, b_form="N"), Case(33, 47, 29, b_form="K"), Case(33, 64, 29, b_form="none"), Case(12, 100, 64, b_form="K", gap=3),
    Case(12, 100, 64, b_form="N", gap=5), Case(31, 33, 45, a_major="M"), Case(31, 33, 45, a_major="none", gap=2),
    Case(40, 32, 40, a_major="M", b_form="K", gap=4), Case(128, 128, 64, batch=4, b_form="K"), Case(1, 40, 200, batch=5, b_form="N"),
    Case(17, 35, 50, a="half_t", b="half_t"), Case(17, 35, 50, a="half_t", b="half_t", b_form="K"),
    Case(17, 35, 50, a="half_t", b="half_t", a_major="M", b_form="N"), Case(16, 64, 33, a="bfloat16_t", b="bfloat16_t"),
    Case(9, 33, 33, a="bfloat16_t", b="bfloat16_t", b_form="N"), Case(17, 33, 41, a="double", b="double"),
    Case(17, 33, 41, a="double", b="double", b_form="K"), Case(17, 33, 41, a="double", b="double", a_major="M", b_form="N"),
    Case(17, 33, 41, a="uint8_t", b="int8_t"), Case(12, 40, 64, a="int8_t", b="int8_t", b_form="N"),
    Case(9, 17, 33, a="int64_t", b="int64_t", b_form="N"), Case(9, 17, 33, a="int32_t", b="int32_t"),
    Case(10, 32, 32, a="float", b="half_t"),
    *(Case(29, 75, 33, tile=f"{t.rows}, {t.vectors}") for t in CPU_TILES[1:]),
    *(Case(29, 75, 33, tile=f"{t.rows}, {t.vectors}", dynamic="MN", b_form="K") for t in CPU_TILES[1:]),
    Case(17, 33, 41, a="double", b="double", tile="12, 1"), Case(17, 35, 41, a="uint8_t", b="int8_t", tile="4, 2"),
)  # fmt: skip


def strides(case: Case) -> tuple[int, int, int, int]:
    """Row and column stride of A and of unpacked B."""
    a_row, a_col = {"K": (case.K + case.gap, 1), "M": (1, case.M + case.gap), "none": (2 * case.K + case.gap, 2)}[
        case.a_major
    ]
    b_row, b_col = {
        "N": (case.N + case.gap, 1),
        "K": (1, case.K + case.gap),
        "none": (2 * case.N, 2),
        "packed": (0, 0),
    }[case.b_form]
    return a_row, a_col, b_row, b_col


def extent(rows: int, cols: int, row: int, col: int) -> int:
    return max(0, rows - 1) * row + max(0, cols - 1) * col + 1


def source(i: int, case: Case) -> str:
    sizes = {"M": case.M, "N": case.N, "K": case.K, "B": case.batch}
    shape = "".join(
        f"  int {'batch' if s == 'B' else s};\n"
        if s in case.dynamic
        else f"  static constexpr int {'batch' if s == 'B' else s} = {v};\n"
        for s, v in sizes.items()
    )
    arguments = ", ".join(f"int(n[{'MNKB'.index(s)}])" for s in "MNKB" if s in case.dynamic)
    a_row, a_col, b_row, b_col = strides(case)
    a_step = extent(case.M, case.K, a_row, a_col)
    b_step = -(-case.N // 32) * 32 * case.K if case.b_form == "packed" else extent(case.K, case.N, b_row, b_col)
    b_kind = (
        "static constexpr bool packed = true;"
        if case.b_form == "packed"
        else f"static constexpr Major major = Major::{case.b_form}; static constexpr int64_t stride_row = {b_row}, stride_col = {b_col};"
    )
    S = sum_type(case.a, case.b)
    return f"""
namespace case_{i} {{
struct Shape {{
{shape}}};
struct A {{
  using type = {case.a};
  static constexpr Major major = Major::{case.a_major};
  static constexpr int64_t stride_row = {a_row}, stride_col = {a_col};
  const {case.a}* data;
  AITC_FN const {case.a}* matrix(int batch) const {{ return data + batch * int64_t({a_step}); }}
}};
struct B {{
  using type = {case.b};
  {b_kind}
  const {case.b}* data;
  AITC_FN const {case.b}* matrix(int batch) const {{ return data + batch * int64_t({b_step}); }}
}};
struct Store {{
  static constexpr int width = {case.width};
  {S}* out;
  uint8_t* hits;
  template <int V> AITC_FN void operator()(int batch, int64_t row, int64_t col, const {S} (&acc)[V]) const {{
    static_assert(V <= width, "");
    const int64_t at = (batch * int64_t({case.M}) + row) * {case.N + 3} + col;
    if (col % V != 0) return;  // then hits stay 0
    Vec<{S}, V> r;
    AITC_UNROLL for (int j = 0; j < V; ++j) r[j] = acc[j];
    store<V>(out + at, r);
    for (int j = 0; j < V; ++j) hits[at + j] += 1;
  }}
}};
RUN_({i}) {{
  (void)n;
  gemm<Tile<{case.tile}>>(Shape{{{arguments}}}, A{{as<const {case.a}>(p[0])}}, B{{as<const {case.b}>(p[1])}},
                Store{{as<{S}>(p[2]), as<uint8_t>(p[3])}});
}}
}}
"""


SOURCE = (
    '#include "aitc/cpu/gemm.h"\nusing namespace aitc;\n'
    + PROLOGUE
    + "".join(source(i, c) for i, c in enumerate(CASES))
)


def laid_out(x: np.ndarray, row: int, col: int, step: int) -> np.ndarray:
    flat = np.zeros((x.shape[0], step), x.dtype)
    i, j = np.arange(x.shape[1])[:, None] * row, np.arange(x.shape[2])[None, :] * col
    flat[:, (i + j).reshape(-1)] = x.reshape(x.shape[0], -1)
    return flat


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("i", range(len(CASES)), ids=[str(c).removeprefix("Case") for c in CASES])
def test_gemm(i: int, isa: str) -> None:
    case = CASES[i]
    library = build(SOURCE, isa)
    rng = np.random.default_rng(i)
    a, a_exact = values(rng, (case.batch, case.M, case.K), case.a)
    b, b_exact = values(rng, (case.batch, case.K, case.N), case.b)
    a_row, a_col, b_row, b_col = strides(case)
    a_stored = laid_out(a, a_row, a_col, extent(case.M, case.K, a_row, a_col))
    if case.b_form == "packed":
        n = -(-case.N // 32) * 32
        b_stored = (
            np.pad(b, ((0, 0), (0, 0), (0, n - case.N)))
            .reshape(case.batch, case.K, n // 32, 32)
            .transpose(0, 2, 1, 3)
            .copy()
        )
    else:
        b_stored = laid_out(b, b_row, b_col, extent(case.K, case.N, b_row, b_col))
    dtype = STORAGE[sum_type(case.a, case.b)]
    out = np.full((case.batch, case.M, case.N + 3), np.nan if np.dtype(dtype).kind == "f" else -1, dtype)
    hits = np.zeros(out.shape, np.uint8)
    call(library, f"run_{i}", (a_stored, b_stored, out, hits), (case.M, case.N, case.K, case.batch))
    assert (hits[..., : case.N] == 1).all(), "each result is stored once, at aligned columns"
    assert not hits[..., case.N :].any(), "nothing beyond the edge"
    expected = a_exact @ b_exact
    assert_sums(out[..., : case.N], expected, np.abs(a_exact) @ np.abs(b_exact))
