"""Norms and reductions of the models in bench/suite.py, timed beside torch: Stable Diffusion's group norms, layer norms, softmax, sums."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aitc.kernels.rows.group_norm_sm90 import GroupNormProblem, GroupNormSm90
from aitc.targets.target import find_target

from .group_norm_cases import group_norm
from .rowwise_cases import normalization, reduction
from .timing import Race

CANDIDATES = 5  # of the machine model, the first its choice


def _group_norm(images: int, space: int, C: int) -> Race:
    width = C // 32
    target, kernel = find_target("h200"), GroupNormSm90()
    problem = GroupNormProblem("LayerNorm", "f16", images, space, C, width, 2, 2)
    tiles = sorted(kernel.configs(problem, target), key=lambda t: kernel.score_us(problem, t, target))[:CANDIDATES]

    def rival(torch: Any, x: list[Any]) -> Any:
        y = torch.nn.functional.group_norm(x[0].view(images, space, C).permute(0, 2, 1), 32, weight=x[1], eps=1e-5)
        return y.permute(0, 2, 1)

    make = tuple(
        group_norm("LayerNorm", (t.V, t.across, t.down, t.packs, t.cluster), images, space, C, width, light=True)
        for t in tiles
    )
    return Race(f"group_norm_sm90 ({images},{space},{C})", 0, 4.0 * images * space * C, make, rival)


def _layer_norm(rows: int, K: int, tiles: tuple[tuple[int, ...], ...]) -> Race:
    make = tuple(normalization("LayerNorm", "rows", t, rows, K, light=True) for t in tiles)
    return Race(
        f"normalize layer norm f16 ({rows},{K})", 0, 4.0 * rows * K, make,
        lambda torch, x: torch.nn.functional.layer_norm(x[0].view(rows, K), (K,), weight=x[1]),
    )  # fmt: skip


def races() -> Iterator[Race]:
    """What a launch of each costs in the UNet (batch 2), the decoder, and on large tensors."""
    for space, C in ((4096, 320), (4096, 960), (1024, 640), (1024, 1920), (256, 1280), (64, 1280)):
        yield _group_norm(2, space, C)
    for space, C in ((4096, 512), (16384, 512), (65536, 512), (65536, 256), (262144, 256), (262144, 128)):
        yield _group_norm(1, space, C)
    yield _layer_norm(8192, 320, ((8, 8, 5, 128), (8, 16, 3, 128), (8, 32, 2, 128)))
    yield _layer_norm(2048, 640, ((8, 32, 3, 128), (8, 16, 5, 128)))
    yield _layer_norm(512, 1280, ((8, 32, 5, 32), (8, 128, 2, 128)))
    yield _layer_norm(65536, 1280, ((8, 32, 5, 128), (8, 128, 2, 128)))
    rows, K = 4096, 4096
    yield Race(
        f"normalize softmax f16 ({rows},{K})", 0, 4.0 * rows * K,
        tuple(normalization("Softmax", "rows", t, rows, K, light=True) for t in ((8, 128, 4, 128), (8, 256, 2, 256))),
        lambda torch, x: torch.softmax(x[0].view(rows, K), 1) * x[1],
    )  # fmt: skip
    yield Race(
        f"reduce mean f16 ({rows * 4},{K})", 0, 2.0 * rows * 4 * K,
        tuple(reduction("Mean", "rows", t, rows * 4, K, "f16", light=True) for t in ((8, 32, 128), (8, 128, 128), (8, 256, 256))),
        lambda torch, x: x[0].view(rows * 4, K).mean(1),
    )  # fmt: skip
