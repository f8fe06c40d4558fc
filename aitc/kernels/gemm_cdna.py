"""Matrix products on AMD's matrix cores (include/aitc/gpu/gemm_cdna.h). Compiled and emulated; never timed on AMD hardware."""

from __future__ import annotations

from collections.abc import Sequence

from aitc.ir.dim import hint
from aitc.kernels import cdna
from aitc.kernels import kernel as k
from aitc.kernels.cdna import FLOAT8_TYPES, MATRIX_TYPES, CdnaTile
from aitc.kernels.functor import StorageOf
from aitc.kernels.gemm_sm80 import gemm_draft
from aitc.kernels.group import Group
from aitc.kernels.matmul import MatMulProblem, matmul_form, problem_of
from aitc.targets.target import Target

TYPES = {**MATRIX_TYPES, **FLOAT8_TYPES}


@k.register
class GemmCdna(k.Kernel):
    name = "gemm_cdna"
    template = "kernel"
    requires = frozenset({"mfma"})
    anchors = frozenset({"MatMul"})
    priority = 10
    doc = "matrix products by MFMA: fp16, bf16, float without rounding, and float8 on gfx942"

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> MatMulProblem | k.No:
        node = group.anchor
        assert node is not None
        kinds = {v.type.dtype.name for v in node.inputs if v is not None}
        float8 = len(kinds) == 1 and kinds <= set(FLOAT8_TYPES) and "fp8" in target.features and node.output.type.dtype.name == "f32"
        if not float8 and (not kinds <= set(MATRIX_TYPES) or node.attrs.out is not None):
            return k.No("the matrix cores do not take these types")
        form = matmul_form(node, storage)
        return form if isinstance(form, k.No) else problem_of(form)

    def configs(self, problem: MatMulProblem, target: Target) -> Sequence[CdnaTile]:
        return {1: cdna.FLOAT8_TILES, 2: cdna.HALF_TILES, 4: cdna.FLOAT_TILES}[TYPES[problem.dtype][1]]

    def score_us(self, problem: MatMulProblem, config: CdnaTile, target: Target) -> float:
        rate, size = TYPES[problem.dtype]
        batch, M, N, K = (hint(d) for d in (problem.batch, problem.M, problem.N, problem.K))
        traffic = float(size * batch * (M * K + K * N + M * N))
        return cdna.tile_us(config, batch, M, N, K, rate, traffic, size, target)

    def build(
        self, group: Group, problem: MatMulProblem, config: CdnaTile, storage: StorageOf, target: Target
    ) -> k.Draft:
        smem = config.smem_bytes(TYPES[problem.dtype][1])
        header = "aitc/gpu/gemm_cdna.h"
        draft = gemm_draft(self.name, header, self.name, config.text, config, config.threads, group, storage, target, smem, 8)
        return cdna.claimed(draft, config.blocks)
