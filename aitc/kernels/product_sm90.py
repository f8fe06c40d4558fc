"""What the kernels made of a Hopper product share: operand types, configurations, and how a draft is put together (include/aitc/gpu/product_sm90.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from aitc.ir.dim import Dim, mul, product
from aitc.ir.index import Index
from aitc.kernels import kernel as k
from aitc.kernels import sm90
from aitc.kernels.functor import Parameters, StorageOf
from aitc.kernels.group import Group
from aitc.kernels.sites import Matrix, result_functor, store_functor
from aitc.targets.target import Target

Config = sm90.Sm90Tile | sm90.Sm90Split


def operand_reason(group: Group, target: Target) -> str:
    """Why wgmma does not multiply the two operands of the anchor; "" if it does: fp16, bf16, and fp32 where TF32 was asked for."""
    assert group.anchor is not None
    kinds = {v.type.dtype.name for v in group.anchor.inputs if v is not None}
    if kinds in ({"f16"}, {"bf16"}) or (kinds == {"f32"} and "tf32" in target.features):
        return ""
    return "wgmma takes two operands of fp16, bf16 or, with --precision tf32, fp32"


def product_configs(dtype: str, dense: bool, staged: bool, rows: int | None, target: Target) -> list[Config]:
    """Tiles and splits that fit; ``dense``, ``staged``: see product_sm90.h; ``rows``: of A, where their number is known and its rows are contiguous."""
    splits = [replace(c, rows=-(-rows // 8) * 8) if rows is not None and rows < c.BM else c for c in sm90.SPLITS]
    tiles: Sequence[sm90.Sm90Tile] = (*sm90.TILES, *(sm90.DENSE_TILES if dense else ()))
    if dtype == "f32":  # results of 32 bits are never dense: the widest epilogue would spill registers
        tiles = [t for t in tiles if not (t.ping_pong and t.BN > 128)]
    if staged:
        tiles = sm90.staged_tiles(tiles, target.smem_bytes)
    every: list[Config] = [*tiles, *splits]
    return [c for c in every if c.smem_bytes <= target.smem_bytes]


@dataclass(frozen=True, slots=True)
class Results:
    """What becomes of the results: a functor, and the matrices that the copy engine stores and brings, where it does."""

    store: k.FunctorText
    dense: Matrix | None
    staged: Matrix | None

    def maps(self, batch_coord: object, sizes: tuple[Dim, Dim, Dim], parameters: Parameters) -> list[k.MapSpec]:
        """Their maps, of (batch, M, N) results; the roots become parameters."""
        batch, M, N = sizes
        found = []
        for name, m, const in (("map_d", self.dense, False), ("map_s", self.staged, True)):
            if m is not None:
                parameters.pointer(m.root, const=const)
                found.append(sm90.result_map(name, m, batch_coord, M, N, batch))  # type: ignore[arg-type]
        return found


def results(
    group: Group, index: Index, coords: Sequence[object], config: Config, dense: Matrix | None, staged: Matrix | None, parameters: Parameters,
    storage: StorageOf, target: Target, signature: str,
) -> Results:  # fmt: skip
    """The results of ``config``: a split never stores by the copy engine, and only a staged tile has room for a residual."""
    assert group.anchor is not None
    if isinstance(config, sm90.Sm90Split):
        dense = None
    if dense is None or not isinstance(config, sm90.Sm90Tile) or not config.staged:
        staged = None
    if dense is not None:
        store = result_functor(group, group.anchor.output, index, coords, parameters, storage, signature, staged=staged)  # type: ignore[arg-type]
    else:
        store = store_functor(group, index, coords, parameters, storage, target, signature, widest=8)  # type: ignore[arg-type]
    return Results(store, dense, staged)


@dataclass(frozen=True, slots=True)
class Operands:
    """A and B as the kernel's text: of header ``<kind>_sm90.h``, with their maps, the structs they need, and weights in another order."""

    kind: str
    texts: tuple[str, str]
    maps: tuple[k.MapSpec, k.MapSpec]
    structs: tuple[tuple[str, ...], ...] = ()
    packed: dict[str, np.ndarray] = field(default_factory=dict)


def product_draft(
    name: str, group: Group, config: Config, found: Results, operands: Operands, batch_coord: object, sizes: tuple[Dim, Dim, Dim, Dim],
    flops: Dim, parameters: Parameters, declared: Parameters, target: Target,
) -> k.Draft:  # fmt: skip
    """The draft of a product of ``sizes`` (batch, M, N, K). ``declared``: the parameters as they were before the copy engine's operands came."""
    batch, M, N, K = sizes
    maps = [*operands.maps, *found.maps(batch_coord, (batch, M, N), parameters)]
    split = isinstance(config, sm90.Sm90Split)
    shape = k.shape_members(parameters, batch=batch, M=M, N=N, K=K)
    arguments = ["shape", *operands.texts, f"Store{{{', '.join(found.store.initializers)}}}"]
    if not split:
        first = operands.maps[0].parameter
        arguments += ["map_d" if found.dense is not None else first, "map_s" if found.staged is not None else first]
    call = (f"{operands.kind}{'_split' if split else ''}_sm90<{config.text}>({', '.join(arguments)});",)
    return sm90_draft(
        name, group, config, f"aitc/gpu/{operands.kind}_sm90.h", call, (found.store,), operands.structs, shape, maps, parameters, declared,
        config.blocks(M, N, batch, target), config.threads, config.smem_bytes, product((batch, M, N)), flops, operands.packed,
        cluster=config.cluster,
    )  # fmt: skip


def sm90_draft(
    name: str, group: Group, config: object, header: str, call: tuple[str, ...], functors: tuple[k.FunctorText, ...], structs: tuple[tuple[str, ...], ...],
    shape: tuple[k.ShapeMember, ...], maps: Sequence[k.MapSpec], parameters: Parameters, declared: Parameters, blocks: Dim, threads: int, smem_bytes: int,
    results: Dim, flops: Dim, packed: dict[str, np.ndarray], cluster: int = 1, min_blocks: int = 1,
) -> k.Draft:  # fmt: skip
    """A draft whose operands come by tensor maps: pointers that only maps need (those not ``declared``) are no parameters of its entry point."""
    visible = Parameters()
    visible.pointers, visible.dims = declared.pointers, parameters.dims
    context = k.Context(
        "", k.banner(group), (header, "aitc/generic/element.h"), "int64_t", shape, functors, structs,
        k.entry_parameters(visible, [sm90.MAP.format(m.parameter) for m in maps]), threads, call, min_blocks=min_blocks,
    )  # fmt: skip
    return k.Draft(
        name, str(config), "kernel", context, parameters, grid=(blocks, 1, 1), block=(threads, 1, 1), smem_bytes=smem_bytes, cluster=cluster,
        overlap=True, skip_if_zero=results, flops=flops, maps=tuple(maps), packed=packed,
    )  # fmt: skip


def product_flops(*sizes: Dim) -> Dim:
    """Two for each multiplication."""
    return mul(product(sizes), 2)
