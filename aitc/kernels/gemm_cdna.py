"""Matrix products on AMD's matrix cores (include/aitc/gpu/gemm_cdna.h). Compiled and emulated; never timed on AMD hardware."""

from __future__ import annotations

from collections.abc import Sequence

from aitc.ir.dim import hint
from aitc.kernels import kernel as k
from aitc.kernels.functor import StorageOf
from aitc.kernels.gemm_sm80 import gemm_draft
from aitc.kernels.group import Group
from aitc.kernels.matmul import MatMulProblem, matmul_form, problem_of
from aitc.kernels.tiles import CDNA_FLOAT_TILES, CDNA_HALF_TILES, CdnaTile, product_us
from aitc.targets.target import Target

MATRIX_TYPES = {"f16": ("fp16", 2), "bf16": ("bf16", 2), "f32": ("fp32", 4)}  # rate, bytes; MFMA on float is exact


@k.register
class GemmCdna(k.Kernel):
    name = "gemm_cdna"
    template = "kernel"
    requires = frozenset({"mfma"})
    anchors = frozenset({"MatMul"})
    priority = 10
    doc = "matrix products by MFMA: fp16, bf16, and float without rounding"

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> MatMulProblem | k.No:
        node = group.anchor
        assert node is not None
        if (
            any(v is not None and v.type.dtype.name not in MATRIX_TYPES for v in node.inputs)
            or node.attrs.out is not None
        ):
            return k.No("the matrix cores do not take these types")
        form = matmul_form(node, storage)
        return form if isinstance(form, k.No) else problem_of(form)

    def configs(self, problem: MatMulProblem, target: Target) -> Sequence[CdnaTile]:
        size = MATRIX_TYPES[problem.dtype][1]
        return [
            t for t in (CDNA_FLOAT_TILES if size == 4 else CDNA_HALF_TILES) if t.smem_bytes(size) <= target.smem_bytes
        ]

    def score_us(self, problem: MatMulProblem, config: CdnaTile, target: Target) -> float:
        rate, size = MATRIX_TYPES[problem.dtype]
        batch, M, N, K = (hint(d) for d in (problem.batch, problem.M, problem.N, problem.K))
        traffic = float(size * batch * (M * K + K * N + M * N))
        smem = config.smem_bytes(size)
        return product_us(
            batch, M, N, K, config.BM, config.BN, config.step, config.threads, smem, traffic, target.tflops[rate], target
        )

    def build(
        self, group: Group, problem: MatMulProblem, config: CdnaTile, storage: StorageOf, target: Target
    ) -> k.Draft:
        smem = config.smem_bytes(MATRIX_TYPES[problem.dtype][1])
        return gemm_draft(
            self.name,
            "aitc/gpu/gemm_cdna.h",
            "gemm_cdna",
            config.text,
            config,
            config.threads,
            group,
            storage,
            target,
            smem,
            8,
        )
