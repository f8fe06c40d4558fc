"""Convolutions of the models in bench/suite.py, timed beside cuDNN with its bias and ReLU fused: ResNet-50 at four batch sizes, UNet, decoder.

Those of one tap and stride 1 are matrix products: see timing_sm90.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aitc.kernels.hopper import sm90
from aitc.kernels.hopper.product_sm90 import product_configs
from aitc.targets.target import find_target

from .conv_sm90_cases import conv, patch, stem
from .gemm_sm90_cases import Sm90Tile, SplitTile
from .timing import Race

CANDIDATES = 3  # of the machine model, the first its choice
RESNET = (
    (56, 64, 64, 3, 1), (56, 128, 128, 3, 2), (28, 128, 128, 3, 1), (28, 256, 256, 3, 2), (14, 256, 256, 3, 1), (14, 512, 512, 3, 2), (7, 512, 512, 3, 1),
    (56, 256, 512, 1, 2), (28, 512, 1024, 1, 2), (14, 1024, 2048, 1, 2),
)  # fmt: skip
"""(side, channels, filters, taps, stride)."""
UNET = (
    *((64, c, 320, 3, 1) for c in (320, 640, 960)), (64, 320, 320, 3, 2), *((32, c, 640, 3, 1) for c in (320, 640, 960, 1280, 1920)), (32, 640, 640, 3, 2),
    *((16, c, 1280, 3, 1) for c in (640, 1280, 1920, 2560)), (16, 1280, 1280, 3, 2), *((8, c, 1280, 3, 1) for c in (1280, 2560)),
)  # fmt: skip
DECODER = ((64, 512, 512, 3, 1), (128, 512, 512, 3, 1), (256, 512, 256, 3, 1), (256, 256, 256, 3, 1), (512, 256, 128, 3, 1), (512, 128, 128, 3, 1))


def likely(M: int, K: int, k_blocks: int, moved: float) -> tuple[Sm90Tile | SplitTile, ...]:
    """What aitc offers, the best by its machine model first: the first is what it compiles without a table."""
    target = find_target("h200")
    extent = sm90.Extent(1, M, K, k_blocks, moved, True)
    offered = product_configs("f16", True, False, M, target)
    best = sorted(offered, key=lambda c: sm90.products_us([c], [extent], target))[:CANDIDATES]
    return tuple(
        SplitTile(c.BM, c.BN, c.stages, c.split, c.rows) if isinstance(c, sm90.Sm90Split)
        else Sm90Tile(c.BM, c.BN, c.stages, c.cluster_m, c.cluster_n, c.ping_pong, c.staged) for c in best
    )  # fmt: skip


def _conv(n: int, side: int, c: int, k: int, taps: int, stride: int) -> Race:
    pad = taps // 2
    out = (side + 2 * pad - taps) // stride + 1
    M, depth = n * out * out, taps * taps * c
    read = min(side * side, out * out * taps * taps)  # pixels of an image: one tap with stride 2 skips most of them
    moved = 2.0 * (n * read * c + M * k + depth * k)

    def rival(torch: Any, x: list[Any]) -> Any:
        image, filters = x[0].view(n, side, side, c).permute(0, 3, 1, 2), x[1].view(k, taps, taps, c).permute(0, 3, 1, 2)
        return torch.cudnn_convolution_relu(image, filters, x[2], (stride, stride), (pad, pad), (1, 1), 1).permute(0, 2, 3, 1)

    make = tuple(
        conv(t.text, t, n, (side, side), c, k, (taps, taps), (stride, stride), pad=(pad, pad), light=True)
        for t in likely(M, k, taps * taps * -(-c // 64), moved)
    )
    return Race(f"conv_sm90 {n} x {side}x{side}x{c} -> {k}, {taps}x{taps}/{stride}", 2.0 * M * k * depth, moved, make, rival)


def _stem(n: int) -> Race:
    """ResNet's first convolution; its fourth channel is no work."""
    side, k, out = 224, 64, 112
    filters: list[Any] = []

    def rival(torch: Any, x: list[Any]) -> Any:
        if not filters:  # the kernel's order is (R, S / 4, 2, K / 8, 8, 2, 4), and it begins a pixel before the seven taps
            packed = x[1].view(7, 2, 2, k // 8, 8, 2, 4)
            packed[:, 0, 0, :, :, 0] = 0
            filters.append(packed.permute(3, 4, 0, 1, 2, 5, 6).reshape(k, 7, 8, 4)[:, :, 1:].contiguous().permute(0, 3, 1, 2))
        image = x[0].view(n, side, side, 4).permute(0, 3, 1, 2)
        return torch.cudnn_convolution_relu(image, filters[0], x[2], (2, 2), (3, 3), (1, 1), 1).permute(0, 2, 3, 1)

    make = tuple(stem(f"<b{blocks}_s{stages}>", (blocks, stages), n, (side, side), k, (7, 7), (3, 3), light=True) for blocks, stages in ((1, 6), (2, 6)))
    return Race(f"conv_stem_sm90 {n} x 224x224x4 -> 64, 7x7/2", 2.0 * n * out * out * k * 147, 2.0 * n * (side * side * 4 + out * out * k), make, rival)


def _patch(n: int) -> Race:
    """ResNet's 3x3 convolutions of 64 channels, where weights and patches of pixels stay in shared memory."""
    side, c = 56, 64

    def rival(torch: Any, x: list[Any]) -> Any:
        image, filters = x[0].view(n, side, side, c).permute(0, 3, 1, 2), x[1].view(c, 3, 3, c).permute(0, 3, 1, 2)
        return torch.cudnn_convolution_relu(image, filters, x[2], (1, 1), (1, 1), (1, 1), 1).permute(0, 2, 3, 1)

    make = tuple(patch(f"<b{blocks}_s{stages}>", (blocks, stages), n, (side, side), c, (3, 3), (1, 1), light=True) for blocks, stages in ((1, 6), (2, 4)))
    return Race(f"conv_patch_sm90 {n} x 56x56x64 -> 64, 3x3/1", 2.0 * n * side * side * c * c * 9, 4.0 * n * side * side * c, make, rival)


def races() -> Iterator[Race]:
    """Every shape once."""
    for n in (1, 8, 32, 256):
        yield _stem(n)
        yield _patch(n)
        for shape in RESNET:
            yield _conv(n, *shape)
    for shape in UNET:
        yield _conv(2, *shape)
    for shape in DECODER:
        yield _conv(1, *shape)
