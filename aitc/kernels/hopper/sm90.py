"""What the Hopper kernels share: tiles, tensor maps of operands, and a machine model (include/aitc/gpu/hopper/{product,split}_sm90.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from aitc.ir.dim import Dim, Symbol, bounds, ceildiv, divisor, hint, min_, mul, product, round_up
from aitc.kernels.core import kernel as k
from aitc.kernels.core.sites import Matrix, linear
from aitc.targets.target import Target


@dataclass(frozen=True, slots=True)
class Sm90Tile:
    """``TileSm90<BM, BN, stages, cluster_m, cluster_n, ping_pong, staged>`` of product_sm90.h."""

    BM: int
    BN: int
    stages: int
    cluster_m: int = 1
    cluster_n: int = 1
    ping_pong: bool = False
    staged: bool = False

    def __str__(self) -> str:
        return f"{'p' if self.ping_pong else 'c'}{self.BM}x{self.BN}_s{self.stages}_x{self.cluster_m}{self.cluster_n}{'_r' if self.staged else ''}"

    @property
    def text(self) -> str:
        return f"TileSm90<{self.BM}, {self.BN}, {self.stages}, {self.cluster_m}, {self.cluster_n}, {str(self.ping_pong).lower()}, {str(self.staged).lower()}>"

    @property
    def groups(self) -> int:
        return 2 if self.ping_pong or self.BM == 256 else self.BM // 64

    @property
    def threads(self) -> int:
        return 128 * (self.groups + 1)

    @property
    def cluster(self) -> int:
        return self.cluster_m * self.cluster_n

    @property
    def smem_bytes(self) -> int:
        rows = self.BM if self.ping_pong else self.BM // self.groups
        patches = rows // 64 * -(-self.BN // 64) * 2048 + 8 if self.staged else 4096
        return self.stages * ((self.BM + self.BN) * 128 + 16) + 16 + self.groups * 4 * patches

    @property
    def slices(self) -> tuple[int, int]:
        """Rows of A and of B that one block loads."""
        return self.BM // self.cluster_n, self.BN // self.cluster_m

    def blocks(self, M: Dim, N: Dim, batch: Dim, target: Target) -> Dim:
        tiles = product((ceildiv(M, self.BM * self.cluster_m), ceildiv(N, self.BN * self.cluster_n), batch))
        return mul(min_(tiles, target.units // self.cluster), self.cluster)


@dataclass(frozen=True, slots=True)
class Sm90Split:
    """``SplitTileSm90<BM, BN, stages, split, rows>`` of split_sm90.h; ``rows`` 0: all of BM."""

    BM: int
    BN: int
    stages: int
    split: int
    rows: int = 0

    def __str__(self) -> str:
        return f"k{self.BM}x{self.BN}_s{self.stages}_{self.split}"

    @property
    def text(self) -> str:
        return f"SplitTileSm90<{self.BM}, {self.BN}, {self.stages}, {self.split}, {self.rows or self.BM}>"

    @property
    def threads(self) -> int:
        return 2 * self.BM + 32

    @property
    def cluster(self) -> int:
        return self.split

    @property
    def smem_bytes(self) -> int:
        return self.stages * ((self.BM + self.BN) * 128 + 16) + self.BM * self.BN * 4

    @property
    def slices(self) -> tuple[int, int]:
        return self.rows or self.BM, self.BN

    def blocks(self, M: Dim, N: Dim, batch: Dim, target: Target) -> Dim:
        return product((ceildiv(M, self.BM), ceildiv(N, self.BN), batch, self.split))


TILES = (
    Sm90Tile(128, 256, 4, 2), Sm90Tile(128, 256, 4), Sm90Tile(128, 192, 4, 2, 1, True), Sm90Tile(128, 192, 4, 1, 1, True),
    Sm90Tile(128, 128, 6, 2, 1, True), Sm90Tile(128, 128, 6, 1, 1, True), Sm90Tile(128, 128, 6, 2), Sm90Tile(128, 128, 6), Sm90Tile(128, 192, 4),
    Sm90Tile(128, 64, 8, 1, 1, True), Sm90Tile(128, 64, 8), Sm90Tile(64, 128, 8), Sm90Tile(64, 64, 12), Sm90Tile(64, 256, 5), Sm90Tile(256, 128, 4),
    Sm90Tile(64, 128, 6, 1, 1, True), Sm90Tile(192, 128, 4), Sm90Tile(192, 64, 5),
)  # fmt: skip


def _deepest(BM: int, widths: Sequence[int], ping_pong: bool = False) -> tuple[Sm90Tile, ...]:
    """Tiles of ``BM`` rows with as many stages as Hopper's shared memory has room for."""
    tiles = (Sm90Tile(BM, BN, stages, 1, 1, ping_pong) for BN in widths for stages in range(12, 2, -1))
    return tuple({(t.BM, t.BN): t for t in reversed([t for t in tiles if t.smem_bytes <= 232448])}.values())


DENSE_TILES = (
    *_deepest(64, (80, 96)), *_deepest(128, (80, 96, 144, 160, 168, 208, 240)), *_deepest(128, (112, 160, 176), True),
    *_deepest(192, (96, 160, 192)), *_deepest(256, (96,)),
)  # fmt: skip
"""Only where the copy engine stores: widths that 64 does not divide write some columns twice. So that the tiles of a product come close to whole waves."""
SPLITS = (
    Sm90Split(64, 64, 6, 4), Sm90Split(64, 64, 12, 2), Sm90Split(64, 64, 6, 2), Sm90Split(64, 64, 6, 8), Sm90Split(64, 64, 12, 1), Sm90Split(64, 64, 6, 1),
    Sm90Split(64, 32, 8, 2), Sm90Split(64, 32, 8, 4), Sm90Split(128, 64, 6, 2), Sm90Split(128, 64, 6, 4), Sm90Split(64, 128, 6, 2), Sm90Split(64, 128, 6, 4),
    Sm90Split(128, 128, 4, 2), Sm90Split(128, 128, 4, 4), Sm90Split(64, 96, 8, 2), Sm90Split(64, 96, 8, 4), Sm90Split(128, 96, 6, 4),
    Sm90Split(128, 96, 6, 8), Sm90Split(64, 80, 6, 2), Sm90Split(64, 80, 6, 4), Sm90Split(128, 80, 6, 2), Sm90Split(128, 80, 6, 4),
    Sm90Split(64, 48, 6, 2), Sm90Split(64, 48, 6, 4), Sm90Split(64, 48, 12, 1),
)  # fmt: skip


def staged_tiles(tiles: Sequence[Sm90Tile], smem_bytes: int) -> list[Sm90Tile]:
    """The tiles with room for an operand of the epilogue, with as many stages as then fit."""
    found = []
    for t in tiles:
        for stages in range(t.stages, 2, -1):
            tile = replace(t, stages=stages, staged=True)
            if tile.smem_bytes <= smem_bytes:
                found.append(tile)
                break
    return found


@dataclass(frozen=True, slots=True)
class Extent:
    """Typical sizes of a product: ``bytes`` read and written; ``early``: B is a weight, which waits for no other kernel."""

    batch: int
    M: int
    N: int
    k_blocks: int
    bytes: float
    early: bool


def products_us(configs: Sequence[Sm90Tile | Sm90Split], extents: Sequence[Extent], target: Target) -> float:
    """Time of a launch that computes the products side by side, with configurations that differ in nothing but the rows of A that a split loads.

    Per K-block of a tile the larger of multiplying and of filling shared memory, plus what is exposed. A K-block is 128 bytes deep: of every type it takes as
    long as one of 64 halves. Fitted to 543 measurements of single products on one H200 (M 16 to 802,816; tests/kernels/gpu/timing_sm90.py) and held against
    531 more: 6 % off on average. These ran alone, their weights in cache; what is said of deep splits and of widths that 64 does not divide was added for
    what products took in models (bench/results/score_h200.json).
    """
    config = configs[0]
    if isinstance(config, Sm90Split):
        return _split_us(config, max(c.slices[0] for c in configs), extents, target)
    return _tile_us(config, extents, target)


@dataclass(frozen=True, slots=True)
class _Launch:
    """Blocks of a launch, K-blocks of a mean and of the deepest tile, and the time that memory needs for all that is read and written."""

    blocks: int
    mean: float
    deepest: int
    memory_us: float


def _launch(rows: int, columns: int, cluster: int, extents: Sequence[Extent], target: Target) -> _Launch:
    counts = [e.batch * ceil(e.M / rows) * ceil(e.N / columns) * cluster for e in extents]
    blocks = max(1, sum(counts))  # sizes may be typical ones of dims such as h // 2, which are 0 for h = 1
    mean = sum(n * e.k_blocks for n, e in zip(counts, extents, strict=True)) / blocks
    return _Launch(blocks, mean, max(e.k_blocks for e in extents), sum(e.bytes for e in extents) / (1.1 * target.gbps) * 1e-3)


def _multiply_us(config: Sm90Tile | Sm90Split, factor: float, target: Target) -> float:
    """A K-block of a tile, at ``factor`` of the target's rate."""
    return 2.0 * config.BM * config.BN * 64 * max(target.units, 1) / (factor * target.tflops["fp16"] * 1e6)


def _split_us(config: Sm90Split, rows: int, extents: Sequence[Extent], target: Target) -> float:
    """Partial sums travel between multiprocessors, slowly: 50 bytes a ns. Where several blocks share a multiprocessor they share what it can do."""
    units = max(target.units, 1)
    launch = _launch(config.BM, config.BN, config.split, extents, target)
    resident = max(1, min(target.smem_bytes // (config.smem_bytes + 1024), 2048 // config.threads))
    slots = int(units * resident * (0.91 if config.split > 2 else 1.0))  # 30 clusters of 4, 15 of 8: groups of multiprocessors are no multiples of them
    live = min(launch.blocks, slots)
    shared = min(resident, ceil(live / units))
    fill = (rows + config.BN) * 0.128 * max(shared / 150.0, live / 12930.0)
    step = max(_multiply_us(config, 1.18, target) * shared, fill)
    sums = config.BM * config.BN / 256 * shared  # thousands of bytes
    end = 1.44 + sums * (0.024 + 0.019 * (config.split - 1) / config.split * live / units)
    waves = ceil(launch.blocks / slots)
    body = max(waves * (ceil(launch.mean / config.split) * step + end), ceil(launch.deepest / config.split) * step + end)
    body += 0.335 if config.split > 1 else 0.0
    if config.split > 2:  # weights that come from memory come sooner when more multiprocessors fetch them
        body -= min(0.1 * body, 0.4)
    if config.BN % 64:
        body += min(0.05 * body, 0.15)
    late = 0.0 if all(e.early for e in extents) else 0.35  # B comes after the launch before has ended
    return target.launch_us + max(body, launch.memory_us) + 0.31 * min(body, launch.memory_us) + late


def _tile_us(config: Sm90Tile, extents: Sequence[Extent], target: Target) -> float:
    """A multiprocessor fills 147 bytes a ns, all together 15,400. Small tiles take more energy a product, and the clock falls."""
    slots = max(target.units, 1) // config.cluster * config.cluster
    launch = _launch(config.BM * config.cluster_m, config.BN * config.cluster_n, config.cluster, extents, target)
    compute = _multiply_us(config, 1.22 * (1 - 0.15 * max(0.0, 1 - config.BM * config.BN / 24576)), target)
    read = (config.BM / config.cluster_n + config.BN / config.cluster_m) * 0.128
    step = max(compute, read / min(147.0, 15400.0 / min(launch.blocks, slots)), (config.BM + config.BN) * 0.128 / 147.0)
    if config.stages < 4 and step < 0.72:  # the K-blocks on their way do not last until the next has come
        step *= 1.22
    store = 0.57 + config.BM * (-(-config.BN // 64) * 64) / 32768 * 0.876
    waves = ceil(launch.blocks / slots)
    if config.ping_pong:  # stores hide behind the other group's products, but for the last, which one group makes alone
        body = max(waves * max(launch.mean * step, store), launch.deepest * step) + 1.3 * store
    else:
        body = max(waves * (launch.mean * step + store), launch.deepest * step + store)
    base = target.launch_us + 0.61 + (0.05 if config.cluster > 1 else 0.0)
    return base + max(body, launch.memory_us) + 0.36 * min(body, launch.memory_us)


def batch_stride(m: Matrix, batch: Symbol) -> tuple[Dim, Dim] | None:
    """``(offset, stride)`` of a matrix whose start is linear in the batch coordinate."""
    form = linear(m.rest, (batch,))
    return None if form is None else (form[0], form[1][0])


def copyable(m: Matrix, batch: Symbol, rows: Dim, cols: Dim) -> str:
    """Why the copy engine cannot read (or write) a (rows, cols) matrix; "" if it can."""
    start = batch_stride(m, batch)
    if start is None:
        return "the batches of an operand do not lie at one stride"
    if m.stride_col != 1 and m.stride_row != 1:
        return "an operand's elements do not lie side by side"
    other, count = (m.stride_row, rows) if m.stride_col == 1 else (m.stride_col, cols)
    unit = 16 // m.root.type.dtype.bytes
    if divisor(start[0]) % unit or divisor(start[1]) % unit or divisor(other) % unit:
        return "rows of an operand do not begin on 16 bytes"
    if isinstance(other, int) and other <= 0 and count != 1:
        return "rows of an operand overlap"
    return ""


def positive(d: Dim) -> bool:
    return bounds(d)[0] > 0


def operand_map(parameter: str, m: Matrix, batch: Symbol, rows: Dim, cols: Dim, batches: Dim, box_rows: int) -> tuple[k.MapSpec, bool, bool]:
    """The map of a (rows, cols) operand: (map, whether rows are contiguous, whether it differs between batches). ``box_rows`` where columns are contiguous."""
    start = batch_stride(m, batch)
    assert start is not None
    offset, stride = start
    size = m.root.type.dtype.bytes
    depth = BLOCK_BYTES // size
    transposed = m.stride_col != 1
    other = m.stride_col if transposed else m.stride_row
    inner, outer = (rows, cols) if transposed else (cols, rows)
    if other == 0:  # a single row
        other = round_up(inner, 16 // size)
    batched = stride != 0
    pitch = stride if batched else round_up(mul(outer, other), 16 // size)
    return (
        k.MapSpec(parameter, m.root, offset, (inner, outer, batches if batched else 1), (mul(other, size), mul(pitch, size)),
                  (depth, 64 if transposed else box_rows, 1), (1, 1, 1), tf32=size == 4),
        transposed, batched,
    )  # fmt: skip


def result_map(parameter: str, m: Matrix, batch: Symbol, M: Dim, N: Dim, batches: Dim) -> k.MapSpec:
    """The map of the results, in boxes of 16 rows and 64 columns."""
    start = batch_stride(m, batch)
    assert start is not None
    offset, stride = start
    row = m.stride_row if m.stride_row != 0 else round_up(N, 8)
    pitch = stride if stride != 0 else mul(M, row)
    return k.MapSpec(parameter, m.root, offset, (N, M, batches), (mul(row, 2), mul(pitch, 2)), (64, 16, 1), (1, 1, 1))


BLOCK_BYTES = 128
"""Of a row in a K-block: 64 elements of 16 bits, 32 floats."""

def elem_bytes(dtype: str) -> int:
    """Of an operand of wgmma: f16, bf16, f32 or a float8."""
    return {"f32": 4, "f16": 2, "bf16": 2}.get(dtype, 1)


MAP = "AITC_GRID_CONSTANT CUtensorMap {}"


def hinted(*dims: Dim) -> tuple[int, ...]:
    return tuple(hint(d) for d in dims)
