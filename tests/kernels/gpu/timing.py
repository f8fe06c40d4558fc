"""The main shapes, timed beside torch (cuBLAS, cuDNN, SDPA) in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .attention_cases import attention
from .conv_cases import conv
from .device import Kernel
from .gemm_cases import GemvTile, SimtTile, Sm80Tile, gemm
from .problem import Input, Output, Problem, Scalar, Scratch
from .rowwise_cases import depthwise, normalization, transposition


@dataclass(frozen=True, slots=True)
class Race:
    """Candidates for one problem, and what torch makes of it: a function of (torch, buffers) -> result, given the kernels' buffers."""

    name: str
    flops: float
    bytes: float
    candidates: tuple[Problem, ...]
    rival: Callable[[Any, list[Any]], Any]


S, F, G = Sm80Tile, SimtTile, GemvTile
LARGE_TILES = (
    S(128, 128, 32, 2, 2, 4),
    S(128, 128, 64, 2, 2, 3),
    S(128, 256, 32, 2, 4, 3),
    S(128, 192, 32, 2, 4, 4),
    S(128, 96, 64, 2, 2, 3),
    S(64, 128, 64, 2, 2, 3),
)
SMALL_TILES = (
    S(64, 64, 64, 2, 2, 4),
    S(32, 64, 64, 1, 2, 4, 2),
    S(32, 32, 128, 1, 1, 4, 4),
    S(64, 32, 64, 2, 1, 4, 4),
    S(16, 32, 128, 1, 1, 4, 8),
    S(32, 32, 64, 1, 1, 6, 4),
)
TF32_TILES = (
    S(128, 128, 16, 2, 2, 4),
    S(128, 128, 32, 2, 2, 3),
    S(128, 64, 32, 2, 2, 3),
    S(64, 64, 32, 2, 2, 4),
    S(128, 128, 32, 2, 4, 3),
)
SIMT = (
    F(128, 128, 8, 8, 8),
    F(128, 64, 8, 8, 4),
    F(64, 64, 16, 4, 4),
    F(64, 64, 16, 8, 8, 4),
    F(32, 64, 16, 4, 4, 2),
    F(32, 32, 16, 4, 4, 4),
    F(32, 32, 8, 4, 4, 8),
)
GEMV_HALF = (G("K", 1, 8, 2, 4), G("K", 1, 8, 1, 4), G("K", 1, 8, 4, 2))
GEMV_FLOAT = (G("K", 1, 4, 2, 4), G("K", 1, 4, 1, 4), G("K", 1, 4, 4, 4))
GEMV_N = (G("N", 1, 4, 8, 16), G("N", 1, 2, 8, 8), G("N", 1, 4, 4, 16))
IDENTITY = (1, 1, 1)


def _gemm_race(
    M: int,
    N: int,
    K: int,
    dtype: str,
    tiles: tuple[Sm80Tile | SimtTile | GemvTile, ...],
    majors: tuple[str, str] = ("K", "K"),
) -> Race:
    def rival(torch: Any, x: list[Any]) -> Any:
        a, b, bias = x[0].view(M, K), (x[1].view(N, K).t() if majors[1] == "K" else x[1].view(K, N)), x[2]
        return torch.addmm(bias, a, b)

    kind = "gemv" if isinstance(tiles[0], GemvTile) else "gemm_simt" if isinstance(tiles[0], SimtTile) else "gemm_sm80"
    make = tuple(gemm(t.text, t, M, N, K, dtype, majors, epilogue="bias", dynamic=False, light=True) for t in tiles)
    return Race(
        f"{kind} {dtype} {M},{N},{K} {''.join(majors)}", 2.0 * M * N * K, 2.0 * (M * K + K * N + M * N), make, rival
    )


def _conv_race(
    n: int, side: int, c: int, k: int, f: int, stride: int, dtype: str, tiles: tuple[Sm80Tile | SimtTile, ...]
) -> Race:
    pad, out = f // 2, (side + 2 * (f // 2) - f) // stride + 1

    def rival(torch: Any, x: list[Any]) -> Any:
        image, filters = x[0].view(n, side, side, c).permute(0, 3, 1, 2), x[1].view(k, f, f, c).permute(0, 3, 1, 2)
        return torch.relu(torch.nn.functional.conv2d(image, filters, x[2], stride, pad)).permute(0, 2, 3, 1)

    make = tuple(
        conv(
            t.text,
            t,
            n,
            (1, side, side),
            c,
            k,
            (1, f, f),
            (1, stride, stride),
            IDENTITY,
            (0, pad, pad),
            dtype=dtype,
            light=True,
        )
        for t in tiles
    )
    kind = "simt" if isinstance(tiles[0], SimtTile) else "sm80"
    flops = 2.0 * n * out * out * k * f * f * c
    return Race(
        f"conv_{kind} {dtype} {n} x {side}x{side}x{c} -> {k}, {f}x{f}/{stride}",
        flops,
        2.0 * (n * side * side * c + n * out * out * k),
        make,
        rival,
    )


def _attention_race(
    kernel: str,
    b: int,
    h: int,
    length: int,
    D: int,
    dtype: str,
    tiles: tuple[tuple[int, int, int], ...],
    causal: bool = False,
) -> Race:
    def rival(torch: Any, x: list[Any]) -> Any:
        q, k, v = (t.view(b, length, h, D).transpose(1, 2) for t in x[:3])
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)

    make = tuple(attention(kernel, t, b, h, length, length, D, causal=causal, dtype=dtype, light=True) for t in tiles)
    return Race(
        f"{kernel} {dtype} ({b},{h},{length},{D}){' causal' if causal else ''}",
        4.0 * b * h * length * length * D / (2 if causal else 1),
        0,
        make,
        rival,
    )


def _decode_race(b: int, heads: int, kv_heads: int, keys: int, D: int, dtype: str = "f16") -> Race:
    """A decoding step: one query, a long cache."""

    def rival(torch: Any, x: list[Any]) -> Any:
        q = x[0].view(b, 1, heads, D).transpose(1, 2)
        k, v = (t.view(b, keys, kv_heads, D).transpose(1, 2) for t in x[1:3])
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(1, 2)

    full = max(1, round(264 / (b * kv_heads)))
    splits = sorted({1, max(1, full // 2), full, min(64, 2 * full)})
    if dtype == "f32":
        kernel, tiles = "attention_split_simt", [(4, 4, 32, u, w, n) for n in (*splits, 32) for u, w in ((4, 4), (2, 4), (4, 2))]
    else:
        kernel = "attention_split_sm80"
        tiles = [(16, 4, 3, 1, n) for n in splits] + [(16, 4, 4, 1, full), (16, 8, 3, 1, full), (32, 4, 2, 1, full)]
    make = tuple(attention(kernel, t, b, heads, 1, keys, D, kv_heads=kv_heads, dtype=dtype, light=True) for t in tiles)
    size = 4.0 if dtype == "f32" else 2.0
    return Race(f"{kernel} {dtype} decode ({b},{heads}/{kv_heads},1x{keys},{D})", 0, 2 * size * b * kv_heads * keys * D, make, rival)


def races() -> Iterator[Race]:
    """What DESIGN.md names: BERT's and ResNet's shapes, a few large ones."""
    for M, N, K in ((12288, 768, 768), (12288, 3072, 768), (12288, 768, 3072), (4096, 4096, 4096)):
        yield _gemm_race(M, N, K, "f16", LARGE_TILES)
    yield _gemm_race(12288, 768, 768, "f16", LARGE_TILES[:3], ("K", "N"))
    for M, N, K in ((128, 768, 768), (128, 3072, 768), (128, 768, 3072), (32, 1000, 2048)):
        yield _gemm_race(M, N, K, "f16", SMALL_TILES)
    for M, N, K in ((4096, 4096, 4096), (12288, 768, 768)):
        yield _gemm_race(M, N, K, "f32", TF32_TILES)
    for M, N, K in ((4096, 4096, 4096), (12288, 768, 768), (128, 768, 3072), (128, 768, 768), (32, 1000, 2048)):
        yield _gemm_race(M, N, K, "f32", SIMT)
    for N, K in ((1000, 2048), (4096, 4096)):
        yield _gemm_race(1, N, K, "f16", GEMV_HALF)
        yield _gemm_race(1, N, K, "f16", GEMV_N, ("K", "N"))
        yield _gemm_race(1, N, K, "f32", GEMV_FLOAT)
    conv_tiles = (
        S(128, 64, 32, 2, 2, 4),
        S(128, 64, 64, 2, 2, 3),
        S(64, 64, 64, 2, 2, 3),
        S(64, 64, 32, 2, 2, 4),
        S(32, 64, 64, 1, 2, 4, 2),
        S(32, 32, 128, 1, 1, 4, 4),
    )
    for n in (1, 32):
        for side, c, k, f, stride in (
            (224, 3, 64, 7, 2),
            (224, 4, 64, 7, 2),
            (56, 64, 64, 3, 1),
            (56, 64, 256, 1, 1),
            (28, 128, 128, 3, 1),
            (14, 256, 256, 3, 1),
            (7, 512, 512, 3, 1),
        ):
            yield _conv_race(n, side, c, k, f, stride, "f16", conv_tiles)
    for n in (1, 32):
        for side, c, k, f, stride in (
            (224, 3, 64, 7, 2),
            (56, 64, 64, 3, 1),
            (14, 256, 256, 3, 1),
            (7, 512, 512, 3, 1),
        ):
            yield _conv_race(n, side, c, k, f, stride, "f32", SIMT)
    half = ((64, 64, 4), (128, 64, 4), (128, 32, 4), (64, 32, 4), (64, 128, 4))
    for b, h, length, D in ((1, 12, 128, 64), (32, 12, 128, 64), (32, 12, 384, 64), (32, 12, 197, 64)):
        yield _attention_race("attention_sm80", b, h, length, D, "f16", half)
    yield _attention_race("attention_sm80", 1, 32, 4096, 128, "f16", half[:4], causal=True)
    for b, keys in ((1, 1024), (1, 4096), (1, 32768), (4, 4096), (16, 1024), (16, 4096), (64, 1024), (64, 4096)):
        yield _decode_race(b, 32, 8, keys, 128)
    for b, keys in ((1, 4096), (1, 32768), (16, 4096)):
        yield _decode_race(b, 32, 8, keys, 128, "f32")
    for b, h, length, D in ((1, 12, 128, 64), (32, 12, 128, 64)):
        yield _attention_race("attention_simt", b, h, length, D, "f32", ((32, 32, 2), (64, 32, 4), (64, 64, 4)))
    side, c = 56, 144
    yield Race(
        "depthwise f16 32 x 56x56x144, 3x3",
        0,
        4.0 * 32 * side * side * c,
        tuple(
            depthwise(t, 32, (1, side, side), c, (1, 3, 3), pad=(0, 1, 1), light=True)
            for t in ((8, 4, 128), (8, 2, 128), (4, 4, 128))
        ),
        lambda torch, x: torch.nn.functional.conv2d(
            x[0].view(32, side, side, c).permute(0, 3, 1, 2), x[1].view(9, c).t().reshape(c, 1, 3, 3), None, 1, 1, 1, c
        ).permute(0, 2, 3, 1),
    )
    rows, K = 12288, 768
    yield Race(
        f"layer norm f16 ({rows},{K})",
        0,
        4.0 * rows * K,
        tuple(
            normalization("LayerNorm", "rows", t, rows, K, light=True)
            for t in ((8, 32, 3, 128), (8, 32, 3, 256), (8, 96, 1, 96))
        ),
        lambda torch, x: torch.nn.functional.layer_norm(x[0].view(rows, K), (K,), weight=x[1]),
    )
    yield Race(
        "softmax f16 (49152,128)",
        0,
        4.0 * 49152 * 128,
        tuple(normalization("Softmax", "rows", t, 49152, 128, light=True) for t in ((8, 16, 1, 128), (4, 32, 1, 128))),
        lambda torch, x: torch.softmax(x[0].view(49152, 128), 1) * x[1],
    )
    yield Race(
        "transpose f16 (32,3136,256)",
        0,
        4.0 * 32 * 3136 * 256,
        tuple(transposition(t, 32, 3136, 256, light=True) for t in ((64, 64, 256), (32, 64, 128), (64, 64, 128))),
        lambda torch, x: x[0].view(32, 3136, 256).transpose(1, 2).contiguous(),
    )


def _time_us(torch: Any, call: Callable[[], object], quick: float) -> float:
    """Median microseconds of one call among the calls of a replayed CUDA graph; `quick`: milliseconds a round."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(3):
        call()
    end.record()
    torch.cuda.synchronize()
    count = max(2, min(200, int(quick / max(begin.elapsed_time(end) / 3, 1e-3))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            call()
    times = []
    for _ in range(6):
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / count * 1e3)
    return sorted(times[1:])[2]


_TORCH = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i32": "int32"}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate's time, and its error against the rival's result."""

    us: float
    name: str
    error: float


@dataclass(frozen=True, slots=True)
class RaceResult:
    """What a race came to: every candidate, in order, beside torch."""

    race: str
    flops: float
    bytes: float
    rival_us: float
    candidates: tuple[Candidate, ...]

    @property
    def best(self) -> Candidate:
        """The fastest."""
        return min(self.candidates, key=lambda c: c.us)

    @property
    def wrong(self) -> bool:
        """Whether any candidate computes something else than torch."""
        return any(not c.error < 5e-3 for c in self.candidates)

    def __str__(self) -> str:
        best = self.best
        rate = f"{self.flops / best.us / 1e6:6.1f} T" if self.flops else f"{self.bytes / best.us / 1e3:6.0f} GB/s"
        others = " ".join(f"{c.us:.1f}" for c in self.candidates)
        ratio = f"torch {self.rival_us:8.2f} us  ours {best.us:8.2f} us  {self.rival_us / best.us:5.2f}x"
        return f"{self.race:48s} {ratio}  {rate}  [{best.name}] error {best.error:.1e} all: {others}{' WRONG' if self.wrong else ''}"


def run_race(race: Race, cubins: list[Path], torch: Any) -> RaceResult:
    """Times every candidate beside torch, in one process."""
    first = race.candidates[0]
    torch.manual_seed(0)
    shared = [a for a in first.arguments if not isinstance(a, Scalar | Scratch)]
    buffers = [
        torch.randn((a.values if isinstance(a, Input) else a.expected).size, device="cuda").to(
            getattr(torch, _TORCH[a.dtype])
        )
        for a in shared
    ]
    inputs = [b for b, a in zip(buffers, shared, strict=True) if isinstance(a, Input)]
    outputs = [b for b, a in zip(buffers, shared, strict=True) if isinstance(a, Output)]
    expected = race.rival(torch, inputs).float().reshape(-1)
    rival_us = _time_us(torch, lambda: race.rival(torch, inputs), 2.0)
    found = []
    for problem, cubin in zip(race.candidates, cubins, strict=True):
        kernel = Kernel(problem, cubin)
        own = {
            i: torch.zeros(a.expected.size, device="cuda", dtype=getattr(torch, _TORCH[a.dtype]))
            for i, a in enumerate(a for a in problem.arguments if not isinstance(a, Scalar))
            if isinstance(a, Scratch)
        }
        rest = iter(buffers)
        count = sum(not isinstance(a, Scalar) for a in problem.arguments)
        every = [own[i] if i in own else next(rest) for i in range(count)]
        arguments, keep = kernel.arguments([b.data_ptr() for b in every])
        outputs[0].fill_(float("nan"))
        kernel.launch(arguments, torch.cuda.current_stream().cuda_stream)
        torch.cuda.synchronize()
        error = float((outputs[0].float() - expected).norm() / expected.norm())
        us = _time_us(torch, lambda k=kernel, a=arguments: k.launch(a, torch.cuda.current_stream().cuda_stream), 2.0)
        found.append(Candidate(us, problem.name.split("<")[-1].rstrip(">") if "<" in problem.name else problem.name, error))
        del keep
    return RaceResult(race.name, race.flops, race.bytes, rival_us, tuple(found))
