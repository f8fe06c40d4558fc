"""Matrix products on Hopper: TMA and wgmma (include/aitc/gpu/hopper/gemm_sm90.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aitc.ir.dim import Dim, mul, product
from aitc.ir.graph import Value
from aitc.kernels.core import kernel as k
from aitc.kernels.core.functor import Parameters, StorageOf
from aitc.kernels.core.group import Group, heavy_epilogue
from aitc.kernels.core.sites import Matrix, dense_result, described_by, staged_operand
from aitc.kernels.hopper import sm90
from aitc.kernels.hopper.product_sm90 import (
    Config,
    Operands,
    ProductSm90,
    Work,
    operand_reason,
    product_configs,
    second_root,
)
from aitc.kernels.matmul.matmul import MatMulForm, MatMulProblem, constant_b, matmul_form, packed_b, problem_of
from aitc.targets.target import Target


@dataclass(frozen=True, slots=True)
class Sm90Problem(MatMulProblem):
    """``dense``: the results are one matrix that the copy engine can store; ``staged``: a matrix as large is read by the epilogue;
    ``moments``: those of the rows' parts are stored too, by a split or beside what the copy engine stores; ``merges``: the epilogue applies
    statistics of its rows; ``heavy``: it computes an exponential or something as dear (``epilogue_class`` says so in the table's key)."""

    dense: bool = True
    staged: bool = False
    moments: bool = False
    merges: bool = False
    heavy: bool = False

    def __str__(self) -> str:
        flags = (n for n in ("dense", "staged", "moments", "merges") if getattr(self, n))
        return " ".join((MatMulProblem.__str__(self), *flags))


def dense_output(group: Group, form: MatMulForm, storage: StorageOf) -> Matrix | None:
    assert group.anchor is not None
    m = dense_result(group, group.anchor.output, form.index, form.coords, storage)
    if m is None or not isinstance(form.N, int) or form.N % 8 or sm90.copyable(m, form.coords[0], form.M, form.N):
        return None
    start = sm90.batch_stride(m, form.coords[0])
    return m if start is not None and (form.batch == 1 or start[1] != 0) else None


def residual(group: Group, form: MatMulForm, storage: StorageOf) -> Matrix | None:
    """The operand of the epilogue that the copy engine brings, where it also stores the results."""
    assert group.anchor is not None
    if dense_output(group, form, storage) is None:
        return None
    m = staged_operand(group, group.anchor.output, form.index, form.coords, storage)
    if m is None or sm90.copyable(m, form.coords[0], form.M, form.N):
        return None
    start = sm90.batch_stride(m, form.coords[0])
    return m if start is not None and (form.batch == 1 or start[1] != 0) else None


@k.register
class GemmSm90(ProductSm90):
    name = "gemm_sm90"
    anchors = frozenset({"MatMul"})
    priority = 20
    moments = 32
    doc = "matrix products on Hopper: operands by TMA, wgmma, persistent or split among clusters; fp16, bf16, TF32, float8"

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> Sm90Problem | k.No:
        assert group.anchor is not None
        reason = operand_reason(group, target)
        if reason:
            return k.No(reason)
        form = matmul_form(group.anchor, storage)
        if isinstance(form, k.No):
            return form
        if not sm90.positive(form.K):
            return k.No("K may be 0")
        reason = sm90.copyable(form.a, form.coords[0], form.M, form.K)
        packed = constant_b(form) is not None
        if not reason and not packed:
            reason = sm90.copyable(form.b, form.coords[0], form.K, form.N)
        if reason:
            return k.No(reason)
        base = problem_of(form)
        if form.dtype.bytes != 2 and (base.a != "K" or not (packed or base.b == "K")):
            return k.No("only operands of 16 bits may be contiguous along rows or columns")
        values = {f: getattr(base, f) for f in MatMulProblem.__dataclass_fields__}
        dense, staged = dense_output(group, form, storage), residual(group, form, storage)
        moments, merges = described_by(group)[0] is not None, any(n.op.name == "MergedMoments" for n in group.nodes)
        return Sm90Problem(**values, dense=dense is not None, staged=staged is not None, moments=moments, merges=merges, heavy=heavy_epilogue(group))

    def configs(self, problem: Sm90Problem, target: Target) -> Sequence[Config]:
        columns = problem.constant or problem.b == "K"  # of B, contiguous along K

        def fits(c: Config) -> bool:
            a, b = c.slices
            return (problem.a == "K" or a % 64 == 0) and (columns or b % 64 == 0)

        rows = problem.M if isinstance(problem.M, int) and problem.a == "K" else None
        found = product_configs(problem.dtype, problem.dense, problem.staged, rows, target)
        if problem.moments:
            found = [c for c in found if c.BN % self.moments == 0 and (problem.dense or isinstance(c, sm90.Sm90Split))]
        if problem.merges:  # a row's statistics wait in registers, which the widest tiles do not have left
            found = [c for c in found if isinstance(c, sm90.Sm90Split) or not c.ping_pong or c.BN < 192]
        return [c for c in found if fits(c)]

    def extent(self, problem: Sm90Problem) -> sm90.Extent:
        batch, M, N, K = sm90.hinted(problem.batch, problem.M, problem.N, problem.K)
        shared = 1 if problem.constant else batch
        size = sm90.elem_bytes(problem.dtype)
        traffic = float(size * (batch * M * K + shared * K * N + batch * M * N))
        return sm90.Extent(batch, M, N, -(-K * size // sm90.BLOCK_BYTES), traffic, problem.constant)

    def rows(self, group: Group, storage: StorageOf) -> Matrix | None:
        assert group.anchor is not None
        form = matmul_form(group.anchor, storage)
        return form.a if isinstance(form, MatMulForm) and form.batch == 1 else None

    def weights(self, group: Group, storage: StorageOf) -> tuple[Value, np.ndarray] | None:
        assert group.anchor is not None
        form = matmul_form(group.anchor, storage)
        stack = constant_b(form) if isinstance(form, MatMulForm) else None
        return (second_root(group), stack[0]) if stack is not None and len(stack) == 1 else None

    def slowness(self, problem: Sm90Problem, config: Config) -> float:
        """The other group's products hide stores, but not all of a dear epilogue; the widest tiles have no registers left for it."""
        wide = isinstance(config, sm90.Sm90Tile) and config.ping_pong and (config.BN > 128 or config.BN % 64 != 0)
        return 1.15 if problem.heavy and wide else 1.0

    def work(self, group: Group, storage: StorageOf) -> Work:
        assert group.anchor is not None
        form = matmul_form(group.anchor, storage)
        assert isinstance(form, MatMulForm)
        sizes = form.batch, form.M, form.N, form.K
        dense, staged = dense_output(group, form, storage), residual(group, form, storage)
        return Work(form.index, form.coords, "int batch, int64_t row, int64_t col", sizes, mul(product(sizes), 2), dense, staged)

    def operands(
        self, group: Group, problem: Sm90Problem, config: Config, storage: StorageOf, parameters: Parameters, declared: Parameters, suffix: str
    ) -> Operands:
        """A constant B is packed, K contiguous, unless the epilogue reads it too."""
        assert group.anchor is not None
        form = matmul_form(group.anchor, storage)
        assert isinstance(form, MatMulForm)
        batch = form.coords[0]
        c_type = form.a.value.type.dtype.c
        parameters.pointer(form.a.root, const=True)
        packed: dict[str, np.ndarray] = {}
        array = packed_b(form)
        b = form.b
        if array is not None and (id(b.root), True) not in declared.pointers:
            packed[parameters.pointer(b.root, const=True)] = array
            stride: Dim = array.shape[1] * array.shape[2] if len(array) > 1 else 0
            b = Matrix(b.value, b.root, mul(stride, k.dim_of(batch)), 1, array.shape[2])
        parameters.pointer(b.root, const=True)
        slice_a, slice_b = config.slices
        map_a, transposed_a, batched_a = sm90.operand_map(f"map_a{suffix}", form.a, batch, form.M, form.K, form.batch, slice_a)
        by_column = Matrix(b.value, b.root, b.rest, b.stride_col, b.stride_row)  # B seen as (N, K)
        map_b, transposed_b, batched_b = sm90.operand_map(f"map_b{suffix}", by_column, batch, form.N, form.K, form.batch, slice_b)

        def operand(transposed: bool, batched: bool, constant: bool, name: str) -> str:
            flags = ", ".join(str(f).lower() for f in (transposed, batched, constant))
            return f"MatrixSm90<{c_type}, {flags}>{{&{name}}}"

        texts = operand(transposed_a, batched_a, False, f"map_a{suffix}"), operand(transposed_b, batched_b, b.root.const is not None, f"map_b{suffix}")
        return Operands("gemm", texts, (map_a, map_b), (), packed)
