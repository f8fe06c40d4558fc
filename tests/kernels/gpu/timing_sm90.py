"""The Hopper kernels' main shapes, timed beside torch: every product of ResNet-50, BERT, ViT and Stable Diffusion, and attention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aitc.kernels.hopper import sm90
from aitc.kernels.hopper.chain_sm90 import ChainProblem, ChainSm90
from aitc.kernels.hopper.product_sm90 import product_configs
from aitc.targets.target import find_target

from . import attention_sm90_cases, chain_sm90_cases, gemm_sm90_cases, grouped_sm90_cases
from .chain_sm90_cases import ChainTile
from .gemm_sm90_cases import Sm90Tile, SplitTile
from .timing import Race

T, K = Sm90Tile, SplitTile
TRANSFORMER = ((2304, 768), (768, 768), (3072, 768), (768, 3072))
PRODUCTS = {
    "BERT": tuple((M, *nk) for M in (128, 384, 1024, 4096, 12288) for nk in TRANSFORMER),
    "ViT": tuple((M, *nk) for M in (197, 6304) for nk in TRANSFORMER),
    "UNet": tuple((M, c * n, c * k) for M, c in ((8192, 320), (2048, 640), (512, 1280), (128, 1280)) for n, k in ((1, 1), (3, 1), (4, 1), (1, 4))),
    "VAE": ((4096, 512, 512), (4096, 1536, 512)),
    "ResNet": tuple(
        (batch * pixels, N, depth)
        for batch in (1, 8, 32, 256)
        for pixels, N, depth in (
            (3136, 64, 64), (3136, 256, 64), (3136, 64, 256), (3136, 128, 256), (784, 512, 128), (784, 128, 512), (784, 512, 256), (784, 256, 512),
            (196, 1024, 256), (196, 256, 1024), (196, 1024, 512), (196, 512, 1024), (49, 2048, 512), (49, 512, 2048), (49, 2048, 1024),
        )
    ),
}  # fmt: skip
"""(M, N, K) of the products in half precision: linear layers, and convolutions of one tap."""


def likely(M: int, N: int, K: int, count: int, dtype: str = "f16", staged: bool = False) -> tuple[Sm90Tile | SplitTile, ...]:
    """What aitc offers, the best by its machine model first: the first is what it compiles without a table."""
    target = find_target("h200")
    size = sm90.elem_bytes(dtype)
    extent = sm90.Extent(1, M, N, -(-K * size // sm90.BLOCK_BYTES), float(size * (M * K + K * N + M * N)), True)
    offered = product_configs(dtype, size == 2, staged, M, target)
    best = sorted(offered, key=lambda c: sm90.products_us([c], [extent], target))[:count]
    return tuple(
        SplitTile(c.BM, c.BN, c.stages, c.split, c.rows) if isinstance(c, sm90.Sm90Split)
        else Sm90Tile(c.BM, c.BN, c.stages, c.cluster_m, c.cluster_n, c.ping_pong, c.staged) for c in best
    )  # fmt: skip


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


BLOCKS = ((3136, 256, 64, 64), (3136, 256, 64, 128), (784, 512, 128, 128), (784, 512, 128, 256), (196, 1024, 256, 256))
CHAINS = (*((batch * pixels, *sizes) for batch in (1, 8, 32, 256) for pixels, *sizes in BLOCKS), (100352, 384, 96, 96), (25088, 768, 192, 192))
"""(M, N, K, N2) of two products in one launch: the last convolution of a block of ResNet-50 and the first of the next; feed-forward blocks of
ConvNeXt and Swin."""


def _chain(M: int, N: int, depth: int, outer: int, count: int = 4) -> Race:
    """The first result is kept, and has a residual added, but for feed-forward blocks."""
    kept = depth not in (96, 192)
    target = find_target("h200")
    traffic = 2 * (M * depth + N * depth + N * outer + M * outer + (2 * M * N if kept else 0))
    one, other = sm90.Extent(1, M, N, -(-depth // 64), 0.0, True), sm90.Extent(1, M, outer, N // 64, 0.0, True)
    kernel, problem = ChainSm90(), ChainProblem(None, None, one, other, traffic, kept, kept, False)
    best = sorted(kernel.configs(problem, target), key=lambda c: kernel.score_us(problem, c, target))[:count]
    tiles = tuple(ChainTile(c.BM, c.BN, c.BE, c.stages, c.slots, c.stored, c.staged) for c in best)

    def rival(torch: Any, x: list[Any]) -> Any:
        d = torch.addmm(x[3], x[0].view(M, depth), x[1].view(N, depth).t())
        d = (d + x[5].view(M, N) if kept else d).relu_()
        e = torch.addmm(x[4], d, x[2].view(N, outer)).relu_()
        return d if kept else e

    make = tuple(chain_sm90_cases.chain(t.text, t, M, N, depth, outer, light=True) for t in tiles)
    return Race(f"chain_sm90 {M},{N},{depth},{outer}", 2.0 * M * N * (depth + outer), traffic, make, rival)


def _attention(
    b: int, h: int, length: int, D: int, tiles: tuple[tuple[int, int, int, int, bool], ...], causal: bool = False, keys: int | None = None
) -> Race:
    keys = keys or length

    def rival(torch: Any, x: list[Any]) -> Any:
        q, k, v = (t.view(b, rows, h, D).transpose(1, 2) for t, rows in zip(x[:3], (length, keys, keys), strict=True))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)

    make = tuple(attention_sm90_cases.attention(t, b, h, length, keys, D, causal=causal, light=True) for t in tiles)
    name = f"attention_sm90 ({b},{h},{length}{f'x{keys}' if keys != length else ''},{D}){' causal' if causal else ''}"
    return Race(name, 4.0 * b * h * length * keys * D / (2 if causal else 1), 0, make, rival)


def races() -> Iterator[Race]:
    """Three candidates of a product, as the machine model chooses them."""
    for shape in dict.fromkeys(p for products in PRODUCTS.values() for p in products):
        yield _gemm(*shape, likely(*shape, 3))
    yield _gemm(4096, 4096, 4096, likely(4096, 4096, 4096, 4))
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
    for links in CHAINS:
        yield _chain(*links)
    one = ((128, 1, 1, 3, True), (128, 1, 1, 2, True), (128, 1, 2, 2, False))
    yield _attention(1, 12, 128, 64, one)
    yield _attention(32, 12, 128, 64, one)
    whole = ((208, 1, 1, 2, True), (128, 1, 2, 2, False), (208, 2, 1, 1, True))
    yield _attention(1, 12, 197, 64, whole)
    yield _attention(32, 12, 197, 64, whole)
    yield _attention(32, 12, 384, 64, ((128, 3, 2, 1, False), (128, 2, 2, 1, False), (128, 1, 2, 2, False)))
    yield _attention(1, 32, 2048, 128, ((128, 2, 2, 1, False), (176, 2, 2, 1, False)), causal=True)
    streams = tuple((*t, False) for t in ((128, 3, 2, 1), (128, 2, 2, 1), (176, 2, 2, 1), (96, 3, 2, 1), (80, 3, 2, 1), (128, 1, 2, 2), (64, 1, 2, 3)))
    yield _attention(2, 8, 4096, 40, streams)  # Stable Diffusion's UNet: itself, and 77 words
    yield _attention(2, 8, 1024, 80, ((128, 2, 2, 1, False), (96, 3, 2, 1, False), (80, 3, 2, 1, False), (64, 1, 2, 2, False), (80, 1, 2, 2, False)))
    yield _attention(2, 8, 256, 160, ((256, 1, 1, 1, True), (128, 1, 2, 1, False), (64, 1, 2, 2, False), (64, 2, 2, 1, False)))
    for length, D in ((4096, 40), (1024, 80), (256, 160)):
        yield _attention(2, 8, length, D, ((80, 3, 1, 1, True), (80, 2, 1, 1, True), (80, 1, 1, 2, True), (80, 1, 1, 3, True)), keys=77)
