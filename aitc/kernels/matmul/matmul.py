"""What the GEMM kernels share: how a MatMul and its operands look to them."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np

from aitc.ir.dim import Dim, Symbol, divisor, product
from aitc.ir.dtype import DType
from aitc.ir.graph import Node
from aitc.ir.index import Index, broadcast_index, unflatten
from aitc.ir.packing import contiguous
from aitc.kernels.core.functor import StorageOf
from aitc.kernels.core.kernel import No, coordinate, dim_of
from aitc.kernels.core.sites import Matrix, constant_array, matrix


@dataclass(frozen=True, slots=True)
class MatMulProblem:
    """C[batch, M, N] = A[batch, M, K] · B[batch, K, N]. ``a`` and ``b`` say which axis is contiguous, aligned to how many elements."""

    dtype: str
    batch: Dim
    M: Dim
    N: Dim
    K: Dim
    a: str
    a_align: int
    b: str
    b_align: int
    constant: bool  # B is a weight
    tail_bytes: Dim = 0  # read by the epilogue besides

    def __str__(self) -> str:
        return f"{self.dtype} {self.batch}x{self.M}x{self.N}x{self.K} {self.a}{self.a_align} {self.b}{self.b_align}{' const' if self.constant else ''}"


@dataclass(frozen=True, slots=True)
class MatMulForm:
    """A MatMul in a kernel's coordinates: ``batch``, ``row`` (M), ``col`` (N), ``k``."""

    node: Node
    batch: Dim
    M: Dim
    N: Dim
    K: Dim
    coords: tuple[Symbol, Symbol, Symbol]
    index: Index  # of the output
    a: Matrix
    b: Matrix

    @property
    def dtype(self) -> DType:
        return self.a.value.type.dtype


def matmul_form(node: Node, storage: StorageOf) -> MatMulForm | No:
    """The form of MatMul ``node``. Batch axes become rows when B has none and A's rows lie at one stride."""
    x, y = node.inputs
    assert x is not None and y is not None
    out = node.output.shape
    k = coordinate("k", x.shape[-1])
    col = coordinate("col", out[-1])
    if product(y.shape[:-2]) == 1 and product(out[:-2]) != 1:
        rows = product(out[:-1])
        row = coordinate("row", rows)
        index = unflatten(dim_of(row), out[:-1])
        a = matrix(x, (*index, dim_of(k)), row, k, storage)
        b = matrix(y, (*(0 for _ in y.shape[:-2]), dim_of(k), dim_of(col)), k, col, storage)
        if a is not None and b is not None:
            batch = coordinate("batch", 1)
            return MatMulForm(node, 1, rows, out[-1], x.shape[-1], (batch, row, col), (*index, dim_of(col)), a, b)
    batches = product(out[:-2])
    batch = coordinate("batch", batches)
    row = coordinate("row", out[-2])
    outer = unflatten(dim_of(batch) if batches != 1 else 0, out[:-2])
    a = matrix(x, (*broadcast_index(outer, x.shape[:-2]), dim_of(row), dim_of(k)), row, k, storage)
    b = matrix(y, (*broadcast_index(outer, y.shape[:-2]), dim_of(k), dim_of(col)), k, col, storage)
    copies = tuple((i, None) for i, m in enumerate((a, b)) if m is None)
    if copies:
        return No("an operand's elements do not lie at strides", copies)
    assert a is not None and b is not None
    return MatMulForm(
        node, batches, out[-2], out[-1], x.shape[-1], (batch, row, col), (*outer, dim_of(row), dim_of(col)), a, b
    )


def major_of(m: Matrix, names: tuple[str, str]) -> str:
    """The name of the contiguous axis: ``names`` = (when stride_col is 1, when stride_row is 1)."""
    return names[0] if m.stride_col == 1 else names[1] if m.stride_row == 1 else "none"


def problem_of(form: MatMulForm) -> MatMulProblem:
    return MatMulProblem(
        form.dtype.name, form.batch, form.M, form.N, form.K,
        major_of(form.a, ("K", "M")), min(form.a.alignment, 16), major_of(form.b, ("N", "K")), min(form.b.alignment, 16),
        form.b.root.const is not None,
    )  # fmt: skip


def load_width(m: Matrix, across: Dim, down: Dim) -> int:
    """Elements of the widest aligned load along the contiguous axis: ``across`` is its extent when stride_col is 1, else ``down``."""
    size = m.root.type.dtype.bytes
    if m.stride_col == 1:
        extent, other = across, m.stride_row
    elif m.stride_row == 1:
        extent, other = down, m.stride_col
    else:
        return 1
    common = gcd(gcd(divisor(extent), divisor(other)), divisor(m.rest))
    width = max(1, 16 // size)
    while width > 1 and common % width:
        width //= 2
    return width


def constant_b(form: MatMulForm) -> np.ndarray | None:
    """A constant B as (batch or 1, K, N), as it lies; None if B is computed, or differs between batches in another way."""
    array = constant_array(form.b.value)
    if not isinstance(array, np.ndarray) or not all(isinstance(d, int) for d in (form.K, form.N)):
        return None
    stack = array.reshape(-1, *array.shape[-2:])
    return stack if len(stack) in (1, form.batch) else None


def packed_b(form: MatMulForm) -> np.ndarray | None:
    """A constant B as (batch or 1, N, K rounded up to 8), K contiguous; None where ``constant_b`` gives none."""
    stack = constant_b(form)
    if stack is None:
        return None
    unit = max(8, 16 // stack.itemsize)
    return contiguous(stack.transpose(0, 2, 1), -stack.shape[1] % unit)
