"""cpu/attention.h against float64: masks, causal, grouped heads, lengths around the tiles and beyond one block of keys."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from .library import HAVE_COMPILER, ISAS, PROLOGUE, build, call, values

pytestmark = pytest.mark.skipif(not HAVE_COMPILER, reason="no g++")


@dataclass(frozen=True)
class Case:
    queries: int
    keys: int
    D: int
    DV: int
    heads: int = 2
    kv_heads: int = 2
    batch: int = 1
    causal: bool = False
    mask: bool = False
    dynamic: bool = False
    type: str = "float"

    @property
    def offset(self) -> int:
        return self.keys - self.queries


CASES = (
    Case(128, 128, 64, 64, 3, 3, mask=True), Case(1, 1, 8, 8), Case(31, 33, 32, 40), Case(33, 31, 20, 17, causal=True),
    Case(7, 700, 16, 64, 4, 2, 2, causal=True),
    Case(1, 1100, 64, 64, 8, 2, dynamic=True, causal=True), Case(45, 45, 24, 24, 4, 1, 2, causal=True, mask=True, dynamic=True),
    Case(5, 513, 33, 31, mask=True, dynamic=True), Case(64, 96, 64, 64, type="half_t", mask=True),
    Case(12, 40, 16, 16, type="bfloat16_t", causal=True),
)  # fmt: skip


def source(i: int, c: Case) -> str:
    sizes = {
        "batch": c.batch,
        "heads": c.heads,
        "kv_heads": c.kv_heads,
        "queries": c.queries,
        "keys": c.keys,
        "D": c.D,
        "DV": c.DV,
        "offset": c.offset,
    }
    if c.dynamic:
        shape, make = (
            f"int {', '.join(sizes)}; float scale;",
            f"Shape{{{', '.join(map(str, sizes.values()))}, {c.D**-0.5!r}f}}",
        )
    else:
        shape = f"static constexpr int {', '.join(f'{k} = {v}' for k, v in sizes.items())}; static constexpr float scale = {c.D**-0.5!r}f;"
        make = "Shape{}"

    def operand(name: str, rows: int, heads: int, D: int) -> str:
        return f"""struct {name} {{
  using type = {c.type};
  static constexpr int64_t stride_row = {heads * D};
  const type* data;
  AITC_FN const type* base(int batch, int head) const {{ return data + batch * int64_t({rows * heads * D}) + head * {D}; }}
}};"""

    mask = f"return data[((batch * {c.heads} + head) * int64_t({c.queries}) + row) * {c.keys} + col];"
    return f"""
namespace case_{i} {{
struct Shape {{ {shape} }};
{operand("Q", c.queries, c.heads, c.D)}
{operand("K", c.keys, c.kv_heads, c.D)}
{operand("V", c.keys, c.kv_heads, c.DV)}
struct Mask {{
  const float* data;
  AITC_FN float operator()(int batch, int head, int row, int col) const {{ {mask} }}
}};
struct Store {{
  static constexpr int width = 16;
  float* out;
  uint8_t* hits;
  template <int V> AITC_FN void operator()(int batch, int head, int64_t row, int64_t d, const float (&acc)[V]) const {{
    const int64_t at = ((batch * {c.heads} + head) * int64_t({c.queries}) + row) * {c.DV} + d;
    if (d % V != 0) return;
    Vec<float, V> r;
    AITC_UNROLL for (int j = 0; j < V; ++j) r[j] = acc[j];
    store<V>(out + at, r);
    for (int j = 0; j < V; ++j) hits[at + j] += 1;
  }}
}};
RUN_({i}) {{
  (void)n;
  attention<{str(c.causal).lower()}>({make}, Q{{as<const {c.type}>(p[0])}}, K{{as<const {c.type}>(p[1])}}, V{{as<const {c.type}>(p[2])}},
      {"Mask{as<const float>(p[3])}" if c.mask else "NoMask{}"}, Store{{as<float>(p[4]), as<uint8_t>(p[5])}});
}}
}}
"""


SOURCE = (
    '#include "aitc/cpu/attention.h"\nusing namespace aitc;\n'
    + PROLOGUE
    + "".join(source(i, c) for i, c in enumerate(CASES))
)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("i", range(len(CASES)), ids=[str(c).removeprefix("Case") for c in CASES])
def test_attention(i: int, isa: str) -> None:
    c = CASES[i]
    library = build(SOURCE, isa)
    rng = np.random.default_rng(i)
    q, q_exact = values(rng, (c.batch, c.queries, c.heads, c.D), c.type)
    k, k_exact = values(rng, (c.batch, c.keys, c.kv_heads, c.D), c.type)
    v, v_exact = values(rng, (c.batch, c.keys, c.kv_heads, c.DV), c.type)
    mask = np.where(rng.random((c.batch, c.heads, c.queries, c.keys)) < 0.3, -np.inf, rng.standard_normal(())).astype(
        np.float32
    )
    mask[..., 0] = 0.5  # every query sees a key
    out = np.full((c.batch, c.heads, c.queries, c.DV), np.nan, np.float32)
    hits = np.zeros(out.shape, np.uint8)
    call(library, f"run_{i}", (q, k, v, mask, out, hits))
    assert (hits == 1).all()
    share = c.heads // c.kv_heads
    scores = np.einsum("bqhd,bkhd->bhqk", q_exact, np.repeat(k_exact, share, 2)) * np.float32(c.D**-0.5)
    if c.mask:
        scores = scores + mask
    if c.causal:
        seen = np.arange(c.keys)[None, :] <= np.arange(c.queries)[:, None] + c.offset
        scores = np.where(seen, scores, -np.inf)
    with np.errstate(invalid="ignore"):
        e = np.exp(scores - scores.max(-1, keepdims=True))
    expected = np.einsum("bhqk,bkhd->bhqd", e / e.sum(-1, keepdims=True), np.repeat(v_exact, share, 2))
    np.testing.assert_array_equal(np.isnan(out), np.isnan(expected))  # queries before the first key see nothing
    np.testing.assert_allclose(out, expected, rtol=2e-5, atol=2e-6)
