"""What row kernels (reductions, normalizations, softmax) share: a tensor seen as rows of k elements."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from aitc.ir.dim import Dim, Symbol, ceildiv, hint, is_multiple, product, upper
from aitc.ir.dtype import DType
from aitc.ir.graph import Value
from aitc.ir.index import Index, unflatten
from aitc.kernels.core.functor import StorageOf
from aitc.kernels.core.kernel import coordinate, dim_of
from aitc.kernels.core.sites import linear, locate
from aitc.targets.target import Target


def memory_axes(v: Value, storage: StorageOf) -> tuple[int, ...]:
    """The axes of ``v`` from the outermost to the innermost in memory (seen through views), as far as they lie at strides."""
    natural = v.type.order or tuple(range(v.type.rank))
    coords = [coordinate(f"i{a}", d) for a, d in enumerate(v.shape)]
    _, offset = locate(v, tuple(dim_of(c) for c in coords), storage)
    form = linear(offset, coords)
    if form is None:
        return natural
    strides = form[1]
    return tuple(
        sorted(
            natural,
            key=lambda a: (-hint(strides[a]) if v.shape[a] != 1 and strides[a] != 0 else -(1 << 62), natural.index(a)),
        )
    )


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


@dataclass(frozen=True, slots=True)
class RowShape:
    """How a row kernel divides its work. On the processor there is nothing to choose (``threads`` 0).

    Contiguous rows: ``lanes`` threads share a row and hold ``packs`` vectors of V each (0: the row is read again for each pass). Columns:
    ``lanes`` threads side by side take V rows each, ``threads / lanes`` share them.
    """

    V: int = 1
    lanes: int = 0
    packs: int = 0
    threads: int = 0

    def __str__(self) -> str:
        return f"v{self.V}_l{self.lanes}_p{self.packs}_t{self.threads}" if self.threads else "auto"

    def blocks(self, rows: Dim, contiguous: bool) -> Dim:
        return ceildiv(rows, self.threads // self.lanes if contiguous else self.V * self.lanes)


VALUES_A_THREAD = 40  # that row kernels keep in registers: five vectors, so that a warp has a row of 1280


def vector_for(extent: Dim, width: int) -> int:
    """The widest vector up to ``width`` that divides ``extent``."""
    while width > 1 and not is_multiple(extent, width):
        width //= 2
    return width


def row_shapes(rows: Dim, K: Dim, contiguous: bool, width: int, target: Target) -> list[RowShape]:
    """Candidates on a GPU, the likely best first; ``width`` is what the functors allow."""
    if not contiguous:
        V = vector_for(rows, width)
        side = hint(rows) / V
        across = 32 if side >= 32 else 16 if side >= 16 else 8
        wanted = hint(K) / 4
        down = 1
        while down < 32 and down * 2 <= wanted and side / across * down < 4 * target.units * 8:
            down *= 2
        threads = across * down
        if threads < target.warp:
            down = target.warp // across
        return [RowShape(V, across, 0, across * down)]
    V = vector_for(K, width)
    most = upper(K)
    few = hint(rows) < target.units * 8
    found = []
    for lanes in (target.warp // 4, target.warp // 2, target.warp, 128, 256, 512, 1024):
        threads = lanes if lanes > target.warp else 128
        if few and lanes <= target.warp:
            threads = target.warp
        packs = 0 if most is None else ceil(most / (lanes * V))
        if most is not None and packs * V <= VALUES_A_THREAD:
            found.append(RowShape(V, lanes, packs, threads))
    if not found:
        return [RowShape(V, 512, 0, 512)]
    return found


def row_us(shape: RowShape, rows: int, K: int, nbytes: float, contiguous: bool, target: Target) -> float:
    """Bandwidth when the grid is large, latency when it is small. Contiguous rows: 0.4 us for each vector that a thread has and 50 ns for each step across
    lanes, once for each wave of blocks; where warps share a row the waves do not flow into each other, and a block of 1024 threads leaves half of a
    multiprocessor waiting (norms of BERT, ViT and Stable Diffusion's UNet in the models, bench/results/score_h200.json). Columns: 30 and 25 ns."""
    memory = nbytes / target.gbps * 1e-3
    if not shape.threads:
        return target.launch_us + memory
    if contiguous:
        share = K / (shape.lanes * shape.V)
        blocks = ceil(rows / (shape.threads // shape.lanes))
        idle = max(0.0, shape.lanes * shape.V / max(K, 1) - 1)
    else:
        share = K / (shape.threads // shape.lanes)
        blocks = ceil(rows / (shape.V * shape.lanes))
        idle = 0.0
    waves = ceil(blocks * shape.threads / (target.units * 2048))
    if contiguous:
        latency = 0.45 + waves * (0.4 * max(share, 1) + 0.05 * shape.lanes.bit_length())
        if shape.lanes > target.warp:
            latency += 1.1 * (waves - 1) + (0.5 if shape.lanes > 512 else 0.0)
            memory *= 1.4 if waves > 1 else 1.0
    else:
        latency = 1.0 + waves * (0.03 * max(share, 1) + 0.025 * shape.lanes.bit_length() + (0.4 if shape.lanes > target.warp else 0))
    return target.launch_us + max(latency, memory) + 0.05 * idle
