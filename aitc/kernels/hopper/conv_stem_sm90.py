"""The first convolution of a network on Hopper: four channels, stride 2 (include/aitc/gpu/hopper/conv_stem_sm90.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from aitc.ir.dim import hint, min_, mul, product
from aitc.kernels.conv.convolution import ConvProblem, conv_form
from aitc.kernels.core import kernel as k
from aitc.kernels.core.functor import StorageOf
from aitc.kernels.core.group import Group
from aitc.kernels.core.sites import constant_array
from aitc.kernels.hopper.conv_resident_sm90 import resident
from aitc.kernels.hopper.conv_sm90 import dense_output
from aitc.kernels.hopper.product_sm90 import sm90_draft
from aitc.targets.target import Target

FILTERS = frozenset({16, 24, 32, 40, 48, 64, 80, 96, 112, 128})


@dataclass(frozen=True, slots=True)
class StemTile:
    """``StemTileSm90<K, blocks, stages>`` of conv_stem_sm90.h."""

    blocks: int
    stages: int

    def __str__(self) -> str:
        return f"b{self.blocks}_s{self.stages}"

    def steps(self, p: ConvProblem) -> int:
        return -(-(int(p.pad[2]) % 2 + p.window[2]) // 4)  # type: ignore[arg-type]

    def wide(self, p: ConvProblem) -> int:
        """Pixels of a line of a patch."""
        return -(-(14 + 4 * self.steps(p)) // 4) * 4

    def lines(self, p: ConvProblem) -> int:
        return 16 * self.blocks - 2 + p.window[1]

    def smem_bytes(self, p: ConvProblem) -> int:
        stage = -(-self.lines(p) * self.wide(p) * 8 // 1024) * 1024
        return self.stages * (stage + 16) + p.window[1] * self.steps(p) * p.K * 32 + 8 * 4096 + 8


def stem_weights(w: np.ndarray, lead: int) -> np.ndarray:
    """(K, 4, R, S) in the order of conv_stem_sm90.h: (R, steps, 2, K / 8, 8, 8)."""
    count, _, r, s = w.shape
    steps = -(-(lead + s) // 4)
    wide = np.zeros((count, r, steps * 4, 4), w.dtype)
    wide[:, :, lead : lead + s] = w.transpose(0, 2, 3, 1)
    return np.ascontiguousarray(wide.reshape(count // 8, 8, r, steps, 2, 8).transpose(2, 3, 4, 0, 1, 5))


@k.register
class ConvStemSm90(k.Kernel):
    name = "conv_stem_sm90"
    template = "kernel"
    requires = frozenset({"wgmma", "tma"})
    anchors = frozenset({"Conv"})
    priority = 25
    doc = "first convolutions on Hopper: four channels, stride 2, resident weights, every pixel brought once; fp16 and bf16"

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> ConvProblem | k.No:
        assert group.anchor is not None
        if {v.type.dtype.name for v in group.anchor.inputs if v is not None} not in ({"f16"}, {"bf16"}) or group.anchor.attrs.out is not None:
            return k.No("wgmma takes two operands of fp16 or bf16")
        form = conv_form(group.anchor, storage)
        if isinstance(form, k.No):
            return form
        p = form.problem
        known = all(isinstance(d, int) for d in (*p.input, *p.output, *p.pad))
        if not known or p.C != 4 or p.group != 1 or p.stride[1:] != (2, 2) or p.dilation != (1, 1, 1) or p.window[0] != 1 or p.input[0] != 1:
            return k.No("no image of four channels with stride 2")
        if p.K not in FILTERS or int(p.input[2]) % 2 or p.window[1] > 16 or p.window[2] > 16:  # type: ignore[arg-type]
            return k.No(f"{p.K} filters of {p.window[1]} x {p.window[2]}")
        width, height = int(p.input[2]), int(p.input[1])  # type: ignore[arg-type]
        if form.strides[3] != 4 or form.strides[2] != 4 * width or (p.N != 1 and form.strides[0] != 4 * width * height) or form.offset != 0:
            return k.No("the image is a part of another")
        if not isinstance(constant_array(group.anchor.inputs[1]), np.ndarray):  # type: ignore[arg-type]
            return k.No("the filter is computed at run time")
        if dense_output(group, form, storage) is None:
            return k.No("the results are no dense matrix")
        return p

    def configs(self, problem: ConvProblem, target: Target) -> Sequence[StemTile]:
        tiles = (StemTile(2, 6), StemTile(1, 6), StemTile(2, 4), StemTile(2, 2), StemTile(1, 2))
        return [t for t in tiles if t.smem_bytes(problem) <= target.smem_bytes and (problem.K <= 64 or t.blocks == 1 or problem.K <= 96)]

    def score_us(self, problem: ConvProblem, config: StemTile, target: Target) -> float:
        p, c = problem, config
        tiles = ceil(hint(p.output[2]) / 8) * ceil(hint(p.output[1]) / (8 * c.blocks)) * hint(p.N)
        rounds = ceil(tiles / max(target.units, 1))
        # A tile: its products at two thirds of their rate (operands that overlap meet in banks), its patch, its stores.
        products = 2.0 * 64 * c.blocks * p.K * p.window[1] * c.steps(p) * 16 / (target.tflops["fp16"] * 1e6 / max(target.units, 1)) * 1.5
        moved = (c.lines(p) * c.wide(p) * 8 + 64 * c.blocks * p.K * 2) * 1e-3 / (target.gbps / max(target.units, 1))
        return target.launch_us + 2.4 + 0.1 / c.stages + rounds * (max(products, moved, 0.35) + 0.03)

    def build(self, group: Group, problem: ConvProblem, config: StemTile, storage: StorageOf, target: Target) -> k.Draft:
        r = resident(group, storage)
        p, c, parameters, root = problem, config, r.parameters, r.root
        height, width = r.size
        weights = parameters.pointer(root, const=True)
        declared = parameters.clone()
        parameters.pointer(r.form.root, const=True)
        parameters.pointer(r.dense.root, const=False)
        maps = (
            k.MapSpec("map_x", r.form.root, 0, (4 * width, height, p.N), (width * 8, width * height * 8), (4 * c.wide(p), c.lines(p), 1), (1, 1, 1), 0),
            r.map_d(),
        )
        shape = k.shape_members(parameters, images=p.N)
        tile = f"StemTileSm90<{p.K}, {c.blocks}, {c.stages}>"
        c_type = root.type.dtype.c
        call = (f"conv_stem_sm90<{tile}, {c_type}, Window>(int(shape.images), map_x, {weights}, Store{{{', '.join(r.store.initializers)}}}, map_d);",)
        lead = r.pad[1] % 2
        packed = stem_weights(r.array.reshape(p.K, 4, p.window[1], p.window[2]), lead)
        flops = mul(product((p.pixels, p.K)), 2 * p.window[1] * p.window[2] * p.C)
        return sm90_draft(
            self.name, group, config, "aitc/gpu/hopper/conv_stem_sm90.h", call, (r.store,), (r.window(),), shape, maps, parameters, declared,
            min_(r.tiles(c.blocks), target.units), 384, c.smem_bytes(p), p.pixels, flops, {weights: packed},
        )  # fmt: skip
