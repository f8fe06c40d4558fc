"""Matrix products on NVIDIA tensor cores through mma.sync, sm_80 and newer (include/aitc/gpu/matmul/gemm_sm80.h)."""

from __future__ import annotations

from collections.abc import Sequence

from aitc.ir.dim import ceildiv, divisor, hint, mul, product
from aitc.kernels.core import kernel as k
from aitc.kernels.core.functor import Parameters, StorageOf
from aitc.kernels.core.group import Group
from aitc.kernels.core.sites import matrix_struct, store_functor
from aitc.kernels.matmul.matmul import MatMulForm, MatMulProblem, load_width, matmul_form, problem_of
from aitc.kernels.matmul.tiles import HALF_TILES, TF32_TILES, Sm80Tile, product_us
from aitc.targets.target import Target


def tensor_core_type(dtype: str, target: Target) -> str | None:
    """The operand type whose rate the tensor cores run ``dtype`` at; None if they do not."""
    if dtype == "f32":
        return "tf32" if "tf32" in target.features else None
    return {"f16": "fp16", "bf16": "bf16"}.get(dtype)


def copied_whole(problem: MatMulProblem, unit: int) -> bool:
    """Whether both operands come in pieces of ``unit`` elements, 16 bytes."""
    extents = {"K": problem.K, "M": problem.M}.get(problem.a), {"K": problem.K, "N": problem.N}.get(problem.b)
    aligned = problem.a_align % unit == 0 and problem.b_align % unit == 0
    return aligned and all(e is not None and divisor(e) % unit == 0 for e in extents)


@k.register
class GemmSm80(k.Kernel):
    name = "gemm_sm80"
    template = "kernel"
    requires = frozenset({"mma_sm80"})
    anchors = frozenset({"MatMul"})
    priority = 10
    doc = "matrix products on tensor cores by mma.sync: fp16, bf16, TF32"

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> MatMulProblem | k.No:
        assert group.anchor is not None
        if any(v is not None and tensor_core_type(v.type.dtype.name, target) is None for v in group.anchor.inputs):
            return k.No("the tensor cores do not take these types")
        form = matmul_form(group.anchor, storage)
        return form if isinstance(form, k.No) else problem_of(form)

    def configs(self, problem: MatMulProblem, target: Target) -> Sequence[Sm80Tile]:
        tiles = TF32_TILES if problem.dtype == "f32" else HALF_TILES
        size = 4 if problem.dtype == "f32" else 2
        sums = 128 if copied_whole(problem, 16 // size) else 64  # of a thread: narrower copies need registers for addresses and masks
        return [t for t in tiles if t.smem_bytes(size) <= target.smem_bytes and t.BM * t.BN // t.threads <= sums]

    def score_us(self, problem: MatMulProblem, config: Sm80Tile, target: Target) -> float:
        size = 4 if problem.dtype == "f32" else 2
        batch, M, N, K = (hint(d) for d in (problem.batch, problem.M, problem.N, problem.K))
        rate = target.tflops[tensor_core_type(problem.dtype, target) or "fp16"] * (
            0.65 if "wgmma" in target.features else 1.0
        )
        traffic = float(size * batch * (M * K + K * N + M * N))
        return product_us(
            batch,
            M,
            N,
            K,
            config.BM,
            config.BN,
            config.step,
            config.threads,
            config.smem_bytes(size),
            traffic,
            rate,
            target,
        )

    def build(
        self, group: Group, problem: MatMulProblem, config: Sm80Tile, storage: StorageOf, target: Target
    ) -> k.Draft:
        return gemm_draft(self.name, "aitc/gpu/matmul/gemm_sm80.h", "gemm_sm80", config.text, config, config.threads, group, storage, target,
                          config.smem_bytes(4 if problem.dtype == "f32" else 2), 8)  # fmt: skip


def product_words(
    group: Group, form: MatMulForm, parameters: Parameters, storage: StorageOf, target: Target, widest: int, suffix: str = ""
) -> tuple[tuple[tuple[str, ...], ...], k.FunctorText, tuple[k.ShapeMember, ...], tuple[str, ...]]:
    """The structs of the operands, the functor of the results, the members of the shape, and the arguments behind it; names end in ``suffix``."""
    widths = load_width(form.a, form.K, form.M), load_width(form.b, form.N, form.K)
    a, make_a = matrix_struct(f"A{suffix}", f"({form.batch}, {form.M}, {form.K})", form.a, ("K", "M"), parameters, widths[0])
    b, make_b = matrix_struct(f"B{suffix}", f"({form.batch}, {form.K}, {form.N})", form.b, ("N", "K"), parameters, widths[1])
    signature = "int batch, int64_t row, int64_t col"
    store = store_functor(group, form.index, form.coords, parameters, storage, target, signature, name=f"Store{suffix}", widest=widest)
    shape = k.shape_members(parameters, batch=form.batch, M=form.M, N=form.N, K=form.K)
    return (a, b), store, shape, (make_a, make_b, f"{store.name}{{{', '.join(store.initializers)}}}")


def gemm_draft(
    name: str, header: str, function: str, tile: str, config: object, threads: int, group: Group, storage: StorageOf, target: Target,
    smem_bytes: int, widest: int,
) -> k.Draft:  # fmt: skip
    """An instance of a GEMM header whose blocks take one BM × BN tile each; ``config`` has BM and BN."""
    assert group.anchor is not None
    form = matmul_form(group.anchor, storage)
    assert isinstance(form, MatMulForm)
    parameters = Parameters()
    structs, store, shape, arguments = product_words(group, form, parameters, storage, target, widest)
    call = (f"{function}<{tile}>({', '.join(('shape', *arguments))});",)
    context = k.Context(
        "",
        k.banner(group),
        (header, "aitc/generic/element.h"),
        "int64_t",
        shape,
        (store,),
        structs,
        k.entry_parameters(parameters),
        threads,
        call,
    )
    blocks = product((ceildiv(form.M, config.BM), ceildiv(form.N, config.BN), form.batch))  # type: ignore[attr-defined]
    return k.Draft(
        name, str(config), "kernel", context, parameters, grid=(blocks, 1, 1), block=(threads, 1, 1), smem_bytes=smem_bytes,
        overlap=True, skip_if_zero=blocks, flops=mul(product((form.batch, form.M, form.N, form.K)), 2),
    )  # fmt: skip
