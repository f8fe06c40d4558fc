"""Matrix products on AMD's matrix cores (include/aitc/gpu/matmul/gemm_cdna.h). Compiled and emulated; never timed on AMD hardware."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from aitc.ir.dim import Dim, ceildiv, hint, mul, product
from aitc.kernels.core import kernel as k
from aitc.kernels.core.functor import Parameters, StorageOf
from aitc.kernels.core.group import Group, side_by_side
from aitc.kernels.matmul import cdna
from aitc.kernels.matmul.cdna import FLOAT8_TYPES, MATRIX_TYPES, CdnaTile
from aitc.kernels.matmul.gemm_sm80 import gemm_draft, product_words
from aitc.kernels.matmul.matmul import MatMulForm, MatMulProblem, matmul_form, problem_of
from aitc.targets.target import Target

TYPES = {**MATRIX_TYPES, **FLOAT8_TYPES}


@k.register
class GemmCdna(k.Kernel):
    name = "gemm_cdna"
    template = "kernel"
    requires = frozenset({"mfma"})
    anchors = frozenset({"MatMul"})
    priority = 10
    family = "products_cdna"
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
        header = "aitc/gpu/matmul/gemm_cdna.h"
        draft = gemm_draft(self.name, header, self.name, config.text, config, config.threads, group, storage, target, smem, 8)
        return cdna.claimed(draft, config.blocks)

    # --- several in one launch
    def together(self, parts: Sequence[k.Part], target: Target) -> tuple[float, tuple[CdnaTile, ...]] | None:
        problems: list[MatMulProblem] = [part.problem for part in parts]
        if len({p.dtype for p in problems}) > 1:
            return None
        rate, size = TYPES[problems[0].dtype]
        sizes = [tuple(hint(d) for d in (p.batch, p.M, p.N, p.K)) for p in problems]
        if any(batch * ceil(M / 128) * ceil(N / 128) >= target.units for batch, M, N, _ in sizes):
            return None  # it fills the device by itself
        traffic = float(sum(size * batch * (M * K + K * N + M * N) for batch, M, N, K in sizes))
        best: tuple[float, tuple[CdnaTile, ...]] | None = None
        for tile in self.configs(problems[0], target):
            blocks = sum(batch * ceil(M / tile.BM) * ceil(N / tile.BN) for batch, M, N, _ in sizes)
            us = cdna.tile_us(tile, blocks, tile.BM, tile.BN, max(K for *_, K in sizes), rate, traffic, size, target)
            if best is None or us < best[0]:
                best = us, (tile,) * len(parts)
        return best

    def build_together(self, parts: Sequence[k.Part], configs: Sequence[CdnaTile], storage: StorageOf, target: Target) -> k.Draft | None:
        tile, parameters = configs[0], Parameters()
        structs: list[tuple[str, ...]] = []
        stores: list[k.FunctorText] = []
        call: list[str] = []
        first: Dim = 0
        flops: Dim = 0
        for n, part in enumerate(parts):
            assert part.group.anchor is not None
            form = matmul_form(part.group.anchor, storage)
            assert isinstance(form, MatMulForm)
            own, store, members, arguments = product_words(part.group, form, parameters, storage, target, 8, str(n))
            lines, shape = k.shape_struct(f"Shape{n}", members)
            structs += [lines, *own]
            stores.append(store)
            blocks = product((ceildiv(form.M, tile.BM), ceildiv(form.N, tile.BN), form.batch))
            call.append(f"if ({k.block_range(first, blocks, parameters)}; blocks.mine())")
            call.append(f"  {self.name}<{tile.text}>({', '.join((shape, *arguments, 'blocks'))});")
            first, flops = first + blocks, flops + mul(product((form.batch, form.M, form.N, form.K)), 2)
        smem = tile.smem_bytes(TYPES[parts[0].problem.dtype][1])
        every = side_by_side([part.group for part in parts])
        headers = ("aitc/gpu/matmul/gemm_cdna.h", "aitc/generic/element.h")
        context = k.Context(
            "", k.banner(every), headers, "int64_t", (), tuple(stores), tuple(structs), k.entry_parameters(parameters), tile.threads, tuple(call),
            min_blocks=tile.blocks,
        )  # fmt: skip
        return k.Draft(
            self.family, str(tile), self.template, context, parameters, grid=(first, 1, 1), block=(tile.threads, 1, 1), smem_bytes=smem, overlap=True,
            skip_if_zero=first, flops=flops,
        )  # fmt: skip
