"""What the kernels made of a Hopper product share: operand types, configurations, and how a draft is put together (include/aitc/gpu/hopper/product_sm90.h)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any

import numpy as np

from aitc.ir.dim import Dim, Symbol, mul, product
from aitc.ir.graph import Value
from aitc.ir.index import Index, root_of
from aitc.kernels.core import kernel as k
from aitc.kernels.core.functor import Parameters, StorageOf
from aitc.kernels.core.group import Group, side_by_side
from aitc.kernels.core.sites import Matrix, result_functor, store_functor
from aitc.kernels.hopper import sm90
from aitc.targets.target import Target

Config = sm90.Sm90Tile | sm90.Sm90Split


PARAMETER_BYTES = 4000
"""Of a kernel's parameters: more than 4 KiB need newer drivers."""


def operand_reason(group: Group, target: Target) -> str:
    """Why wgmma does not multiply the two operands of the anchor; "" if it does: fp16, bf16, float8 (to sums in float), fp32 where TF32 was asked for."""
    assert group.anchor is not None
    kinds = {v.type.dtype.name for v in group.anchor.inputs if v is not None}
    if kinds in ({"f16"}, {"bf16"}) or (kinds == {"f32"} and "tf32" in target.features):
        return ""
    if kinds in ({"f8e4m3fn"}, {"f8e5m2"}) and "fp8" in target.features and group.anchor.output.type.dtype.name == "f32":
        return ""
    return "wgmma takes two operands of fp16, bf16, float8 or, with --precision tf32, fp32"


def product_configs(dtype: str, dense: bool, staged: bool, rows: int | None, target: Target) -> list[Config]:
    """Tiles and splits that fit; ``dense``, ``staged``: see product_sm90.h; ``rows``: of A, where their number is known and its rows are contiguous."""
    splits = [replace(c, rows=-(-rows // 8) * 8) if rows is not None and rows < c.BM else c for c in sm90.SPLITS]
    tiles: Sequence[sm90.Sm90Tile] = (*sm90.TILES, *(sm90.DENSE_TILES if dense else ()))
    if not dense or staged:  # an epilogue that computes addresses, or reads another operand, would spill registers of the widest tiles
        tiles = [t for t in tiles if not (t.ping_pong and t.BN > 128)]
    if sm90.elem_bytes(dtype) == 1:  # the sums of a K-block are registers of their own
        tiles = [t for t in tiles if (t.BM if t.ping_pong else t.BM // t.groups) * t.BN <= (4096 if t.groups == 3 else 8192)]
    if staged:
        tiles = sm90.staged_tiles(tiles, target.smem_bytes)
    every: list[Config] = [*tiles, *splits]
    return [c for c in every if c.smem_bytes <= target.smem_bytes]


@dataclass(frozen=True, slots=True)
class Lines:
    """Rows of the results are pixels of ``count`` lines that lie at one ``stride``, ``pixels`` in each: a multiple of 16."""

    pixels: int
    count: Dim
    stride: Dim


@dataclass(frozen=True, slots=True)
class Work:
    """A group's product: where its results go, its sizes (batch, M, N, K), operations, and what the copy engine may store and bring. ``lines``: where
    ``dense`` is a matrix of the pixels of each line."""

    index: Index
    coords: tuple[Symbol, Symbol, Symbol]
    signature: str  # of the store functor
    sizes: tuple[Dim, Dim, Dim, Dim]
    flops: Dim
    dense: Matrix | None
    staged: Matrix | None
    lines: Lines | None = None


@dataclass(frozen=True, slots=True)
class Operands:
    """A and B as the kernel's text: of header ``<kind>_sm90.h``, with their maps, the structs they need, and weights in another order."""

    kind: str
    texts: tuple[str, str]
    maps: tuple[k.MapSpec, ...]
    structs: tuple[tuple[str, ...], ...] = ()
    packed: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Text:
    """A product of a launch: its functor, structs, maps and call."""

    store: k.FunctorText
    operands: Operands
    shape: tuple[k.ShapeMember, ...]
    maps: tuple[k.MapSpec, ...]
    function: str
    arguments: tuple[str, ...]  # after the shape


class ProductSm90(k.Kernel):
    """A kernel that is a product of product_sm90.h or split_sm90.h. Several small ones can share a launch, each on blocks of its own."""

    template = "kernel"
    requires = frozenset({"wgmma", "tma"})
    family = "product_sm90"

    @abstractmethod
    def work(self, group: Group, storage: StorageOf) -> Work:
        """The product that ``group`` computes."""

    @abstractmethod
    def extent(self, problem: Any) -> sm90.Extent:
        """Typical sizes, for the machine model."""

    @abstractmethod
    def operands(
        self, group: Group, problem: Any, config: Config, storage: StorageOf, parameters: Parameters, declared: Parameters, suffix: str
    ) -> Operands:
        """A and B; names of maps and structs end in ``suffix``. ``declared``: what the functors of the launch read."""

    def rows(self, group: Group, storage: StorageOf) -> Matrix | None:
        """A as a matrix of (M, K) in memory; None if it is none."""
        return None

    def weights(self, group: Group, storage: StorageOf) -> tuple[Value, np.ndarray] | None:
        """The constant behind a B that is the same for all batches, and B as (K, N), however it lies; None if there is none."""
        return None

    def slowness(self, problem: Any, config: Config) -> float:
        """How much longer it takes than the machine model of matrices says."""
        return 1.0

    def score_us(self, problem: Any, config: Config, target: Target) -> float:
        us = sm90.products_us([config], [self.extent(problem)], target)
        return target.launch_us + (us - target.launch_us) * self.slowness(problem, config)

    def build(self, group: Group, problem: Any, config: Config, storage: StorageOf, target: Target) -> k.Draft:
        parameters = Parameters()
        work = self.work(group, storage)
        stores = _store(group, work, config, parameters, storage, target, "")
        declared = parameters.clone()
        text = self._text(group, problem, config, storage, work, stores, parameters, declared, "")
        call = (f"{text.function}<{config.text}>({', '.join(('shape', *text.arguments))});",)
        batch, M, N, _ = work.sizes
        return sm90_draft(
            self.name, group, config, f"aitc/gpu/hopper/{text.operands.kind}_sm90.h",
            call, (text.store,), text.operands.structs, text.shape, text.maps, parameters,
            declared, config.blocks(M, N, batch, target), config.threads, config.smem_bytes, product((batch, M, N)), work.flops, text.operands.packed,
            cluster=config.cluster,
        )  # fmt: skip

    def _text(
        self, group: Group, problem: Any, config: Config, storage: StorageOf, work: Work, stores: tuple[k.FunctorText, Matrix | None, Matrix | None],
        parameters: Parameters, declared: Parameters, suffix: str,
    ) -> _Text:  # fmt: skip
        store, dense, staged = stores
        operands = self.operands(group, problem, config, storage, parameters, declared, suffix)
        batch, M, N, K = work.sizes
        maps = list(operands.maps)
        names = []
        for name, m, const in ((f"map_d{suffix}", dense, False), (f"map_s{suffix}", staged, True)):
            names.append(name if m is not None else operands.maps[0].parameter)
            if m is not None:
                parameters.pointer(m.root, const=const)
                maps.append(sm90.result_map(name, m, work.coords[0], M, N, batch) if work.lines is None else _lines_map(name, m, N, work.lines))
        split = isinstance(config, sm90.Sm90Split)
        arguments = (*operands.texts, f"{store.name}{{{', '.join(store.initializers)}}}", *(() if split else names))
        shape = k.shape_members(parameters, batch=batch, M=M, N=N, K=K)
        return _Text(store, operands, shape, tuple(maps), f"{operands.kind}{'_split' if split else ''}_sm90", arguments)

    # --- several in one launch
    def together(self, parts: Sequence[k.Part], target: Target) -> tuple[float, tuple[Config, ...]] | None:
        extents = [part.kernel.extent(part.problem) for part in parts]  # type: ignore[attr-defined]
        if any(e.batch * ceil(e.M / 128) * ceil(e.N / 128) >= target.units for e in extents):
            return None  # it fills the device by itself
        offered = [{str(c): c for c in part.kernel.configs(part.problem, target) if _holds_several(c)} for part in parts]
        best: tuple[float, tuple[Config, ...]] | None = None
        for name in offered[0]:
            if all(name in o for o in offered):
                configs = tuple(o[name] for o in offered)
                slow = max(part.kernel.slowness(part.problem, c) for part, c in zip(parts, configs, strict=True))  # type: ignore[attr-defined]
                us = target.launch_us + (sm90.products_us(configs, extents, target) - target.launch_us) * slow
                if best is None or us < best[0]:
                    best = us, configs
        return best

    def build_together(self, parts: Sequence[k.Part], configs: Sequence[Config], storage: StorageOf, target: Target) -> k.Draft | None:
        parameters = Parameters()
        works = [part.kernel.work(part.group, storage) for part in parts]  # type: ignore[attr-defined]
        stores = [_store(part.group, w, c, parameters, storage, target, str(n)) for n, (part, w, c) in enumerate(zip(parts, works, configs, strict=True))]
        declared = parameters.clone()
        if any((id(second_root(part.group)), True) in declared.pointers for part in parts):
            return None  # an epilogue reads what another product wants in its own order
        texts: list[_Text] = []
        packed: dict[str, np.ndarray] = {}
        for n, (part, work, config) in enumerate(zip(parts, works, configs, strict=True)):
            assert isinstance(part.kernel, ProductSm90)
            text = part.kernel._text(part.group, part.problem, config, storage, work, stores[n], parameters, declared, str(n))
            for name, array in text.operands.packed.items():
                if name in packed and not np.array_equal(packed[name], array):
                    return None  # one constant in two orders
                packed[name] = array
            texts.append(text)
        structs: list[tuple[str, ...]] = []
        call: list[str] = []
        first: Dim = 0
        flops: Dim = 0
        results: Dim = 0
        for n, (text, work, config) in enumerate(zip(texts, works, configs, strict=True)):
            batch, M, N, _ = work.sizes
            lines, shape = k.shape_struct(f"Shape{n}", text.shape)
            structs += [lines, *text.operands.structs]
            blocks = config.blocks(M, N, batch, target)
            call.append(f"if ({k.block_range(first, blocks, parameters)}; blocks.mine())")
            call.append(f"  {text.function}<{config.text}>({', '.join((shape, *text.arguments, 'blocks'))});")
            first, flops, results = first + blocks, flops + work.flops, results + product((batch, M, N))
        headers = dict.fromkeys(f"aitc/gpu/hopper/{t.operands.kind}_sm90.h" for t in texts)
        maps = [m for t in texts for m in t.maps]
        if 128 * len(maps) + 8 * (len(declared.pointers) + len(parameters.dims)) > PARAMETER_BYTES:
            return None
        every = side_by_side([part.group for part in parts])
        config = configs[0]
        return sm90_draft(
            self.family, every, config, tuple(headers), tuple(call), tuple(t.store for t in texts), tuple(structs), (), maps, parameters, declared, first,
            config.threads, config.smem_bytes, results, flops, packed, cluster=config.cluster,
        )  # fmt: skip


def _holds_several(config: Config) -> bool:
    """Whether a kernel of several such products keeps its sums in registers: where warps hand registers to each other (several groups of
    math warps), the compiler spills from the second product on."""
    return isinstance(config, sm90.Sm90Split) or config.groups == 1


def second_root(group: Group) -> Value:
    """What the second operand of the anchor is a view of."""
    assert group.anchor is not None and group.anchor.inputs[1] is not None
    return root_of(group.anchor.inputs[1])


def _store(
    group: Group, work: Work, config: Config, parameters: Parameters, storage: StorageOf, target: Target, suffix: str
) -> tuple[k.FunctorText, Matrix | None, Matrix | None]:
    """The functor of ``config``, and what the copy engine stores and brings: a split never stores by it, and only a staged tile has room for a residual."""
    assert group.anchor is not None
    dense = None if isinstance(config, sm90.Sm90Split) else work.dense
    staged = work.staged if dense is not None and isinstance(config, sm90.Sm90Tile) and config.staged else None
    place = group, group.anchor.output, work.index, work.coords, parameters, storage, work.signature
    if dense is not None:
        store = result_functor(*place, staged=staged, name=f"Store{suffix}", rows=work.coords[:-1], prefetch=True)
        if work.lines is not None:
            store = replace(store, aliases=(*store.aliases, f"static constexpr int line = {work.lines.pixels};"))
        return store, dense, staged
    rows = work.coords[:-1] if isinstance(config, sm90.Sm90Split) else ()  # a tile's stores hand rows to other lanes
    store = store_functor(
        group, work.index, work.coords, parameters, storage, target, work.signature, widest=8, name=f"Store{suffix}", rows=rows, prefetch=True
    )
    return store, dense, staged


def _lines_map(parameter: str, m: Matrix, N: Dim, lines: Lines) -> k.MapSpec:
    """The map of results that are pixels of lines, in boxes of 16 pixels and 64 columns."""
    return k.MapSpec(
        parameter, m.root, m.rest, (N, lines.pixels, lines.count), (mul(m.stride_row, 2), mul(lines.stride, 2)), (64, 16, 1), (1, 1, 1)
    )


def sm90_draft(
    name: str, group: Group, config: object, header: str | tuple[str, ...], call: tuple[str, ...], functors: tuple[k.FunctorText, ...],
    structs: tuple[tuple[str, ...], ...], shape: tuple[k.ShapeMember, ...], maps: Sequence[k.MapSpec], parameters: Parameters, declared: Parameters,
    blocks: Dim, threads: int, smem_bytes: int, results: Dim, flops: Dim, packed: dict[str, np.ndarray], cluster: int = 1, min_blocks: int = 1,
) -> k.Draft:  # fmt: skip
    """A draft whose operands come by tensor maps: pointers that only maps need (those not ``declared``) are no parameters of its entry point."""
    visible = Parameters()
    visible.pointers, visible.dims = declared.pointers, parameters.dims
    headers = (header,) if isinstance(header, str) else header
    context = k.Context(
        "", k.banner(group), (*headers, "aitc/generic/element.h"), "int64_t", shape, functors, structs,
        k.entry_parameters(visible, [sm90.MAP.format(m.parameter) for m in maps]), threads, call, min_blocks=min_blocks,
    )  # fmt: skip
    return k.Draft(
        name, str(config), "kernel", context, parameters, grid=(blocks, 1, 1), block=(threads, 1, 1), smem_bytes=smem_bytes, cluster=cluster,
        overlap=True, skip_if_zero=results, flops=flops, maps=tuple(maps), packed=packed,
    )  # fmt: skip
