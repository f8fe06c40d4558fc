"""Matrix products on the processor: packed panels of B, register tiles, threads over blocks (include/aitc/cpu/gemm.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aitc.ir.dim import hint, mul, product
from aitc.kernels.core import kernel as k
from aitc.kernels.core.functor import Parameters, StorageOf
from aitc.kernels.core.group import Group
from aitc.kernels.core.sites import constant_array, matrix_struct, store_functor
from aitc.kernels.matmul.matmul import MatMulForm, MatMulProblem, matmul_form, problem_of
from aitc.targets.target import Target

PANEL = 32  # columns of a packed panel, as in cpu/microkernel.h
REACHED = 0.5  # of the target's rate, by products and convolutions of ResNet-50 (`python -m bench.score`)


def product_us(flops: int, target: Target) -> float:
    """Predicted time of a product or convolution on the processor, in microseconds."""
    return target.launch_us + flops / (REACHED * target.tflops["fp32"]) * 1e-6


@dataclass(frozen=True, slots=True)
class CpuTile:
    """The register tile: ``rows`` x (``vectors`` * the instruction set's vector); 0: what suits the instruction set."""

    rows: int = 0
    vectors: int = 0

    def __str__(self) -> str:
        return f"{self.rows}x{self.vectors}" if self.rows else "auto"

    @property
    def text(self) -> str:
        """The C++ type."""
        return f"Tile<{self.rows}, {self.vectors}>" if self.rows else "Tile<>"


CPU_TILES = (CpuTile(), CpuTile(4, 2), CpuTile(6, 2), CpuTile(8, 2), CpuTile(12, 1), CpuTile(8, 1))


def pack_panels(b: np.ndarray) -> np.ndarray:
    """(batch, K, N) to (batch, ceil(N/32), K, 32), zero-padded."""
    batch, depth, n = b.shape
    columns = -(-n // PANEL) * PANEL
    padded = np.zeros((batch, depth, columns), b.dtype)
    padded[:, :, :n] = b
    return np.ascontiguousarray(padded.reshape(batch, depth, columns // PANEL, PANEL).transpose(0, 2, 1, 3))


@k.register
class GemmCpu(k.Kernel):
    name = "gemm_cpu"
    template = "kernel"
    requires = frozenset({"cpu"})
    anchors = frozenset({"MatMul"})
    doc = "matrix products on the processor, packed and register-blocked"

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> MatMulProblem | k.No:
        assert group.anchor is not None
        form = matmul_form(group.anchor, storage)
        return form if isinstance(form, k.No) else problem_of(form)

    def configs(self, problem: MatMulProblem, target: Target) -> Sequence[CpuTile]:
        return CPU_TILES

    def score_us(self, problem: MatMulProblem, config: CpuTile, target: Target) -> float:
        flops = 2 * hint(product((problem.batch, problem.M, problem.N, problem.K)))
        return product_us(flops, target)

    def build(
        self, group: Group, problem: MatMulProblem, config: CpuTile, storage: StorageOf, target: Target
    ) -> k.Draft:
        assert group.anchor is not None
        form = matmul_form(group.anchor, storage)
        assert isinstance(form, MatMulForm)
        parameters = Parameters()
        a, make_a = matrix_struct("A", f"({form.batch}, {form.M}, {form.K})", form.a, ("K", "M"), parameters)
        packed: dict[str, object] = {}
        panels = self._panels(form)
        if panels is not None:
            pointer = parameters.pointer(form.b.root, const=True)
            packed[pointer] = panels
            step = panels.shape[1] * panels.shape[2] * PANEL
            c_type = form.b.root.type.dtype.c
            offset = f" + int64_t(batch) * {step}" if panels.shape[0] > 1 else ""
            b: tuple[str, ...] = (
                f"struct B {{  // ({form.batch}, {form.K}, {form.N}) in panels of {PANEL} columns", f"  using type = {c_type};",
                "  static constexpr bool packed = true;", f"  const {c_type}* data;",
                f"  AITC_FN const {c_type}* matrix(int {'batch' if offset else '/*batch*/'}) const {{ return data{offset}; }}", "};",
            )  # fmt: skip
            make_b = f"B{{{pointer}}}"
        else:
            b, make_b = matrix_struct("B", f"({form.batch}, {form.K}, {form.N})", form.b, ("N", "K"), parameters)
        store = store_functor(
            group, form.index, form.coords, parameters, storage, target, "int batch, int64_t row, int64_t col"
        )
        shape = k.shape_members(parameters, batch=form.batch, M=form.M, N=form.N, K=form.K)
        call = (f"gemm<{config.text}>(shape, {make_a}, {make_b}, Store{{{', '.join(store.initializers)}}});",)
        context = k.Context(
            "",
            k.banner(group),
            ("aitc/cpu/gemm.h", "aitc/generic/element.h"),
            "int64_t",
            shape,
            (store,),
            (a, b),
            k.entry_parameters(parameters),
            0,
            call,
        )
        flops = mul(product((form.batch, form.M, form.N, form.K)), 2)
        return k.Draft(
            self.name, str(config), self.template, context, parameters,
            skip_if_zero=product((form.batch, form.M, form.N)), flops=flops, packed=packed,
        )  # fmt: skip

    def _panels(self, form: MatMulForm) -> np.ndarray | None:
        """B in panels when it is a constant that this kernel alone decides the layout of."""
        array = constant_array(form.b.value)
        if not isinstance(array, np.ndarray) or not array.size or not isinstance(form.batch, int):
            return None
        flat = array.reshape(-1, *array.shape[-2:])
        if flat.shape[0] not in (1, form.batch):
            return None
        if flat.shape[0] == 1 and form.batch != 1:
            return pack_panels(flat)
        lead = form.node.output.shape[:-2]
        if form.batch != 1:
            full = np.broadcast_to(array, (*(int(d) for d in lead if isinstance(d, int)), *array.shape[-2:]))
            flat = full.reshape(-1, *array.shape[-2:])
        return pack_panels(np.asarray(flat))
