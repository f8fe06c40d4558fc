"""Group and instance norms of channels-last images, shared among the blocks of a cluster (include/aitc/gpu/hopper/group_norm_sm90.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, gcd, lcm

from aitc.ir.dim import Dim, floordiv, hint, mod, mul, product
from aitc.ir.graph import Node
from aitc.ir.index import Index, unflatten
from aitc.kernels.core import kernel as k
from aitc.kernels.core.functor import Parameters, StorageOf
from aitc.kernels.core.group import Group
from aitc.kernels.core.sites import load_functor, store_functor
from aitc.kernels.rows.normalize import normalization
from aitc.kernels.rows.rows import memory_axes
from aitc.targets.target import Target

THREADS = 512  # at most: then each has 128 registers
PACKS = 8  # vectors that a thread holds at most


@dataclass(frozen=True, slots=True)
class GroupNormProblem:
    """images × space pixels of C channels of ``dtype``, normalized over all pixels and ``width`` neighbouring channels."""

    operation: str
    dtype: str
    images: Dim
    space: int
    C: int
    width: int
    bytes_in: int  # of an element
    bytes_out: int

    def __str__(self) -> str:
        return f"{self.operation} {self.dtype} {self.images}x{self.space}x{self.C} groups of {self.width}"


@dataclass(frozen=True, slots=True)
class GroupTile:
    """``GroupTileSm90<V, across, down, packs, cluster>`` of group_norm_sm90.h."""

    V: int
    across: int
    down: int
    packs: int
    cluster: int

    def __str__(self) -> str:
        return f"v{self.V}_{self.across}x{self.down}_p{self.packs}_x{self.cluster}"

    @property
    def threads(self) -> int:
        return self.across * self.down

    @property
    def channels(self) -> int:
        return self.across * self.V

    def share(self, p: GroupNormProblem) -> int:
        """Pixels of a block."""
        return ceil(p.space / self.cluster)

    def smem_bytes(self, p: GroupNormProblem) -> int:
        return self.threads * (self.V + 1) * 8 + self.cluster * (self.channels // p.width) * 8


@dataclass(frozen=True, slots=True)
class GroupForm:
    """The norm in the kernel's coordinates: ``row`` (image, pixel) and ``k`` (channel). ``outer``: axes of images,
    ``groups``: of groups, ``inner``: of a group's channels; each as in memory."""

    images: Dim
    space: int
    C: int
    width: int
    row: k.Symbol
    k: k.Symbol
    index: Index
    outer: tuple[int, ...]
    groups: tuple[int, ...]
    inner: tuple[int, ...]


def group_form(node: Node, storage: StorageOf) -> GroupForm | k.No:
    """``node`` as a norm over pixels and the innermost channels of each group, or why it is none."""
    v = node.input
    axes = frozenset(node.attrs.axes)
    order = [a for a in memory_axes(v, storage) if v.shape[a] != 1]
    inner: list[int] = []
    groups: list[int] = []
    pixels: list[int] = []
    for found, normalized in ((inner, True), (groups, False), (pixels, True)):
        while order and (order[-1] in axes) is normalized:
            found.insert(0, order.pop())
    if not groups or not pixels or any(a in axes for a in order):
        return k.No("its rows are not groups of channels of images stored channels-last")
    space, width, count = (product(v.shape[a] for a in some) for some in (pixels, inner, groups))
    if not (isinstance(space, int) and isinstance(width, int) and isinstance(count, int)):
        return k.No("pixels or channels are known only at run time")
    images, C = product(v.shape[a] for a in order), count * width
    row, channel = k.coordinate("row", mul(images, space)), k.coordinate("k", C)
    index: list[Dim] = [0] * v.type.rank
    places = (
        ((*order, *pixels), k.dim_of(row)),
        (tuple(groups), floordiv(k.dim_of(channel), width)),
        (tuple(inner), mod(k.dim_of(channel), width)),
    )
    for some, position in places:
        for a, i in zip(some, unflatten(position, tuple(v.shape[a] for a in some)), strict=True):
            index[a] = i
    return GroupForm(images, space, C, width, row, channel, tuple(index), tuple(order), tuple(groups), tuple(inner))


@k.register
class GroupNormSm90(k.Kernel):
    name = "group_norm_sm90"
    template = "kernel"
    requires = frozenset({"cluster"})
    anchors = frozenset({"LayerNormalization"})
    heads = True
    priority = 10
    doc = "group and instance norms of channels-last images: a cluster shares an image's pixels, one read and one write"

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> GroupNormProblem | k.No:
        node = group.anchor
        assert node is not None
        if node.input.type.dtype.compute_c != "float":
            return k.No(f"statistics of {node.input.type.dtype} are not made in float")
        form = group_form(node, storage)
        if isinstance(form, k.No):
            return form
        sizes = [max((v.type.dtype.bytes for v in side if hint(product(v.shape)) * 2 > form.C * form.space * hint(form.images)), default=2)
                 for side in (group.inputs, group.outputs)]  # fmt: skip
        problem = GroupNormProblem(
            normalization(node).split("{")[0], node.input.type.dtype.name, form.images, form.space, form.C, form.width, *sizes
        )
        if not self.configs(problem, target):
            return k.No(f"groups of {form.width} channels make no whole vectors of {form.C}")
        return problem

    def configs(self, problem: GroupNormProblem, target: Target) -> Sequence[GroupTile]:
        p = problem
        V = gcd(p.C, 8)
        found: list[GroupTile] = []
        least = lcm(p.width, V)
        for channels in (least * m for m in (1, 2, 3, 4, 5, 8, 10, 16)):
            across = channels // V
            step = 32 // gcd(across, 32)  # whole warps
            if p.C % channels or across * max(step, V) > THREADS:
                continue
            for cluster in (8, 4, 2, 1):
                share = ceil(p.space / cluster)
                if cluster > 1 and share < 4:
                    continue
                most = THREADS // across // step * step  # threads that share a channel; no more than so many vectors each need
                down = max(-(-V // step) * step, -(-ceil(share / ceil(share / most)) // step) * step)
                packs = ceil(share / down)
                found.append(GroupTile(V, across, down, packs if packs <= PACKS else 0, cluster))
        return [t for t in dict.fromkeys(found) if t.smem_bytes(p) <= target.smem_bytes]

    def score_us(self, problem: GroupNormProblem, config: GroupTile, target: Target) -> float:
        """Fitted to 59 measurements on one H200: 15 % off on average. Held pixels cost what a block brings and what all do; read again,
        a few channels of each cost nearly a whole line of memory."""
        p, c = problem, config
        blocks = p.C // c.channels * c.cluster * hint(p.images)
        share = c.share(p)
        wide = c.channels * p.bytes_in
        touched = max(wide, 32) if wide % 32 == 0 or 32 % wide == 0 else (ceil(wide / 32) + 0.5) * 32
        rounds = ceil(blocks / max(target.units, 1))
        elems = hint(p.images) * p.space * p.C * 1e-3 / target.gbps
        total = elems * (p.bytes_in + p.bytes_out)
        moved = rounds * share * touched * 1e-3
        clusters = 0.0 if c.cluster == 1 else 0.2 if c.cluster < 8 else 0.9
        if c.packs:
            return target.launch_us + 1.5 + clusters + (1.5 if wide < 64 else 0.3 if wide % 32 else 0.0) + 0.012 * moved + 2.5 * total + 0.02 * c.channels / p.C
        lines = elems * p.bytes_in * 128 / min(128, wide)
        return target.launch_us + 1.25 * (rounds * (4.0 + 0.2 * ceil(share / c.down)) + clusters + 0.018 * moved + 0.45 * total + 1.2 * lines)

    def build(self, group: Group, problem: GroupNormProblem, config: GroupTile, storage: StorageOf, target: Target) -> k.Draft:
        node = group.anchor
        assert node is not None
        form = group_form(node, storage)
        assert isinstance(form, GroupForm)
        parameters = Parameters()
        signature = "int64_t row, int64_t k"
        load = load_functor(group, node.input, form.index, form.k, parameters, storage, target, signature, c_type="float", widest=config.V)
        store = store_functor(
            group, form.index, (form.row, form.k), parameters, storage, target, signature, acc="y[j]", element="const float (&y)[V]",
            widest=config.V,
        )  # fmt: skip
        shape = k.shape_members(parameters, images=form.images, space=form.space, C=form.C, width=form.width)
        c = config
        tile = f"GroupTileSm90<{c.V}, {c.across}, {c.down}, {c.packs}, {c.cluster}>"
        call = (
            f"group_norm_sm90<{tile}>({normalization(node)}, shape, Load{{{', '.join(load.initializers)}}}, Store{{{', '.join(store.initializers)}}});",
        )
        context = k.Context(
            "", k.banner(group), ("aitc/gpu/hopper/group_norm_sm90.h", "aitc/generic/element.h"), "int64_t", shape, (load, store), (),
            k.entry_parameters(parameters), c.threads, call, min_blocks=1,
        )  # fmt: skip
        blocks = mul(form.images, form.C // c.channels * c.cluster)
        elems = product((form.images, form.space, form.C))
        return k.Draft(
            self.name, str(config), self.template, context, parameters, grid=(blocks, 1, 1), block=(c.threads, 1, 1),
            smem_bytes=c.smem_bytes(problem), cluster=c.cluster, overlap=True, skip_if_zero=elems, flops=mul(elems, 8),
        )  # fmt: skip


__all__ = ["GroupForm", "GroupNormProblem", "GroupNormSm90", "GroupTile", "group_form"]
