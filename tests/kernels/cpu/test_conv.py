"""cpu/conv.h and cpu/depthwise.h: windows of every kind in one to three dimensions, against float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from aitc.kernels.matmul.gemm_cpu import CPU_TILES

from .library import HAVE_COMPILER, ISAS, PROLOGUE, STORAGE, assert_sums, build, call, sum_type, values

pytestmark = pytest.mark.skipif(not HAVE_COMPILER, reason="no g++")

Triple = tuple[int, int, int]


@dataclass(frozen=True)
class Case:
    image: Triple  # D, H, W
    C: int  # within a group; of the image for a depthwise convolution
    K: int = 0  # within a group; 0: depthwise
    window: Triple = (1, 1, 1)
    stride: Triple = (1, 1, 1)
    dilation: Triple = (1, 1, 1)
    pad: Triple = (0, 0, 0)
    pad_end: Triple | None = None
    batch: int = 1
    groups: int = 1
    x: str = "float"
    w: str = "float"
    packed: bool = True
    dynamic: bool = False
    gap: int = 0  # channels of the image that belong to somebody else
    tile: str = ""  # of registers: rows, vectors; the instruction set's own if empty

    @property
    def output(self) -> Triple:
        end = self.pad if self.pad_end is None else self.pad_end
        sizes = [
            (self.image[i] + self.pad[i] + end[i] - self.dilation[i] * (self.window[i] - 1) - 1) // self.stride[i] + 1
            for i in range(3)
        ]
        return sizes[0], sizes[1], sizes[2]


CASES = (
    Case((1, 7, 7), 64, 32), Case((1, 9, 5), 33, 17, (1, 3, 3), pad=(0, 1, 1)), Case((1, 14, 14), 8, 40, (1, 3, 3), pad=(0, 1, 1)),
    Case((1, 31, 33), 3, 64, (1, 7, 7), (1, 2, 2), pad=(0, 3, 3)), Case((1, 32, 31), 1, 6, (1, 5, 5), pad=(0, 2, 2)),
    Case((1, 12, 12), 16, 48, (1, 3, 3), (1, 2, 2), pad=(0, 0, 0), pad_end=(0, 1, 1)),
    Case((1, 13, 11), 16, 16, (1, 3, 3), dilation=(1, 2, 3), pad=(0, 2, 3)),
    Case((1, 8, 8), 4, 4, (1, 3, 3), dilation=(1, 2, 2), pad=(0, 2, 2)),
    Case((1, 10, 10), 8, 4, (1, 3, 3), pad=(0, 1, 1), groups=4), Case((1, 6, 7), 2, 33, (1, 2, 2), groups=3, batch=2),
    Case((1, 5, 6), 1024, 33), Case((1, 9, 9), 32, 64, stride=(1, 2, 2), batch=3),
    Case((1, 1, 50), 20, 24, (1, 1, 5), (1, 1, 2), pad=(0, 0, 2)),
    Case((6, 5, 7), 8, 20, (3, 3, 3), pad=(1, 1, 1)), Case((5, 8, 6), 3, 16, (2, 3, 1), (2, 1, 2), (1, 1, 1), (0, 1, 0), batch=2),
    Case((1, 9, 9), 16, 24, (1, 3, 3), pad=(0, 1, 1), batch=2, dynamic=True), Case((1, 1, 1), 40, 10, dynamic=True),
    Case((1, 4, 3), 5, 7, (1, 3, 3), pad=(0, 1, 1), dynamic=True, groups=2), Case((1, 8, 8), 16, 40, (1, 3, 3), pad=(0, 1, 1), gap=7),
    Case((1, 6, 6), 3, 8, (1, 3, 3), pad=(0, 1, 1), gap=2), Case((1, 7, 7), 16, 33, (1, 3, 3), pad=(0, 1, 1), packed=False),
    Case((1, 7, 7), 16, 20, (1, 3, 3), pad=(0, 1, 1), x="half_t", w="half_t"),
    Case((1, 7, 7), 16, 20, (1, 3, 3), pad=(0, 1, 1), x="bfloat16_t", w="bfloat16_t", packed=False),
    Case((1, 7, 7), 16, 20, (1, 3, 3), pad=(0, 1, 1), x="uint8_t", w="int8_t"),
    Case((1, 7, 7), 12, 20, (1, 3, 3), pad=(0, 1, 1), x="double", w="double"), Case((1, 3, 3), 8, 8, (1, 3, 3), pad=(0, 4, 4)),
    *(Case((1, 7, 9), 12, 43, (1, 3, 3), pad=(0, 1, 1), tile=f"{t.rows}, {t.vectors}") for t in CPU_TILES[1:]),
    *(Case((1, 5, 6), 33, 20, dynamic=True, tile=f"{t.rows}, {t.vectors}") for t in CPU_TILES[1:]),
    # depthwise
    Case((1, 9, 9), 64, window=(1, 3, 3), pad=(0, 1, 1)), Case((1, 9, 10), 32, window=(1, 3, 3), stride=(1, 2, 2), pad=(0, 1, 1), batch=2),
    Case((1, 7, 7), 24, window=(1, 5, 5), pad=(0, 2, 2)), Case((1, 5, 3), 1, window=(1, 3, 3), pad=(0, 1, 1)),
    Case((1, 6, 6), 31, window=(1, 3, 3)), Case((1, 6, 6), 33, window=(1, 3, 3), pad=(0, 1, 1), dynamic=True),
    Case((1, 8, 8), 40, window=(1, 3, 3), dilation=(1, 2, 2), pad=(0, 2, 2)), Case((1, 1, 40), 12, window=(1, 1, 7), pad=(0, 0, 3)),
    Case((4, 5, 6), 17, window=(3, 3, 3), pad=(1, 1, 1)), Case((1, 6, 6), 16, window=(1, 3, 3), pad=(0, 1, 1), x="half_t", w="half_t"),
    Case((1, 6, 6), 20, window=(1, 3, 3), pad=(0, 1, 1), x="uint8_t", w="int8_t"),
    Case((1, 6, 6), 48, window=(1, 3, 3), pad=(0, 1, 1), gap=9),
    Case((1, 40, 40), 96, window=(1, 3, 3), pad=(0, 1, 1), x="double", w="double"),
)  # fmt: skip


def struct(name: str, members: dict[str, int], dynamic: bool) -> str:
    if dynamic:
        return f"struct {name} {{ int {', '.join(members)}; }};"
    return f"struct {name} {{ static constexpr int {', '.join(f'{k} = {v}' for k, v in members.items())}; }};"


def source(i: int, case: Case) -> str:
    depthwise = case.K == 0
    channels = case.C * case.groups + case.gap
    (D, H, W), out = case.image, case.output
    sizes = {"batch": case.batch, "D": D, "H": H, "W": W, "O": out[0], "P": out[1], "Q": out[2], "C": case.C}
    if not depthwise:
        sizes |= {"K": case.K, "groups": case.groups}
    names = [("T", "R", "S")] + [(f"{kind}_d", f"{kind}_h", f"{kind}_w") for kind in ("stride", "dilation", "pad")]
    window = {
        n: v
        for group, numbers in zip(names, (case.window, case.stride, case.dilation, case.pad), strict=True)
        for n, v in zip(group, numbers, strict=True)
    }
    depth = case.window[0] * case.window[1] * case.window[2] * case.C
    cols = case.C if depthwise else case.K
    step = -(-case.K // 32) * 32 * depth if case.packed else case.K * depth
    kind = (
        "static constexpr bool packed = true;"
        if case.packed
        else f"static constexpr Major major = Major::K; static constexpr int64_t stride_row = 1, stride_col = {depth};"
    )
    matrix = (
        ""
        if depthwise
        else f"{kind} AITC_FN const type* matrix(int group) const {{ return data + group * int64_t({step}); }}"
    )
    S = sum_type(case.x, case.w)

    def make(name: str, members: dict[str, int]) -> str:
        return f"{name}{{{', '.join(map(str, members.values())) if case.dynamic else ''}}}"

    return f"""
namespace case_{i} {{
{struct("Shape", sizes, case.dynamic)}
{struct("Window", window, case.dynamic)}
struct X {{
  using type = {case.x};
  static constexpr int64_t stride_n = {D * H * W * channels}, stride_d = {H * W * channels}, stride_h = {W * channels},
                           stride_w = {channels};
  const type* data;
}};
struct Filter {{ using type = {case.w}; const type* data; {matrix} }};
struct Store {{
  static constexpr int width = 16;
  {S}* out;
  uint8_t* hits;
  template <int V> AITC_FN void operator()(int group, int64_t row, int64_t col, const {S} (&acc)[V]) const {{
    const int64_t at = row * {cols * case.groups + 3} + group * {cols} + col;
    if (col % V != 0) return;
    Vec<{S}, V> r;
    AITC_UNROLL for (int j = 0; j < V; ++j) r[j] = acc[j];
    store<V>(out + at, r);
    for (int j = 0; j < V; ++j) hits[at + j] += 1;
  }}
}};
RUN_({i}) {{
  (void)n;
  {"depthwise" if depthwise else f"conv<Tile<{case.tile}>>"}({make("Shape", sizes)}, {make("Window", window)}, X{{as<const {case.x}>(p[0])}},
      Filter{{as<const {case.w}>(p[1])}}, Store{{as<{S}>(p[2]), as<uint8_t>(p[3])}});
}}
}}
"""


SOURCE = '#include "aitc/cpu/conv.h"\n#include "aitc/cpu/depthwise.h"\nusing namespace aitc;\n' + PROLOGUE + "".join(
    source(i, c) for i, c in enumerate(CASES)
)  # fmt: skip


def reference(case: Case, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """x (N, D, H, W, groups, C), w (groups, K, T, R, S, C) -> (N, O, P, Q, groups, K); depthwise: K of one channel each."""
    big = (
        [(0, 0)]
        + [(case.pad[i], case.stride[i] * case.output[i] + case.dilation[i] * case.window[i]) for i in range(3)]
        + [(0, 0), (0, 0)]
    )
    padded = np.pad(x, big)
    total = None
    for tap in np.ndindex(*case.window):
        cut = tuple(
            slice(
                tap[i] * case.dilation[i],
                tap[i] * case.dilation[i] + case.stride[i] * (case.output[i] - 1) + 1,
                case.stride[i],
            )
            for i in range(3)
        )
        part = np.einsum("ndhwgc,gkc->ndhwgk", padded[(slice(None), *cut)], w[(slice(None), slice(None), *tap)])
        total = part if total is None else total + part
    assert total is not None
    return total


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    "i", range(len(CASES)), ids=[f"{i}-{'conv' if c.K else 'depthwise'}" for i, c in enumerate(CASES)]
)
def test_conv(i: int, isa: str) -> None:
    case = CASES[i]
    library = build(SOURCE, isa)
    rng = np.random.default_rng(i)
    depthwise = case.K == 0
    groups, C, K = (case.C, 1, 1) if depthwise else (case.groups, case.C, case.K)
    x, x_exact = values(rng, (case.batch, *case.image, groups, C), case.x)
    w, w_exact = values(rng, (groups, K, *case.window, C), case.w)
    stored = np.zeros((case.batch, *case.image, groups * C + case.gap), x.dtype)
    stored[..., : groups * C] = x.reshape(case.batch, *case.image, groups * C)
    taps = int(np.prod(case.window))
    if depthwise:
        filters = w.reshape(groups, taps).T.copy()
    elif case.packed:
        b = w.reshape(groups, K, taps * C).transpose(0, 2, 1)
        columns = -(-K // 32) * 32
        filters = (
            np.pad(b, ((0, 0), (0, 0), (0, columns - K)))
            .reshape(groups, taps * C, columns // 32, 32)
            .transpose(0, 2, 1, 3)
            .copy()
        )
    else:
        filters = w
    pixels = case.batch * int(np.prod(case.output))
    dtype = np.dtype(STORAGE[sum_type(case.x, case.w)])
    out = np.full((pixels, groups * K + 3), np.nan if dtype.kind == "f" else -1, dtype)
    hits = np.zeros(out.shape, np.uint8)
    call(library, f"run_{i}", (stored, filters, out, hits))
    assert (hits[:, : groups * K] == 1).all(), "each result is stored once, at aligned columns"
    assert not hits[:, groups * K :].any(), "nothing beyond the edge"
    expected = reference(case, x_exact, w_exact).reshape(pixels, groups * K)
    magnitude = reference(case, np.abs(x_exact), np.abs(w_exact)).reshape(pixels, groups * K)
    assert_sums(out[:, : groups * K], expected, magnitude)
