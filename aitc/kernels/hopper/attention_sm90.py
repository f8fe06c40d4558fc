"""Attention on Hopper: TMA and wgmma (include/aitc/gpu/hopper/attention_sm90.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil

from aitc.ir.dim import Dim, ceildiv, divisor, hint, min_, mul, product, round_up, symbols
from aitc.ir.dtype import BOOL
from aitc.ir.index import broadcast_index
from aitc.kernels.attention.attention import (
    AttentionForm,
    AttentionProblem,
    HeadRows,
    attention_form,
    shape_struct,
    typical_keys,
)
from aitc.kernels.attention.attention_split import AttentionSplit, split_draft, split_tiles, split_us
from aitc.kernels.core import kernel as k
from aitc.kernels.core.functor import FunctorBuilder, Parameters, StorageOf
from aitc.kernels.core.group import Group
from aitc.kernels.core.sites import Matrix, dense_result, linear, result_functor, store_functor
from aitc.kernels.hopper import sm90
from aitc.kernels.hopper.product_sm90 import sm90_draft
from aitc.targets.target import Target

HEAD_SIZES = frozenset({8, 16, 24, 32, 40, 48, 64, 72, 80, 96, 112, 128, 160, 192, 256})
"""Of V: widths of wgmma with A in registers that mma_sm90.h has."""


def _boxes(d: int) -> int:
    return -(-d // 64)


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """``AttentionTileSm90<D, DV, BN, groups, stages, blocks, single, band>`` of attention_sm90.h."""

    BN: int
    groups: int
    stages: int
    blocks: int = 1
    single: bool = False
    band: int = 1

    def __str__(self) -> str:
        return f"g{self.groups}n{self.BN}s{self.stages}b{self.blocks}{'_one' if self.single else ''}"

    @property
    def threads(self) -> int:
        return 128 * self.groups + (32 if self.groups == 1 else 128)

    def smem_bytes(self, D: int, DV: int) -> int:
        d, dv = _boxes(D), _boxes(DV)
        return 128 * (64 * self.groups * d + self.stages * self.BN * (d + dv)) + self.groups * 8192 + 16 + 32 * self.stages

    def fits(self, p: AttentionProblem, smem_bytes: int) -> bool:
        """Whether shared memory holds it, and a thread's registers hold scores, probabilities and output."""
        quarter = -(-self.blocks * self.threads // 128)  # warps on a quarter of a multiprocessor, which has 16384 registers
        budget = {1: min(255, 512 // quarter // 8 * 8), 2: 240, 3: 160}[self.groups]
        scores, probabilities, output = self.BN // 2, self.BN // 4, p.DV // 2
        needs = max(scores + 26, probabilities + output + 24) if self.single else scores + probabilities + output + 30
        room = smem_bytes // self.blocks - (1024 if self.blocks > 1 else 0)
        if scores + 26 > 65536 // self.threads:  # a product's registers have to be there before groups hand theirs over
            return False
        return self.smem_bytes(p.D, p.DV) <= room and needs + (16 if p.mask != "none" and self.groups == 1 else 0) <= budget

    def text(self, p: AttentionProblem) -> str:
        single = str(self.single).lower()
        return f"AttentionTileSm90<{p.D}, {p.DV}, {self.BN}, {self.groups}, {self.stages}, {self.blocks}, {single}, {self.band}>"


WIDTHS = (32, 48, 64, 80, 96, 112, 128, 160, 176, 192, 208, 256)
"""Keys of a tile that holds them all."""

STREAMED = tuple(
    AttentionTile(*t)
    for t in ((128, 3, 2), (80, 3, 2), (176, 2, 2), (128, 2, 2), (64, 2, 2), (96, 3, 2), (128, 1, 2, 2), (64, 1, 2, 2), (80, 1, 2, 2), (128, 1, 2), (64, 1, 2))
)


def preferred(p: AttentionProblem, target: Target) -> str:
    """The configuration that measured best on an H200 for problems of this kind (the machine model alone is 5 to 10 % off)."""
    queries, keys, D = hint(p.queries), typical_keys(p), max(p.D, p.DV)
    tiles = ceil(queries / 64) * hint(p.batch) * p.heads
    if isinstance(p.keys, int) and keys <= 208 and not p.causal:
        BN = next(n for n in WIDTHS if n >= keys)
        if queries >= 1024:
            return str(AttentionTile(BN, 3 if ceil(queries / 192) * hint(p.batch) * p.heads >= target.units else 2, 1, 1, True))
        most = 3 if BN <= 128 and D <= 64 else 2
        return str(AttentionTile(BN, 1, 1, min(most, ceil(tiles / target.units)), True))
    if 2 * tiles <= 3 * target.units:
        return "g1n128s2b2" if D <= 64 and p.mask == "none" else "g1n128s2b1" if D <= 64 else "g1n64s2b2"
    if p.causal and D > 64:
        return "g2n176s2b1" if keys >= 4096 else "g2n128s2b1"
    return "g3n128s2b1" if D <= 64 else "g2n128s2b1" if D <= 96 else "g3n80s2b1" if D <= 128 else "g2n64s2b1"


def head_strides(h: HeadRows, form: AttentionForm, heads: int) -> tuple[Dim, Dim, Dim] | None:
    """``(offset, stride of batch, stride of head)`` in elements; None where the heads do not lie at strides."""
    batch, head = k.coordinate("batch", h.value.shape[0]), k.coordinate("head", heads)
    found = linear(h.rest, (batch, head))
    return None if found is None else (found[0], found[1][0], found[1][1])


def copyable(h: HeadRows, form: AttentionForm, heads: int) -> str:
    """Why the copy engine cannot read an operand; "" if it can."""
    at = head_strides(h, form, heads)
    if at is None:
        return "the heads of an operand do not lie at strides"
    if any(divisor(d) % 8 for d in (*at, h.stride_row)):
        return "rows of an operand do not begin on 16 bytes"
    return ""


def head_map(parameter: str, h: HeadRows, at: tuple[Dim, Dim, Dim], sizes: tuple[Dim, Dim, Dim, Dim], box_rows: int) -> k.MapSpec:
    """The map of an operand; ``sizes``: d, rows, heads, batches. A stride that is never taken may be 0, but no map has one."""
    offset, batch, head = at
    d, rows, _, _ = sizes
    row = h.stride_row if h.stride_row != 0 else round_up(d, 8)
    strides = [row]
    for stride in (head, batch):
        strides.append(stride if stride != 0 else mul(rows, row))
    return k.MapSpec(parameter, h.root, offset, sizes, tuple(mul(s, 2) for s in strides), (64, box_rows, 1, 1), (1, 1, 1, 1))


@lru_cache(maxsize=256)
def best_band(rows: int, heads: int, head_bytes: int, blocks: int, BM: int, BN: int, queries: int, keys: int) -> int:
    """For a causal mask the band of heads that spreads the tiles most evenly over the blocks (simulated), of those whose K and V fit in L2."""
    best, least = 1, 1 << 60
    for band in range(1, min(heads, 64) + 1):
        if band > 1 and band * head_bytes > 28 << 20:
            break
        total = [0] * blocks
        for i in range(rows * heads):
            turn, at = divmod(i, blocks)
            first = i // (band * rows) * band
            row = rows - 1 - (i - first * rows) // min(band, heads - first)
            seen = max(0, min(keys, (row + 1) * BM + keys - queries))
            total[blocks - 1 - at if turn & 1 else at] += 2 * -(-seen // BN) + 3
        if max(total) < least or (max(total) == least and band <= 16):
            best, least = band, max(total)
    return best


def mask_pairs(form: AttentionForm, parameters: Parameters, storage: StorageOf) -> tuple[tuple[str, ...], str]:
    """struct Mask of attention_sm90.h and the expression that makes one; NoMask{} without a mask."""
    mask = form.mask
    if mask is None:
        return (), "NoMask{}"
    p = form.problem
    col = k.coordinate("col", p.keys)
    coords = (*form.coords[:3], col)
    width = 2 if divisor(p.keys) % 2 == 0 else 1
    builder = FunctorBuilder(frozenset(), col, width, parameters, storage)
    index = broadcast_index(tuple(k.dim_of(c) for c in coords), mask.shape)
    ref = builder.value(mask, index)
    if mask.type.dtype is BOOL:
        text = f"{ref.text} ? 0.0f : -inf_of<float>()"
    elif mask.type.dtype.name == "f16":
        text = f"float({ref.text})"
    else:  # the least finite numbers stay finite in units of log 2
        text = f"finite_mask(float({ref.text}))"
    builder.emit(f"x[j] = {text};", False)
    f = k.finish(builder, "Mask", "", "", "")
    by_row = form.coords[2] in symbols(storage(mask).at(index)) if not isinstance(storage(mask).at(index), int) else False
    lines = ["struct Mask {  // what is added to the scores of (row, col) and its neighbours", f"  static constexpr int width = {width};",
             f"  static constexpr bool by_row = {str(by_row).lower()};"]  # fmt: skip
    lines += ["  " + m for m in f.members]
    lines += ["  template <int V>", "  AITC_FN void operator()(int batch, int head, int row, int col, float (&x)[V]) const {"]
    lines += ["    " + line.code for line in f.lines]
    lines += ["  }", "};"]
    return tuple(lines), f"Mask{{{', '.join(f.initializers)}}}"


def dense_output(group: Group, form: AttentionForm, storage: StorageOf) -> tuple[Matrix, tuple[Dim, Dim, Dim]] | None:
    """The results as a matrix for each head that the copy engine can store, with (offset, stride of batch, stride of head)."""
    assert group.anchor is not None
    m = dense_result(group, group.anchor.output, form.index, form.coords, storage)
    if m is None:
        return None
    at = linear(m.rest, form.coords[:2])
    if at is None or any(divisor(d) % 8 for d in (at[0], *at[1])):
        return None
    if (at[1][0] == 0 and form.problem.batch != 1) or (at[1][1] == 0 and form.problem.heads != 1):
        return None
    return m, (at[0], at[1][0], at[1][1])


@k.register
class AttentionSm90(k.Kernel):
    name = "attention_sm90"
    template = "kernel"
    requires = frozenset({"wgmma", "tma"})
    anchors = frozenset({"Attention"})
    priority = 20
    doc = "attention on Hopper: operands by TMA, wgmma, softmax and products overlapped, or keys split among blocks; fp16 and bf16, head sizes 8 to 256"

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> AttentionProblem | k.No:
        assert group.anchor is not None
        form = attention_form(group.anchor, storage)
        if isinstance(form, k.No):
            return form
        p = form.problem
        if p.dtype not in ("f16", "bf16") or any(v is not None and v.type.dtype.name != p.dtype for v in group.anchor.inputs[:3]):
            return k.No("wgmma takes operands of fp16 or bf16")
        if p.D % 8 or p.D > 256 or p.DV not in HEAD_SIZES or p.softcap or not group.anchor.attrs.scale > 0:
            return k.No(f"heads of {p.D} and {p.DV}{', softcap' if p.softcap else ''}")
        if not sm90.positive(p.keys):
            return k.No("there may be no keys")
        for h, heads in ((form.q, p.heads), (form.k, p.kv_heads), (form.v, p.kv_heads)):
            reason = copyable(h, form, heads)
            if reason:
                return k.No(reason)
        return p

    def configs(self, problem: AttentionProblem, target: Target) -> Sequence[AttentionTile | AttentionSplit]:
        p = problem
        tiles = [*STREAMED]
        if isinstance(p.keys, int) and p.keys <= 256:
            BN = -(-p.keys // 16) * 16
            for width in (n for n in WIDTHS if n >= BN):
                single = [AttentionTile(width, g, 1, n, True) for g, n in ((1, 3), (1, 2), (1, 1), (2, 1), (3, 1))]
                tiles = [*single, *tiles]
                break
        found = [t for t in tiles if t.fits(p, target.smem_bytes)]
        return [*(found or [AttentionTile(32, 1, 1)]), *split_tiles(p, target)]

    def score_us(self, problem: AttentionProblem, config: AttentionTile | AttentionSplit, target: Target) -> float:
        """Rounds of row tiles; a tile walks over its keys at the rate of products or of exponentials, whichever is slower, and exposes its ends."""
        if isinstance(config, AttentionSplit):
            return split_us(problem, config, target)
        p, c = problem, config
        queries, keys, batch = hint(p.queries), typical_keys(p), hint(p.batch)
        units = max(target.units, 1)
        tiles = ceil(queries / (64 * c.groups)) * batch * p.heads
        active = min(c.blocks, ceil(tiles / units))
        waves = ceil(tiles / (units * c.blocks))
        seen = keys if not p.causal or queries < 2 else min(keys, keys - queries / 2 + 32 * c.groups)
        padded = ceil(seen / c.BN) * c.BN if not c.single else c.BN
        rows = 64 * c.groups
        matrix = 2.0 * rows * padded * (max(p.D, 16) + p.DV) / (target.tflops["fp16"] * 1e6 / units)
        exponentials = rows * padded / (16 * 1750) * (1.35 if p.mask == "none" else 2.0)  # sixteen a clock
        overlap = max(matrix, exponentials) + 0.35 * min(matrix, exponentials) * (1.0 if c.groups == 1 and active < 2 else 0.3)
        ends = 1.0 + 0.15 * _boxes(p.D) + rows / 64 * 0.08
        body = waves * (overlap * active + ends)
        if str(c) == preferred(p, target):
            body *= 0.8
        traffic = 2.0 * batch * (p.heads * queries * (p.D + p.DV) + p.kv_heads * keys * (p.D + p.DV))
        return target.launch_us + 1.2 + max(body, traffic / target.gbps * 1e-3)

    def build(
        self, group: Group, problem: AttentionProblem, config: AttentionTile | AttentionSplit, storage: StorageOf, target: Target
    ) -> k.Draft:
        assert group.anchor is not None
        if isinstance(config, AttentionSplit):
            return split_draft(self.name, group, problem, config, storage, target)
        form = attention_form(group.anchor, storage)
        assert isinstance(form, AttentionForm)
        p = form.problem
        rows = ceildiv(p.queries, 64 * config.groups)
        tiles = product((rows, p.batch, p.heads))
        resident = target.units * config.blocks
        if p.causal and isinstance(tiles, int):
            queries, keys = hint(p.queries), typical_keys(p)
            band = best_band(hint(rows), hint(p.batch) * p.heads, 2 * keys * (p.D + p.DV) * p.kv_heads // p.heads, min(tiles, resident),
                             64 * config.groups, config.BN, queries, keys)  # fmt: skip
            config = replace(config, band=band)
        parameters = Parameters()
        dense = dense_output(group, form, storage)
        signature = "int batch, int head, int64_t row, int64_t d"
        if dense is not None:
            store = result_functor(group, group.anchor.output, form.index, form.coords, parameters, storage, signature)
        else:
            store = store_functor(group, form.index, form.coords, parameters, storage, target, signature, widest=8)
        mask, make_mask = mask_pairs(form, parameters, storage)
        declared = parameters.clone()
        maps = []
        for name, h, heads, length, depth, box in (
            ("map_q", form.q, p.heads, p.queries, p.D, 64 * config.groups), ("map_k", form.k, p.kv_heads, p.keys, p.D, config.BN),
            ("map_v", form.v, p.kv_heads, p.keys, p.DV, config.BN),
        ):  # fmt: skip
            at = head_strides(h, form, heads)
            assert at is not None
            parameters.pointer(h.root, const=True)
            maps.append(head_map(name, h, at, (depth, length, heads, h.value.shape[0]), box))
        if dense is not None:
            m, at = dense
            parameters.pointer(m.root, const=False)
            maps.append(head_map("map_o", HeadRows(m.value, m.root, m.rest, m.stride_row), at, (p.DV, p.queries, p.heads, p.batch), 16))
        sizes, make_shape = shape_struct(form, parameters)
        c_type = form.q.value.type.dtype.c
        call = (
            f"attention_sm90<{str(p.causal).lower()}, {config.text(p)}, {c_type}>({make_shape}, map_q, map_k, map_v, {make_mask}, "
            f"Store{{{', '.join(store.initializers)}}}, {'map_o' if dense is not None else 'map_q'});",
        )
        return sm90_draft(
            self.name, group, config, "aitc/gpu/hopper/attention_sm90.h", call, (store,), (sizes, mask) if mask else (sizes,), (), maps, parameters, declared,
            min_(tiles, resident), config.threads, config.smem_bytes(p.D, p.DV), product((p.batch, p.queries)), p.flops, {}, min_blocks=config.blocks,
        )  # fmt: skip
