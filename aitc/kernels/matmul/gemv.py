"""Matrix products with few rows on any GPU, limited by reading B once (include/aitc/gpu/matmul/gemv.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from aitc.ir.dim import ceildiv, hint, mul, product
from aitc.kernels.core import kernel as k
from aitc.kernels.core.functor import Parameters, StorageOf
from aitc.kernels.core.group import Group
from aitc.kernels.core.sites import Matrix, matrix_struct, store_functor
from aitc.kernels.matmul.gemm_simt import accumulator_bytes
from aitc.kernels.matmul.matmul import MatMulForm, MatMulProblem, load_width, matmul_form, packed_b, problem_of
from aitc.targets.target import Target

ROWS = 8
"""Rows of A at most: more are better multiplied in tiles."""


@dataclass(frozen=True, slots=True)
class GemvTile:
    """``GemvK<MR, V, cols, warps>`` or ``GemvN<MR, V, across, warps>`` of gemv.h; ``form`` names the contiguous axis of B."""

    form: str
    MR: int
    V: int
    width: int
    warps: int

    def __str__(self) -> str:
        return f"{self.form}{self.MR}v{self.V}_{self.width}_w{self.warps}"

    @property
    def text(self) -> str:
        return f"Gemv{self.form}<{self.MR}, {self.V}, {self.width}, {self.warps}>"

    @property
    def BN(self) -> int:
        return self.warps * self.width if self.form == "K" else self.width * self.V

    def smem_bytes(self, acc_bytes: int) -> int:
        return self.warps * self.MR * self.width * self.V * acc_bytes if self.form == "N" and self.warps > 1 else 0


def _rows(M: int) -> int:
    return next(r for r in (1, 2, 4, 8) if r >= M)


@k.register
class Gemv(k.Kernel):
    name = "gemv"
    template = "kernel"
    requires = frozenset({"simt"})
    anchors = frozenset({"MatMul"})
    priority = 30
    doc = "matrix products with at most 4 rows (8 without tensor cores): B is read once, at the speed of memory"

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> MatMulProblem | k.No:
        assert group.anchor is not None
        form = matmul_form(group.anchor, storage)
        if isinstance(form, k.No):
            return form
        half = form.dtype.name in ("f16", "bf16") and "mma_sm80" in target.features
        if not isinstance(form.M, int) or not isinstance(form.K, int) or (4 if half else ROWS) < form.M:
            return k.No("more than a few rows")
        if any(v is not None and v.type.dtype != form.dtype for v in group.anchor.inputs):
            return k.No("operands of two types")
        if form.K < 64 or (isinstance(form.N, int) and form.N < 16):
            return k.No("too small to be limited by memory")
        return problem_of(form)

    def configs(self, problem: MatMulProblem, target: Target) -> Sequence[GemvTile]:
        M, K = hint(problem.M), hint(problem.K)
        size = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i8": 1, "u8": 1}.get(problem.dtype, 8 if problem.dtype in ("i64", "u64") else 4)
        MR, widest = _rows(M), 16 // size
        if problem.b == "K" or problem.constant:
            V = next(v for v in (16, 8, 4, 2, 1) if v <= widest and K % v == 0 and (problem.constant or problem.b_align % v == 0))
            if problem.a != "K" or problem.a_align % V:
                V = 1 if problem.a != "K" else next(v for v in (8, 4, 2, 1) if v <= V and problem.a_align % v == 0)
            return [GemvTile("K", MR, V, cols, warps) for cols, warps in ((2, 4), (1, 4), (4, 2), (1, 8))]
        N = hint(problem.N)
        V = next(v for v in (4, 2, 1) if v <= widest and N % v == 0 and problem.b_align % v == 0) if problem.b == "N" else 1
        return [GemvTile("N", MR, V, across, warps) for across, warps in ((8, 16), (8, 8), (4, 16), (32, 4))]

    def score_us(self, problem: MatMulProblem, config: GemvTile, target: Target) -> float:
        batch, N, K = hint(problem.batch), hint(problem.N), hint(problem.K)
        size = 2 if problem.dtype in ("f16", "bf16") else 4
        blocks = ceil(N / config.BN) * batch
        warps = blocks * config.warps
        units = max(target.units, 1)
        # Every warp keeps about 1 KB in flight: bandwidth grows with the warps until the memory is busy.
        rate = target.gbps * 1e3 * min(1.0, warps * config.V * size / 16 / (units * 20))
        return target.launch_us + 1.5 + batch * N * K * size / rate + ceil(blocks / (units * max(1, 64 // config.warps))) * 0.4

    def build(self, group: Group, problem: MatMulProblem, config: GemvTile, storage: StorageOf, target: Target) -> k.Draft:
        assert group.anchor is not None
        form = matmul_form(group.anchor, storage)
        assert isinstance(form, MatMulForm)
        parameters = Parameters()
        a, make_a = matrix_struct(
            "A", f"({form.batch}, {form.M}, {form.K})", form.a, ("K", "M"), parameters, load_width(form.a, form.K, form.M)
        )
        b, packed = form.b, {}
        array = packed_b(form) if config.form == "K" and problem.b != "K" else None
        if isinstance(array, np.ndarray):
            depth = array.shape[2]
            packed[parameters.pointer(b.root, const=True)] = array
            stride = array.shape[1] * depth if len(array) > 1 else 0
            b = Matrix(b.value, b.root, mul(stride, k.dim_of(form.coords[0])), 1, depth)
        text_b, make_b = matrix_struct("B", f"({form.batch}, {form.K}, {form.N})", b, ("N", "K"), parameters, load_width(b, form.N, form.K))
        signature = "int batch, int64_t row, int64_t col"
        store = store_functor(group, form.index, form.coords, parameters, storage, target, signature, widest=config.V if config.form == "N" else 4)
        shape = k.shape_members(parameters, batch=form.batch, M=form.M, N=form.N, K=form.K)
        function = "gemv_k" if config.form == "K" else "gemv_n"
        call = (f"{function}<{config.text}>(shape, {make_a}, {make_b}, Store{{{', '.join(store.initializers)}}});",)
        threads = config.warps * target.warp
        context = k.Context(
            "", k.banner(group), ("aitc/gpu/matmul/gemv.h", "aitc/generic/element.h"), "int64_t", shape, (store,), (a, text_b),
            k.entry_parameters(parameters), threads, call,
        )  # fmt: skip
        blocks = product((ceildiv(form.N, config.BN), ceildiv(form.M, config.MR), form.batch))
        return k.Draft(
            self.name, str(config), "kernel", context, parameters, grid=(blocks, 1, 1), block=(threads, 1, 1),
            smem_bytes=config.smem_bytes(accumulator_bytes(problem.dtype)), overlap=True, skip_if_zero=blocks,
            flops=mul(product((form.batch, form.M, form.N, form.K)), 2), packed=packed,
        )  # fmt: skip
