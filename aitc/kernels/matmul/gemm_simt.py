"""Matrix products by plain multiply-adds on any GPU and any type (include/aitc/gpu/matmul/gemm_simt.h)."""

from __future__ import annotations

from collections.abc import Sequence

from aitc.ir.dim import hint
from aitc.kernels.core import kernel as k
from aitc.kernels.core.functor import StorageOf
from aitc.kernels.core.group import Group
from aitc.kernels.matmul.gemm_sm80 import gemm_draft
from aitc.kernels.matmul.matmul import MatMulProblem, matmul_form, problem_of
from aitc.kernels.matmul.tiles import SIMT_TILES, SIMT_TILES_DOUBLE, SimtTile, product_us
from aitc.targets.target import Target


def accumulator_bytes(dtype: str) -> int:
    return 8 if dtype in ("f64", "i64", "u64") else 4


def simt_tiles(dtype: str, target: Target) -> Sequence[SimtTile]:
    """The tiles that fit into a block's shared memory: 64 KiB on AMD's and on Turing, where the deepest does not."""
    acc = accumulator_bytes(dtype)
    tiles = SIMT_TILES_DOUBLE if acc == 8 else SIMT_TILES
    return [t for t in tiles if t.smem_bytes(acc) <= target.smem_bytes]


@k.register
class GemmSimt(k.Kernel):
    name = "gemm_simt"
    template = "kernel"
    requires = frozenset({"simt"})
    anchors = frozenset({"MatMul"})
    doc = "matrix products by plain multiply-adds: strict float32, double, integers, whatever the tensor cores do not take"

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> MatMulProblem | k.No:
        assert group.anchor is not None
        form = matmul_form(group.anchor, storage)
        return form if isinstance(form, k.No) else problem_of(form)

    def configs(self, problem: MatMulProblem, target: Target) -> Sequence[SimtTile]:
        return simt_tiles(problem.dtype, target)

    def score_us(self, problem: MatMulProblem, config: SimtTile, target: Target) -> float:
        acc = accumulator_bytes(problem.dtype)
        batch, M, N, K = (hint(d) for d in (problem.batch, problem.M, problem.N, problem.K))
        rate = target.tflops["fp32"] * (0.5 if acc == 8 else 1.0)
        traffic = 4.0 * batch * (M * K + K * N + M * N)
        return product_us(
            batch,
            M,
            N,
            K,
            config.BM,
            config.BN,
            config.step,
            config.threads,
            config.smem_bytes(acc),
            traffic,
            rate,
            target,
        )

    def build(
        self, group: Group, problem: MatMulProblem, config: SimtTile, storage: StorageOf, target: Target
    ) -> k.Draft:
        smem = config.smem_bytes(accumulator_bytes(problem.dtype))
        return gemm_draft(
            self.name,
            "aitc/gpu/matmul/gemm_simt.h",
            "gemm_simt",
            config.text,
            config,
            config.threads,
            group,
            storage,
            target,
            smem,
            4,
        )
