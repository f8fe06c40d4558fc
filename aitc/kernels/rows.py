"""What row kernels (reductions, normalizations, softmax) share: a tensor seen as rows of k elements."""

from __future__ import annotations

from dataclasses import dataclass

from aitc.ir.dim import Dim, Symbol, hint, product
from aitc.ir.dtype import DType
from aitc.ir.graph import Value
from aitc.ir.index import Index, unflatten
from aitc.kernels.functor import StorageOf
from aitc.kernels.kernel import coordinate, dim_of
from aitc.kernels.sites import linear, locate


def memory_axes(v: Value, storage: StorageOf) -> tuple[int, ...]:
    """The axes of ``v`` from the outermost to the innermost in memory (seen through views), as far as they lie at strides."""
    natural = v.type.order or tuple(range(v.type.rank))
    coords = [coordinate(f"i{a}", d) for a, d in enumerate(v.shape)]
    _, offset = locate(v, tuple(dim_of(c) for c in coords), storage)
    form = linear(offset, coords)
    if form is None:
        return natural
    strides = form[1]
    return tuple(sorted(natural, key=lambda a: (-hint(strides[a]) if v.shape[a] != 1 and strides[a] != 0 else -(1 << 62), natural.index(a))))


@dataclass(frozen=True, slots=True)
class Rows:
    """``v`` as rows × k: the index of element (row, k), which axes each coordinate runs over, and whether k is contiguous."""

    rows: Dim
    K: Dim
    row: Symbol
    k: Symbol
    index: Index
    kept: tuple[int, ...]
    contiguous: bool  # k is the innermost in memory: vectors run along k, else along row

    @property
    def vector(self) -> Symbol:
        return self.k if self.contiguous else self.row


def rows_of(v: Value, axes: tuple[int, ...], storage: StorageOf) -> Rows:
    """``v`` with ``axes`` as k, in memory order on both sides."""
    order = memory_axes(v, storage)
    kept = tuple(a for a in order if a not in axes)
    inner = tuple(a for a in order if a in axes)
    rows, depth = product(v.shape[a] for a in kept), product(v.shape[a] for a in inner)
    row, k = coordinate("row", rows), coordinate("k", depth)
    index: list[Dim] = [0] * v.type.rank
    for axes_, symbol in ((kept, row), (inner, k)):
        for a, i in zip(axes_, unflatten(dim_of(symbol), tuple(v.shape[a] for a in axes_)), strict=True):
            index[a] = i
    last = next((a for a in reversed(order) if v.shape[a] != 1), None)
    contiguous = last is None or last in axes
    return Rows(rows, depth, row, k, tuple(index), kept, contiguous)


def row_type(dtype: DType) -> str:
    """The type that rows of ``dtype`` are reduced in: float, double, int32_t or int64_t."""
    if dtype.is_float:
        return dtype.compute_c
    if dtype.kind == "bool" or dtype.bits < 32 or dtype.name == "i32":
        return "int32_t"
    return "int64_t"
