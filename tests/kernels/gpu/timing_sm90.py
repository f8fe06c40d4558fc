"""The Hopper kernels' main shapes, timed beside torch: BERT's and ViT's products and attention at batch 1 and 32."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import attention_sm90_cases, gemm_sm90_cases, grouped_sm90_cases
from .gemm_sm90_cases import Sm90Tile, SplitTile
from .timing import Race

T, K = Sm90Tile, SplitTile
LARGE = (
    T(128, 256, 4, 2), T(128, 192, 4, 2, 1, True), T(128, 192, 4, 1, 1, True), T(128, 128, 6, 2, 1, True), T(128, 128, 6, 1, 1, True), T(128, 128, 6),
    T(128, 64, 8, 1, 1, True), T(256, 128, 4),
)  # fmt: skip
SMALL = (T(64, 64, 12), T(128, 64, 8), T(64, 128, 8), K(64, 64, 6, 4), K(64, 64, 12, 2), K(64, 64, 6, 2), K(64, 64, 6, 8), K(64, 32, 8, 2), K(64, 64, 12, 1))


def _gemm(M: int, N: int, K: int, tiles: tuple[Sm90Tile | SplitTile, ...], dtype: str = "f16") -> Race:
    def rival(torch: Any, x: list[Any]) -> Any:
        return torch.addmm(x[2], x[0].view(M, K), x[1].view(N, K).t())

    make = tuple(gemm_sm90_cases.gemm(t.text, t, M, N, K, dtype, returns=dtype != "f32", light=True) for t in tiles)
    tag = "" if dtype == "f16" else " tf32"
    return Race(f"gemm_sm90{tag} {M},{N},{K}", 2.0 * M * N * K, 2.0 * (M * K + K * N + M * N), make, rival)


def _grouped(sizes: tuple[tuple[int, int, int], ...], tiles: tuple[Sm90Tile | SplitTile, ...]) -> Race:
    """The first product's results are compared; the rival's time is that of all of them, one after another."""

    def rival(torch: Any, x: list[Any]) -> Any:
        made = [torch.addmm(x[3 * n + 2], x[3 * n].view(M, K), x[3 * n + 1].view(N, K).t()) for n, (M, N, K) in enumerate(sizes)]
        for y in made[1::2]:
            y.relu_()
        return made[0]

    make = tuple(grouped_sm90_cases.grouped(t.text, t, sizes, light=True) for t in tiles)
    name = " ".join(f"{M},{N},{K}" for M, N, K in sizes)
    return Race(f"grouped_sm90 {name}", sum(2.0 * M * N * K for M, N, K in sizes), 0, make, rival)


def _attention(b: int, h: int, length: int, D: int, tiles: tuple[tuple[int, int, int, int, bool], ...], causal: bool = False) -> Race:
    def rival(torch: Any, x: list[Any]) -> Any:
        q, k, v = (t.view(b, length, h, D).transpose(1, 2) for t in x[:3])
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)

    make = tuple(attention_sm90_cases.attention(t, b, h, length, length, D, causal=causal, light=True) for t in tiles)
    return Race(f"attention_sm90 ({b},{h},{length},{D}){' causal' if causal else ''}", 4.0 * b * h * length * length * D / (2 if causal else 1), 0, make, rival)


def races() -> Iterator[Race]:
    """Candidates as the machine model may choose them."""
    for N, depth in ((2304, 768), (768, 768), (3072, 768), (768, 3072)):
        for M in (128, 197):
            yield _gemm(M, N, depth, SMALL)
        for M in (4096, 6304):
            yield _gemm(M, N, depth, LARGE)
    yield _gemm(4096, 4096, 4096, LARGE[:4])
    yield _gemm(16, 4096, 4096, (K(64, 64, 12, 2, 16), K(64, 64, 6, 2, 16), K(64, 64, 6, 4, 16)))
    floats = (T(128, 256, 4, 2), T(128, 128, 6, 2, 1, True), T(128, 128, 6), T(256, 128, 4), T(128, 192, 4))
    few = (T(64, 64, 12), T(128, 64, 8), K(64, 64, 6, 4), K(64, 64, 12, 2), K(64, 64, 6, 8))
    for N, depth in ((2304, 768), (768, 768), (3072, 768), (768, 3072)):
        yield _gemm(128, N, depth, few, "f32")
        yield _gemm(6304, N, depth, floats, "f32")
    yield _gemm(4096, 4096, 4096, floats[:4], "f32")
    qkv = ((128, 768, 768), (77, 320, 768), (77, 640, 768))
    heads = ((1600, 64, 576), (400, 64, 1152), (100, 64, 2304), (1600, 64, 576), (400, 64, 1152), (100, 64, 2304))
    for sizes in (qkv, heads, ((1, 4096, 4096), (1, 1024, 4096), (1, 1024, 4096))):
        yield _grouped(sizes, (T(64, 64, 12), K(64, 64, 6, 2), K(64, 64, 6, 4), K(64, 32, 8, 4)))
    one = ((128, 1, 1, 3, True), (128, 1, 1, 2, True), (128, 1, 2, 2, False))
    yield _attention(1, 12, 128, 64, one)
    yield _attention(32, 12, 128, 64, one)
    whole = ((208, 1, 1, 2, True), (128, 1, 2, 2, False), (208, 2, 1, 1, True))
    yield _attention(1, 12, 197, 64, whole)
    yield _attention(32, 12, 197, 64, whole)
    yield _attention(32, 12, 384, 64, ((128, 3, 2, 1, False), (128, 2, 2, 1, False), (128, 1, 2, 2, False)))
    yield _attention(1, 32, 2048, 128, ((128, 2, 2, 1, False), (176, 2, 2, 1, False)), causal=True)
