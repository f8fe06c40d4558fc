"""Gives every computed value the storage order in which its writer and its readers meet without a transpose.

Convolutions and windows run channels-last; what follows takes the order of what it reads; a result that is only read
through a Transpose is stored transposed already. Only ``TensorType.order`` changes: no node is inserted, axes keep their
meaning. Where an order still does not fit (the first convolution's input, a graph output that is read inside as well) the
scheduler copies.
"""

from __future__ import annotations

from dataclasses import replace

from aitc.ir import dim as dm
from aitc.ir.graph import Graph, Node, Value
from aitc.ir.op import Kind
from aitc.ir.types import Shape
from aitc.passes.base import Context, graphs, register

Order = tuple[int, ...]
_SPATIAL = frozenset(
    {"Conv", "ConvTranspose", "Pool", "MaxPoolIndices", "Resize", "GridSample", "RoiAlign", "LRN", "Upsample"}
)
_FOLLOWS = frozenset(
    {"Concat", "Pad", "Softmax", "LayerNormalization", "CumSum", "Trilu", "ScatterElements", "ScatterND"}
)


def channels_last(rank: int) -> Order:
    """N, space …, C"""
    return (0, *range(2, rank), 1)


@register
def run(graph: Graph, context: Context) -> int:
    """Sets the storage order of what nodes compute; returns how many values are not row-major."""
    return sum(_Chooser(g).run() for g in graphs(graph)[::-1])


class _Chooser:
    def __init__(self, graph: Graph):
        self.graph = graph
        self.outputs = set(graph.outputs)
        self.wanted: dict[Value, Order] = {}  # what readers would like, found from the end
        self.physical: dict[
            Value, Order | None
        ] = {}  # of any value, through views; None if it is not dense in any order

    def run(self) -> int:
        nodes = list(self.graph.nodes)
        for node in reversed(nodes):
            for v in node.outputs:
                wish = self.wish(v)
                if wish is not None:
                    self.wanted[v] = wish
        changed = 0
        for node in nodes:
            if node.op.kind is Kind.VIEW:
                self.physical[node.output] = through_view(node, self.order_of(node.input))
                continue
            for v in node.outputs:
                order = self.choose(node, v)
                if order is not None and _moves(order, v.shape):
                    v.type = replace(v.type, order=order)
                    changed += 1
                elif node.op.name != "Copy":
                    v.type = replace(v.type, order=None)
                self.physical[v] = v.type.order or tuple(range(v.type.rank))
            if node.output.type.order is not None and node.op.kind is Kind.POINTWISE:
                self.constants(node)
        return changed

    def order_of(self, v: Value) -> Order | None:
        if v in self.physical:
            return self.physical[v]
        return v.type.order or tuple(range(v.type.rank))

    # --- from the end: what would readers like?
    def wish(self, v: Value) -> Order | None:
        """The order that all readers of ``v`` who care agree on."""
        wishes: set[Order] = set()
        for user in v.users:
            w = self.wish_of(user, v)
            if w is not None:
                wishes.add(w)
        return wishes.pop() if len(wishes) == 1 else None

    def wish_of(self, user: Node, v: Value) -> Order | None:
        rank = v.type.rank
        if user.op.name in _SPATIAL:
            return channels_last(rank) if rank >= 3 and user.inputs[0] is v else None
        if user.op.name == "Transpose":
            inner = self.wanted.get(user.output)
            return None if inner is None else tuple(user.attrs.perm[a] for a in inner)
        if user.op.name == "Reshape":
            inner = self.wanted.get(user.output)
            if inner is None:
                return tuple(range(rank)) if _flattens(user) else None
            return _through_reshape(user.output.shape, v.shape, inner)  # the same Reshape, backwards
        if user.op.kind is Kind.POINTWISE and user.op.name != "Copy" and v.shape == user.output.shape:
            return self.wanted.get(user.output)
        if user.op.name in _FOLLOWS and user.inputs[0] is v and user.output.type.rank == rank:
            return self.wanted.get(user.output)
        if user.op.name in ("MatMul", "Attention"):
            return tuple(range(rank))
        return None

    # --- from the beginning: what is best?
    def choose(self, node: Node, v: Value) -> Order | None:
        rank = v.type.rank
        wanted = self.wanted.get(v)
        if v in self.outputs and (not v.users or node.op.kind is Kind.CONTROL):
            return None
        if node.op.name == "Copy":
            return v.type.order
        if node.op.name in _SPATIAL:
            natural = tuple(range(rank))
            return (
                natural
                if wanted == natural and all(_flattens(u) for u in v.users)
                else channels_last(rank)
                if rank >= 3
                else None
            )
        if node.op.kind is Kind.POINTWISE or node.op.name in _FOLLOWS:
            return self.follow(node, v, wanted)
        if node.op.name == "Reduce":
            return self.reduced(node)
        if node.op.kind in (Kind.ATTENTION, Kind.CONTRACT):
            return wanted
        return None

    def follow(self, node: Node, v: Value, wanted: Order | None) -> Order | None:
        """What the readers want; else the order of what is read, by the number of operands in it."""
        if wanted is not None:
            return wanted
        votes: dict[Order, int] = {}
        for x in node.inputs:
            if x is None or x.const is not None or x.type.rank != v.type.rank:
                continue
            order = self.order_of(x) if x.shape == v.shape or node.op.name in ("Concat", "Pad") else None
            if order is not None:
                votes[order] = votes.get(order, 0) + 1
        return max(votes, key=lambda o: (votes[o], _moves(o, v.shape), o), default=None)

    def reduced(self, node: Node) -> Order | None:
        order = self.order_of(node.input)
        if order is None:
            return None
        if node.attrs.keepdims:
            return order
        kept = [a for a in range(node.input.type.rank) if a not in node.attrs.axes]
        return tuple(kept.index(a) for a in order if a in kept)

    def constants(self, node: Node) -> None:
        """Large constants beside a value are stored in its order."""
        for x in node.inputs:
            if x is not None and x.const is not None and len(x.users) == 1 and x.type.rank == node.output.type.rank:
                order = node.output.type.order
                if order is not None and _moves(order, x.shape):
                    x.type = replace(x.type, order=order)


def _flattens(user: Node) -> bool:
    """A Reshape that merges channels with space."""
    if user.op.name != "Reshape" or user.input.type.rank < 3:
        return False
    return through_view(user, channels_last(user.input.type.rank)) is None


def _moves(order: Order, shape: Shape) -> bool:
    """Whether an order stores a shape otherwise than row-major: axes of size 1 do not count."""
    real = [a for a in order if shape[a] != 1]
    return real != sorted(real)


def through_view(node: Node, order: Order | None) -> Order | None:
    """The order in which a view's result lies in memory, given its input's; None if that is no order of its axes."""
    x, y = node.input, node.output
    if order is None:
        return None
    if node.op.name == "Transpose":
        return tuple(node.attrs.perm.index(a) for a in order)
    if node.op.name == "Slice":
        return order if all(s > 0 for s in node.attrs.steps) else None
    if node.op.name == "Expand":
        added = y.type.rank - x.type.rank
        return (*range(added), *(a + added for a in order))
    return _through_reshape(x.shape, y.shape, order)


def _through_reshape(before: Shape, after: Shape, order: Order) -> Order | None:
    blocks = _blocks(before, after)
    if blocks is None:
        return tuple(range(len(after))) if not _moves(order, before) else None
    placed: list[tuple[int, list[int]]] = []  # where each block lies in memory, and its axes afterwards
    for olds, news in blocks:
        real = [a for a in olds if before[a] != 1]
        at = [order.index(a) for a in real]
        if len(real) > 1 and len(news) >= 1:
            between = order[at[0] : at[-1] + 1]
            if at != sorted(at) or any(before[a] != 1 and a not in real for a in between):
                return None  # the axes that become one (or are cut anew) do not lie side by side
        placed.append((at[0] if at else -1, news))
    placed.sort(key=lambda p: p[0])
    return tuple(a for _, news in placed for a in news)


def _blocks(before: Shape, after: Shape) -> list[tuple[list[int], list[int]]] | None:
    """The smallest runs of axes with equal products, of both shapes; None if symbolic dims hide them."""
    blocks: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(before) or j < len(after):
        olds, news = [], []
        p: dm.Dim = 1
        q: dm.Dim = 1
        if i < len(before):
            olds, p, i = [i], before[i], i + 1
        if j < len(after):
            news, q, j = [j], after[j], j + 1
        while p != q:
            p_small = j == len(after) or (i < len(before) and _smaller(p, q))
            if p_small and i < len(before):
                p = dm.mul(p, before[i])
                olds.append(i)
                i += 1
            elif j < len(after):
                q = dm.mul(q, after[j])
                news.append(j)
                j += 1
            else:
                return None
        blocks.append((olds, news))
    return blocks


def _smaller(p: dm.Dim, q: dm.Dim) -> bool:
    if isinstance(p, int) and isinstance(q, int):
        return p < q
    if p == 1 or _divides(p, q):
        return True
    return not _divides(q, p)


def _divides(p: dm.Dim, q: dm.Dim) -> bool:
    """Whether ``q / p`` is certainly whole."""
    return p != 0 and dm.mod(q, p) == 0
