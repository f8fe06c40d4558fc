"""A product and the one behind it in one launch on Hopper: what the first makes is the second's operand in registers (include/aitc/gpu/hopper/chain_sm90.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from aitc.ir.dim import ceildiv, hint, min_
from aitc.ir.index import is_view, root_of
from aitc.ir.packing import contiguous
from aitc.kernels.core import kernel as k
from aitc.kernels.core.functor import Parameters, StorageOf
from aitc.kernels.core.group import Group, heavy_epilogue
from aitc.kernels.core.sites import result_functor
from aitc.kernels.hopper import sm90
from aitc.kernels.hopper.product_sm90 import ProductSm90, Work, second_root, sm90_draft
from aitc.targets.target import Target

WIDEST = 256
"""Columns of the second product: all of them are sums of one block."""


@dataclass(frozen=True, slots=True)
class ChainProblem:
    """``bytes``: read and written, typically. ``staged``: the first product's epilogue reads a matrix as large as its results. ``stored``: others read these.
    ``heavy``: that epilogue computes an exponential or something as dear. ``reads``: the second's epilogue reads a matrix as large as its results, by itself.
    ``slowness``: of the first product's operands, as its own kernel says."""

    first: Any
    second: Any
    one: sm90.Extent
    other: sm90.Extent
    bytes: int
    staged: bool
    stored: bool
    heavy: bool
    reads: bool = False
    slowness: float = 1.0

    def __str__(self) -> str:
        return f"{self.first} then {self.second}{' stored' if self.stored else ''}"


@dataclass(frozen=True, slots=True)
class ChainTile:
    """``ChainTileSm90<BM, BN, BE, stages, slots, stored, staged>`` of chain_sm90.h."""

    BM: int
    BN: int
    BE: int
    stages: int
    slots: int
    stored: bool
    staged: bool

    def __str__(self) -> str:
        return f"{self.BM}x{self.BN}x{self.BE}_s{self.stages}_{self.slots}"

    @property
    def text(self) -> str:
        flags = ", ".join(str(f).lower() for f in (self.stored, self.staged))
        return f"ChainTileSm90<{self.BM}, {self.BN}, {self.BE}, {self.stages}, {self.slots}, {flags}>"

    @property
    def threads(self) -> int:
        return 128 * (self.BM // 64 + 1)

    @property
    def smem_bytes(self) -> int:
        return self.stages * (max(self.BM + self.BN, self.BE) * 128 + 16) + self.BM // 16 * self.slots * (self.BN * 32 + 8)

    @property
    def slices(self) -> tuple[int, int]:
        """Rows of A and of B that one block loads."""
        return self.BM, self.BN


def _tiles(columns: int, outer: int, stored: bool, staged: bool, smem_bytes: int) -> list[ChainTile]:
    """Tiles for a first product of ``columns`` and a second one of ``outer``: sums of both, and what becomes of the first, have to stay in registers."""
    BE = -(-outer // 64) * 64
    found = []
    for BM in (128, 192, 64):
        for BN in (128, 64):
            if columns % BN or (112 if BM == 192 else 176) < BN / 2 + BN / 4 + BE / 2:
                continue
            for slots in (4, 3, 2) if staged else (2,):
                stages = next((s for s in range(8, 3, -1) if ChainTile(BM, BN, BE, s, slots, stored, staged).smem_bytes <= smem_bytes), 0)
                if stages:
                    found.append(ChainTile(BM, BN, BE, stages, slots, stored, staged))
    return found


@k.register
class ChainSm90(k.Kernel):
    name = "chain_sm90"
    template = "kernel"
    requires = frozenset({"wgmma", "tma"})
    chains = True
    doc = "a matrix product or convolution and the one behind it on Hopper, in one launch: fp16, bf16, at most 256 columns of the second"

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> ChainProblem | k.No:
        first, second = group.parts
        one, other = _product(first, storage, target), _product(second, storage, target)
        if isinstance(one, k.No) or isinstance(other, k.No):
            return one if isinstance(one, k.No) else other  # type: ignore[return-value]
        a, b = one.kernel.work(first, storage), other.kernel.work(second, storage)
        reason = _reason(one, other, a, b, storage)
        if reason:
            return k.No(reason)
        stored = any(o is first.outputs[0] for o in group.outputs)
        extents = one.kernel.extent(one.problem), other.kernel.extent(other.problem)
        slowness = one.kernel.slowness(one.problem, sm90.Sm90Tile(64, 64, 6))
        return ChainProblem(
            one.problem, other.problem, *extents, hint(k.nbytes(group)), a.staged is not None, stored, heavy_epilogue(first),
            b.staged is not None, slowness,
        )  # fmt: skip

    def configs(self, problem: ChainProblem, target: Target) -> Sequence[ChainTile]:
        return _tiles(problem.one.N, problem.other.N, problem.stored, problem.staged, target.smem_bytes)

    def score_us(self, problem: ChainProblem, config: ChainTile, target: Target) -> float:
        """A block's steps one after another, or the memory's time where that is longer. Fitted to 223 measurements on one H200 (the races of
        tests/kernels/gpu/timing_sm90.py, with all tiles): 7 % off on average, and the tile chosen takes 2 % more than the best."""
        one = problem.one
        units = max(target.units, 1)
        memory = problem.bytes / (1.1 * target.gbps) * 1e-3
        if problem.staged:  # too little on its way
            memory *= 1 + 0.4 * max(0.0, 1 - (config.slots - 1) * config.BM * config.BN / 16384)
        waves = ceil(ceil(one.M / config.BM) / units)

        def step(columns: int, rows: int) -> float:  # of a K-block, for which so many rows are brought: multiplied, or brought
            rate = target.tflops["fp16"] * 1e6 / units * min(1.0, 0.75 + columns / 512)
            return max(2.0 * config.BM * columns * 64 / rate, rows * 0.128 / 147.0)

        chunk = problem.slowness * one.k_blocks * step(config.BN, config.BM + config.BN) + config.BN / 64 * step(config.BE, config.BE)
        chunk += 0.09 + 0.001 * config.BM + 0.0047 * config.BN * (1.6 if problem.heavy else 1.0)
        end = 0.4 + config.BM * config.BE / 32768 * 0.6 + (0.6 + config.BM * config.BE / 32768 * 1.2 if problem.reads else 0.0)
        body = waves * (one.N / config.BN * chunk + end)
        return target.launch_us + 1.2 + max(body, memory) + 0.25 * min(body, memory)

    def build(self, group: Group, problem: ChainProblem, config: ChainTile, storage: StorageOf, target: Target) -> k.Draft:
        first, second = group.parts
        one, other = _product(first, storage, target), _product(second, storage, target)
        assert not isinstance(one, k.No) and not isinstance(other, k.No)
        a, b = one.kernel.work(first, storage), other.kernel.work(second, storage)
        assert first.anchor is not None and second.anchor is not None and a.dense is not None and b.dense is not None
        parameters = Parameters()
        store = result_functor(
            first, first.anchor.output, a.index, a.coords, parameters, storage, a.signature, staged=a.staged, prefetch=True,
            comment=f"what becomes of V neighbouring results of the first product, before they are rounded{' and stored' if problem.stored else ''}",
        )  # fmt: skip
        store2 = result_functor(
            second, second.anchor.output, b.index, b.coords, parameters, storage, b.signature, name="Store2", prefetch=True,
            comment="what becomes of V neighbouring results of the second, before they are rounded and stored",
        )  # fmt: skip
        declared = parameters.clone()
        operands = one.kernel.operands(first, problem.first, config, storage, parameters, declared, "")  # type: ignore[arg-type]
        found = other.kernel.weights(second, storage)
        assert found is not None
        root, weights = found[0], contiguous(found[1])
        _, M, N, K = a.sizes
        columns = b.sizes[2]
        c = k.MapSpec("map_c", root, 0, (columns, N, 1), (weights.shape[1] * 2, weights.size * 2), (64, 64, 1), (1, 1, 1))
        packed = {**operands.packed, parameters.pointer(root, const=True): weights}
        maps = [*operands.maps, c]
        names = []
        for name, m, work, const, wanted in (
            ("map_d", a.dense, a, False, problem.stored), ("map_s", a.staged, a, True, a.staged is not None), ("map_e", b.dense, b, False, True)
        ):  # fmt: skip
            names.append(name if wanted else "map_c")
            if m is not None and wanted:
                parameters.pointer(m.root, const=const)
                maps.append(sm90.result_map(name, m, work.coords[0], M, work.sizes[2], 1))
        lines, shape2 = k.shape_struct("Shape2", k.shape_members(parameters, M=M, N=columns))
        c_type = root.type.dtype.c
        call = (
            f"chain_sm90<{config.text}>(shape, {shape2},",
            *(f"    {text}," for text in operands.texts),
            f"    MatrixSm90<{c_type}, true, false, true>{{&map_c}},",
            f"    Store{{{', '.join(store.initializers)}}}, Store2{{{', '.join(store2.initializers)}}}, {', '.join(names)}, {problem.one.k_blocks});",
        )
        return sm90_draft(
            self.name, group, config, (f"aitc/gpu/hopper/{operands.kind}_sm90.h", "aitc/gpu/hopper/chain_sm90.h"), call, (store, store2),
            (*operands.structs, lines), k.shape_members(parameters, M=M, N=N, K=K), maps, parameters, declared,
            min_(ceildiv(M, config.BM), target.units), config.threads, config.smem_bytes, M, a.flops + b.flops, packed,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Product:
    kernel: ProductSm90
    group: Group
    problem: Any


def _product(group: Group, storage: StorageOf, target: Target) -> _Product | k.No:
    """``group`` as a product of product_sm90.h; the reason why it is none."""
    assert group.anchor is not None
    for kernel in k.kernels_for(group.anchor.op.name, target):
        if isinstance(kernel, ProductSm90):
            problem = kernel.accepts(group, storage, target)
            return problem if isinstance(problem, k.No) else _Product(kernel, group, problem)
    return k.No("no kernel of product_sm90.h takes it")


def _reason(one: _Product, other: _Product, a: Work, b: Work, storage: StorageOf) -> str:
    """Why the products do not go into one launch; "" if they do."""
    (batch, M, N, K), (batch2, M2, columns, depth) = a.sizes, b.sizes
    if a.dense is None or b.dense is None or a.lines is not None or b.lines is not None:
        return "results that are no one matrix of 16-bit elements"
    types = {v.type.dtype.name for g in (one.group, other.group) for v in (g.anchor.inputs[0], g.outputs[0]) if v is not None}  # type: ignore[union-attr]
    if len(types) != 1 or not types <= {"f16", "bf16"}:
        return "operands and results of several types, or not of 16 bits"
    if any(getattr(p.problem, f, False) for p in (one, other) for f in ("moments", "merges")):
        return "statistics of rows are taken or applied"
    if getattr(other.problem, "also", None) is not None:
        return "the second is two convolutions that add up"
    read = other.kernel.rows(other.group, storage)
    same = read is not None and (read.root, read.rest, read.stride_row, read.stride_col) == (a.dense.root, a.dense.rest, a.dense.stride_row, 1)
    if not same or batch != 1 or batch2 != 1 or M != M2 or depth != N:
        return "the second does not read the first's rows one by one, whole and as they are"
    rows = one.kernel.rows(one.group, storage)
    if rows is not None and rows.stride_col != 1:
        return "the first reads columns, not rows"
    if not isinstance(N, int) or N % 64 or not isinstance(K, int):
        return f"the first has {N} columns of depth {K}: not whole 64, or known only at run time"
    if not isinstance(columns, int) or columns % 8 or columns > WIDEST:
        return f"the second has {columns} columns: a block holds the sums of {WIDEST} at most, by eights"
    if other.kernel.weights(other.group, storage) is None or second_root(one.group).const is None:
        return "weights are computed at run time"
    roots = [id(root_of(v)) for p in (one, other) for n in p.group.nodes if not is_view(n) for v in n.inputs if v is not None]
    weights = [v for p in (one, other) for v in p.group.anchor.inputs[1::2] if v is not None]  # type: ignore[union-attr]
    if any(roots.count(id(root_of(w))) > 1 for w in weights):
        return "a weight is read twice"
    return ""
