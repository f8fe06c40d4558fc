"""Convolutions of 64 channels with few filters on Hopper: resident weights, every pixel brought once (include/aitc/gpu/hopper/conv_patch_sm90.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from aitc.ir.dim import divisor, hint, min_, mul, product
from aitc.ir.graph import Node
from aitc.ir.op import Kind
from aitc.ir.packing import by_tap
from aitc.kernels.conv.convolution import ConvProblem, conv_form
from aitc.kernels.core import kernel as k
from aitc.kernels.core.functor import StorageOf
from aitc.kernels.core.group import Group
from aitc.kernels.core.sites import constant_array
from aitc.kernels.hopper.conv_resident_sm90 import resident
from aitc.kernels.hopper.conv_sm90 import ConvSm90, dense_output, in_rows
from aitc.kernels.hopper.conv_stem_sm90 import FILTERS
from aitc.kernels.hopper.product_sm90 import sm90_draft
from aitc.targets.target import Target

CHANNELS = 64


@dataclass(frozen=True, slots=True)
class PatchTile:
    """``PatchTileSm90<K, blocks, stages>`` of conv_patch_sm90.h."""

    blocks: int
    stages: int

    def __str__(self) -> str:
        return f"b{self.blocks}_s{self.stages}"

    def box(self, p: ConvProblem) -> tuple[int, int]:
        """Pixels of a line, and lines, of a patch."""
        return 7 + p.window[2], 8 * self.blocks - 1 + p.window[1]

    def smem_bytes(self, p: ConvProblem) -> int:
        wide, lines = self.box(p)
        return self.stages * (-(-wide * lines * 128 // 1024) * 1024 + 16) + p.window[1] * p.window[2] * p.K * 128 + 8 * 4096 + 8


def adds_as_much(node: Node) -> bool:
    """Whether a tensor as large as the results is probably read where they are computed: others bring it by the copy engine."""
    v = node.output
    for _ in range(4):
        if len(v.users) != 1:
            return False
        (user,) = v.users
        if user.op.kind is not Kind.POINTWISE or user.output.shape != v.shape:
            return False
        if any(u is not None and u is not v and u.const is None and u.shape == v.shape for u in user.inputs):
            return True
        v = user.output
    return False


@k.register
class ConvPatchSm90(k.Kernel):
    name = "conv_patch_sm90"
    template = "kernel"
    requires = frozenset({"wgmma", "tma"})
    anchors = frozenset({"Conv"})
    priority = 24
    doc = "convolutions of 64 channels and up to 128 filters on Hopper: resident weights, every pixel brought once; fp16 and bf16"

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> ConvProblem | k.No:
        node = group.anchor
        assert node is not None
        if {v.type.dtype.name for v in node.inputs if v is not None} not in ({"f16"}, {"bf16"}) or node.attrs.out is not None:
            return k.No("wgmma takes two operands of fp16 or bf16")
        form = conv_form(node, storage)
        if isinstance(form, k.No):
            return form
        p = form.problem
        known = all(isinstance(d, int) for d in (*p.input, *p.output, *p.pad))
        if not known or p.C != CHANNELS or p.group != 1 or p.K not in FILTERS or p.input[0] != 1 or p.window[0] != 1:
            return k.No(f"{p.C} channels and {p.K} filters")
        if in_rows(p) or p.stride != (1, 1, 1) or p.dilation != (1, 1, 1) or max(p.window) > 7:
            return k.No("no window of several pixels with stride 1")
        if any(divisor(d) % 8 for d in (form.offset, *form.strides)):
            return k.No("pixels do not begin on 16 bytes")
        if not isinstance(constant_array(node.inputs[1]), np.ndarray):  # type: ignore[arg-type]
            return k.No("the filter is computed at run time")
        if dense_output(group, form, storage) is None or adds_as_much(node):
            return k.No("the results are no dense matrix, or one as large is added to them")
        configs = self.configs(p, target)
        other = ConvSm90().accepts(group, storage, target)
        if not configs:
            return k.No("its weights leave no room for pixels")
        if not isinstance(other, k.No):
            general = min(ConvSm90().score_us(other, c, target) for c in ConvSm90().configs(other, target))
            if general <= min(self.score_us(p, c, target) for c in configs):
                return k.No("conv_sm90 is faster")
        return p

    def configs(self, problem: ConvProblem, target: Target) -> Sequence[PatchTile]:
        tiles = (PatchTile(1, 6), PatchTile(2, 4), PatchTile(1, 4), PatchTile(2, 2), PatchTile(1, 2))
        return [t for t in tiles if t.smem_bytes(problem) <= target.smem_bytes and (problem.K <= 96 or t.blocks == 1)]

    def score_us(self, problem: ConvProblem, config: PatchTile, target: Target) -> float:
        """Rounds of tiles: the longer of their products, of what these read of shared memory (128 bytes a clock), and of their bytes."""
        p, c = problem, config
        units = max(target.units, 1)
        tiles = ceil(hint(p.output[2]) / 8) * ceil(hint(p.output[1]) / (8 * c.blocks)) * hint(p.N)
        steps = p.window[1] * p.window[2] * CHANNELS // 16 * c.blocks
        products = 2.0 * 64 * p.K * 16 * steps / (target.tflops["fp16"] * 1e6 / units) * 1.12
        read = steps * (64 + p.K) * 32 / 128 / 1750 * 1.12
        wide, lines = c.box(p)
        moved = (wide * lines * 64 + 64 * c.blocks * p.K) * 2e-3 / (target.gbps / units)
        return target.launch_us + 1.6 + 0.1 / c.stages + ceil(tiles / units) * max(products, read, 0.35) + 0.1 * moved

    def build(self, group: Group, problem: ConvProblem, config: PatchTile, storage: StorageOf, target: Target) -> k.Draft:
        r = resident(group, storage)
        p, c, parameters, root = problem, config, r.parameters, r.root
        height, width = r.size
        taps = p.window[1] * p.window[2]
        declared = parameters.clone()
        weights = parameters.pointer(root, const=True)
        parameters.pointer(r.form.root, const=True)
        parameters.pointer(r.dense.root, const=False)
        n, _, h, w = r.form.strides
        wide, lines = c.box(p)
        strides = tuple(mul(d, 2) for d in (w if width != 1 else p.C, h if height != 1 else mul(w, width), n if p.N != 1 else mul(h, height)))
        maps = (
            k.MapSpec("map_x", r.form.root, r.form.offset, (p.C, width, height, p.N), strides, (p.C, wide, lines, 1), (1, 1, 1, 1)),
            k.MapSpec("map_w", root, 0, (p.C, taps, p.K), (p.C * 2, taps * p.C * 2), (p.C, 1, p.K), (1, 1, 1)),
            r.map_d(),
        )
        shape = k.shape_members(parameters, images=p.N)
        tile = f"PatchTileSm90<{p.K}, {c.blocks}, {c.stages}>"
        call = (f"conv_patch_sm90<{tile}, {root.type.dtype.c}, Window>(int(shape.images), map_x, map_w, Store{{{', '.join(r.store.initializers)}}}, map_d);",)
        packed = by_tap(r.array.reshape(p.K, p.C, taps), p.K)
        flops = mul(product((p.pixels, p.K)), 2 * taps * p.C)
        return sm90_draft(
            self.name, group, config, "aitc/gpu/hopper/conv_patch_sm90.h", call, (r.store,), (r.window(),), shape, maps, parameters, declared,
            min_(r.tiles(c.blocks), target.units), 384, c.smem_bytes(p), p.pixels, flops, {weights: packed},
        )  # fmt: skip
