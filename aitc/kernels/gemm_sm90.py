"""Matrix products on Hopper: TMA and wgmma (include/aitc/gpu/gemm_sm90.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from aitc.ir.dim import Dim, mul, product
from aitc.kernels import kernel as k
from aitc.kernels import sm90
from aitc.kernels.functor import Parameters, StorageOf
from aitc.kernels.group import Group
from aitc.kernels.matmul import MatMulForm, MatMulProblem, matmul_form, problem_of
from aitc.kernels.sites import Matrix, constant_array, dense_result, result_functor, staged_operand, store_functor
from aitc.targets.target import Target


@dataclass(frozen=True, slots=True)
class Sm90Problem(MatMulProblem):
    """``dense``: the results are one matrix that the copy engine can store; ``staged``: a matrix as large is read by the epilogue."""

    dense: bool = True
    staged: bool = False

    def __str__(self) -> str:
        return MatMulProblem.__str__(self) + (" dense" if self.dense else "") + (" staged" if self.staged else "")


def packed_b(form: MatMulForm) -> np.ndarray | None:
    """A constant B as (batch or 1, N, K rounded up to 8), K contiguous; None if B is computed, or differs between batches in another way."""
    array = constant_array(form.b.value)
    if not isinstance(array, np.ndarray) or not all(isinstance(d, int) for d in (form.K, form.N)):
        return None
    stack = array.reshape(-1, *array.shape[-2:])
    if len(stack) != 1 and len(stack) != form.batch:
        return None
    depth = stack.shape[1]
    return np.ascontiguousarray(np.pad(stack.transpose(0, 2, 1), ((0, 0), (0, 0), (0, -depth % 8))))


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
class GemmSm90(k.Kernel):
    name = "gemm_sm90"
    template = "kernel"
    requires = frozenset({"wgmma", "tma"})
    anchors = frozenset({"MatMul"})
    priority = 20
    doc = "matrix products on Hopper: operands by TMA, wgmma, persistent or split among clusters; fp16 and bf16"

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> Sm90Problem | k.No:
        assert group.anchor is not None
        kinds = {v.type.dtype.name for v in group.anchor.inputs if v is not None}
        if kinds not in ({"f16"}, {"bf16"}):
            return k.No("wgmma takes two operands of fp16 or bf16")
        form = matmul_form(group.anchor, storage)
        if isinstance(form, k.No):
            return form
        if not sm90.positive(form.K):
            return k.No("K may be 0")
        reason = sm90.copyable(form.a, form.coords[0], form.M, form.K)
        if not reason and packed_b(form) is None:
            reason = sm90.copyable(form.b, form.coords[0], form.K, form.N)
        if reason:
            return k.No(reason)
        base = problem_of(form)
        values = {f: getattr(base, f) for f in MatMulProblem.__dataclass_fields__}
        return Sm90Problem(**values, dense=dense_output(group, form, storage) is not None, staged=residual(group, form, storage) is not None)

    def configs(self, problem: Sm90Problem, target: Target) -> Sequence[sm90.Sm90Tile | sm90.Sm90Split]:
        def fits(c: sm90.Sm90Tile | sm90.Sm90Split) -> bool:
            a, b = c.slices
            columns = problem.constant or problem.b == "K"  # of B, contiguous along K
            return c.smem_bytes <= target.smem_bytes and (problem.a == "K" or a % 64 == 0) and (columns or b % 64 == 0)

        rows = problem.M if isinstance(problem.M, int) and problem.a == "K" else 1 << 20
        splits = [replace(c, rows=-(-rows // 8) * 8) if rows < c.BM else c for c in sm90.SPLITS]
        tiles = (*sm90.TILES, *(sm90.DENSE_TILES if problem.dense else ()))
        staged = sm90.staged_tiles(tiles, target.smem_bytes) if problem.staged else tiles
        return [c for c in (*staged, *splits) if fits(c)]

    def score_us(self, problem: Sm90Problem, config: sm90.Sm90Tile | sm90.Sm90Split, target: Target) -> float:
        batch, M, N, K = sm90.hinted(problem.batch, problem.M, problem.N, problem.K)
        shared = 1 if problem.constant else batch
        traffic = 2.0 * (batch * M * K + shared * K * N + batch * M * N)
        rate = target.tflops["fp16"]
        return sm90.tile_us(config, batch, M, N, -(-K // 64), rate, traffic, problem.constant, target)

    def build(
        self, group: Group, problem: Sm90Problem, config: sm90.Sm90Tile | sm90.Sm90Split, storage: StorageOf, target: Target
    ) -> k.Draft:
        assert group.anchor is not None
        form = matmul_form(group.anchor, storage)
        assert isinstance(form, MatMulForm)
        batch = form.coords[0]
        parameters = Parameters()
        split = isinstance(config, sm90.Sm90Split)
        dense = None if split else dense_output(group, form, storage)
        signature = "int batch, int64_t row, int64_t col"
        staged = residual(group, form, storage) if isinstance(config, sm90.Sm90Tile) and config.staged else None
        if dense is not None:
            store = result_functor(group, group.anchor.output, form.index, form.coords, parameters, storage, signature, staged=staged)
        else:
            store = store_functor(group, form.index, form.coords, parameters, storage, target, signature, widest=8)
        declared = dict(parameters.pointers)
        c_type = form.a.value.type.dtype.c
        parameters.pointer(form.a.root, const=True)
        packed: dict[str, np.ndarray] = {}
        array = packed_b(form)
        b = form.b
        if array is not None and (id(b.root), True) not in declared:
            packed[parameters.pointer(b.root, const=True)] = array
            stride: Dim = array.shape[1] * array.shape[2] if len(array) > 1 else 0
            b = Matrix(b.value, b.root, mul(stride, k.dim_of(batch)), 1, array.shape[2])
        parameters.pointer(b.root, const=True)
        slice_a, slice_b = config.slices
        map_a, transposed_a, batched_a = sm90.operand_map("map_a", form.a, batch, form.M, form.K, form.batch, slice_a)
        by_column = Matrix(b.value, b.root, b.rest, b.stride_col, b.stride_row)  # B seen as (N, K)
        map_b, transposed_b, batched_b = sm90.operand_map("map_b", by_column, batch, form.N, form.K, form.batch, slice_b)
        maps = [map_a, map_b]
        if dense is not None:
            parameters.pointer(dense.root, const=False)
            maps.append(sm90.result_map("map_d", dense, batch, form.M, form.N, form.batch))
        if staged is not None:
            parameters.pointer(staged.root, const=True)
            maps.append(sm90.result_map("map_s", staged, batch, form.M, form.N, form.batch))

        def operand(transposed: bool, batched: bool, constant: bool, name: str) -> str:
            flags = ", ".join(str(f).lower() for f in (transposed, batched, constant))
            return f"MatrixSm90<{c_type}, {flags}>{{&{name}}}"

        shape = k.shape_members(parameters, batch=form.batch, M=form.M, N=form.N, K=form.K)
        arguments = [
            "shape", operand(transposed_a, batched_a, False, "map_a"), operand(transposed_b, batched_b, b.root.const is not None, "map_b"),
            f"Store{{{', '.join(store.initializers)}}}",
        ]  # fmt: skip
        if not split:
            arguments += ["map_d" if dense is not None else "map_a", "map_s" if staged is not None else "map_a"]
        call = (f"{'gemm_split_sm90' if split else 'gemm_sm90'}<{config.text}>({', '.join(arguments)});",)
        visible = Parameters()
        visible.pointers, visible.dims = declared, parameters.dims
        context = k.Context(
            "", k.banner(group), ("aitc/gpu/gemm_sm90.h", "aitc/generic/element.h"), "int64_t", shape, (store,), (),
            k.entry_parameters(visible, [sm90.MAP.format(m.parameter) for m in maps]), config.threads, call, min_blocks=1,
        )  # fmt: skip
        blocks = config.blocks(form.M, form.N, form.batch, target)
        return k.Draft(
            self.name, str(config), "kernel", context, parameters, grid=(blocks, 1, 1), block=(config.threads, 1, 1),
            smem_bytes=config.smem_bytes, cluster=config.cluster, overlap=True, skip_if_zero=product((form.batch, form.M, form.N)),
            flops=mul(product((form.batch, form.M, form.N, form.K)), 2), maps=tuple(maps), packed=packed,
        )  # fmt: skip
