"""Groups are grown by rules of closure: tails and heads around anchors, then what is left into map groups.

Vertical fusion happens here and only here. A group is valid when its kernel can compute every output at one place, and when no
path leaves the group and comes back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aitc.ir.apart import label
from aitc.ir.dim import hint, product
from aitc.ir.graph import Graph, Node, Value
from aitc.ir.index import Index, is_view, source_index
from aitc.ir.op import Kind
from aitc.kernels.core.functor import ELEMENTS
from aitc.kernels.core.group import Group, make_group
from aitc.kernels.core.kernel import KERNELS, coordinate, dim_of, output_indices, spread_indices
from aitc.schedule.core.anchors import is_anchor
from aitc.schedule.core.storage import Storages
from aitc.schedule.core.why import TAKEN, Fusions, source_of
from aitc.schedule.group.regions import Growing, Regions

MAX_NODES = 64  # of one group: beyond it registers run out and compile time grows
MAX_OPERANDS = 24  # pointers a group may read
CHEAP_NODES = 8  # pointwise nodes that may be computed again for each element they are broadcast to


class _Former(Regions):
    """The rules by which regions grow, and the order in which they are tried. ``kernels``: the name of each anchor's."""

    def __init__(self, graph: Graph, kernels: dict[Node, str], storage: Storages, defined: Mapping[str, Node], why: Fusions):
        super().__init__(graph, storage, defined, why)
        self.kernels = kernels
        self.merged = self._from_moments()

    # --- tails
    def grow_tail(self, g: Growing) -> None:
        """Takes pointwise consumers of what ``g`` computes, through views that keep every element."""
        anchor = g.anchor
        assert anchor is not None
        start = anchor.output
        at: Index = tuple(dim_of(coordinate(f"i{a}", d)) for a, d in enumerate(start.shape))
        while len(g.nodes) < MAX_NODES:
            grown = False
            known = spread_indices(sorted(g.nodes, key=self.order.__getitem__), start, at)
            for v in list(known):
                for path, user in self._consumers(v):
                    if user in g.nodes:
                        continue
                    reason = self._no_tail(g, known, path, user)
                    if not reason:
                        self.add(g, [*path, user])
                        grown = True
                        break
                    self.no(v, user, reason)
                if grown:
                    break
            if not grown:
                return
        self.full(g)

    def full(self, g: Growing) -> None:
        """Who reads what ``g`` computes does so from memory: there is no room for more."""
        for n in g.nodes:
            for v in n.outputs:
                for _, user in self._consumers(v):
                    if user not in g.nodes:
                        self.no(v, user, f"a launch computes at most {MAX_NODES} nodes")

    def _consumers(self, v: Value) -> Iterator[tuple[list[Node], Node]]:
        """Pointwise readers of ``v``, directly or through Reshape and Transpose, with the views on the way; a Copy comes last."""
        stack: list[tuple[list[Node], Value]] = [([], v)]
        late: list[tuple[list[Node], Node]] = []
        while stack:
            path, value = stack.pop()
            for user in value.users:
                if user.op.kind is Kind.POINTWISE and user in self.order:
                    if user.op.name == "Copy":
                        late.append((path, user))
                    else:
                        yield path, user
                elif user.op.name in ("Reshape", "Transpose") and len(path) < 6:
                    stack.append(([*path, user], user.output))
                elif is_view(user):
                    self._cut_off(v, user, f"{user.op.name} in between: what it leaves out or repeats is computed, too")
                else:
                    self.no(v, user, _OWN.get(user.op.kind, "each of its elements needs many of these"))
        yield from late

    def _cut_off(self, v: Value, view: Node, reason: str) -> None:
        """Who reads ``v`` behind ``view`` does so from memory."""
        for user in view.output.users:
            if is_view(user):
                self._cut_off(v, user, reason)
            else:
                self.no(v, user, reason)

    def _no_tail(self, g: Growing, known: dict[Value, Index], path: list[Node], user: Node) -> str:
        """Why the pointwise reader ``user`` is not computed where the group's results are; "" if it is."""
        if not self.free(user):
            other = self.group_of[user]
            return f"{TAKEN} {label(other.anchor or self.list[other.first])}"
        reason = self._misfit(g, known, path, user)
        if not reason and self.cyclic(g, [*path, user]):
            return "its other operand is computed between the two, from results of the first"
        return reason

    def _misfit(self, g: Growing, known: dict[Value, Index], path: list[Node], user: Node) -> str:
        """Why an operand of ``user`` that the group computes is not computed at the place where ``user`` needs it; "" if all are."""
        views = spread_indices(path, path[0].input, known[path[0].input]) if path else {}
        at = {**known, **views}
        if any(v.output not in at or source_index(v, at[v.output]) != at[v.input] for v in path):
            return "the views in between have no simple way back to where the value is computed"
        where: Index | None = None
        outside = 0
        for v in user.inputs:
            if v is None:
                continue
            if v in at:
                if v.shape != user.output.shape:
                    return "it is broadcast there: each element would be computed again and again"
                if where is not None and at[v] != where:
                    return "two of its operands are computed here, at different places"
                where = at[v]
            elif self.inside(g, v):
                return "another operand of it is computed here, at other places"
            else:
                outside += 1
        reads = {id(v) for n in g.nodes for v in n.inputs if v is not None and (v.producer is None or v.producer not in g.nodes)}
        if len(reads) + outside > MAX_OPERANDS:
            return f"the launch would read more than {MAX_OPERANDS} tensors"
        return "" if where is not None else "none of its operands is computed here"

    # --- statistics of rows
    def take_moments(self, g: Growing, part: int) -> None:
        """Takes the Moments of what ``g`` computes that its kernel stores beside it: those of ``part`` neighbours along the last axis."""
        assert g.anchor is not None
        start = g.anchor.output
        at: Index = tuple(dim_of(coordinate(f"i{a}", d)) for a, d in enumerate(start.shape))
        for v, index in spread_indices(sorted(g.nodes, key=self.order.__getitem__), start, at).items():
            for user in v.users:
                if user.op.name == "Moments" and user.attrs.part == part and v.shape[-1] == start.shape[-1] and index[-1] == at[-1] and self.free(user):
                    self.add(g, [user])
                    return

    def statistics_of(self, g: Growing) -> list[tuple[Node, int]]:
        """Operands of ``g`` (node, input number) that are computed from the statistics of rows: each reader merges them where it applies them."""

        if not self.merged:
            return []

        def merged(v: Value | None) -> bool:
            p = source_of(v) if v is not None else None
            return p in self.merged and p not in g.nodes

        pairs = [(n, i) for n in sorted(g.nodes, key=self.order.__getitem__) for i, v in enumerate(n.inputs) if not is_view(n) and merged(v)]
        return pairs[::-1]

    def _from_moments(self) -> set[Node]:
        """MergedMoments, and the pointwise nodes that compute with what they give."""
        found: set[Node] = set()
        for n in self.list:
            sources = (source_of(v) for v in n.inputs if v is not None)
            if n.op.name == "MergedMoments" or (n.op.kind is Kind.POINTWISE and any(p in found for p in sources)):
                found.add(n)
        return found

    # --- heads and map groups
    def grow_up(self, g: Growing, roots: list[tuple[Node, int]]) -> None:
        """Takes producers that only this group reads: they are computed where their result is used.

        ``roots`` are (node, input number) pairs to start from.
        """
        work = list(roots)
        if not work:
            return
        space = hint(product(self._space(g)))
        broadcast = 0
        while work and len(g.nodes) < MAX_NODES:
            node, index = work.pop()
            v = node.inputs[index]
            if v is None:
                continue
            path: list[Node] = []
            p = v.producer
            while p is not None and is_view(p):
                path.append(p)
                p = p.input.producer
            if p is None or p not in self.order or self.storage.joined(p) or p in g.nodes:
                continue
            smaller = hint(product(p.output.shape)) * 2 <= space
            reason = self._no_head(g, p, path, smaller and broadcast >= CHEAP_NODES)
            if reason:
                self.no(v, node, reason)
                continue
            broadcast += smaller
            self.add(g, [*path, p])
            work += [(p, i) for i in range(len(p.inputs))]
        for node, index in work:
            self.no(node.inputs[index], node, f"a launch computes at most {MAX_NODES} nodes")

    def _no_head(self, g: Growing, p: Node, path: list[Node], repeated: bool) -> str:
        """Why ``p`` is not computed where its result is loaded; "" if it is. ``repeated``: enough is computed once for each element that
        it is broadcast to."""
        if not self.free(p):
            return f"{TAKEN} {label(self.group_of[p].anchor or p)}"
        if p.op.kind is not Kind.POINTWISE and not _light(p):
            return "each element costs more than a load, and would be computed for every reader"
        if len(p.outputs) > 1 or not self._only_for(g, p, path):
            return "its result is also read elsewhere, or in several ways: it is computed once and stored"
        if repeated:
            return f"more than {CHEAP_NODES} nodes would be computed again for each element they are broadcast to"
        return "a path leaves the launch and comes back" if self.cyclic(g, [*path, p]) else ""

    def _space(self, g: Growing) -> tuple:
        return g.anchor.input.shape if g.anchor is not None else next(iter(g.nodes)).output.shape

    def _only_for(self, g: Growing, p: Node, path: list[Node]) -> bool:
        """Whether every reader of ``p`` (through views) is in the group, and none evaluates it several times."""
        if id(p.output) in self.outputs:
            return False
        stack = [p.output]
        while stack:
            v = stack.pop()
            for user in v.users:
                if is_view(user):
                    if id(user.output) in self.outputs:
                        return False
                    stack.append(user.output)
                elif user not in g.nodes or (user.op.kind is Kind.WINDOW and user is not g.anchor):
                    return False
        return True

    def grow_sideways(self, g: Growing) -> None:
        """Takes pointwise consumers of a map group's results that have the same space (several outputs, inner fan-out)."""
        while len(g.nodes) < MAX_NODES:
            nodes = sorted(g.nodes, key=self.order.__getitem__)
            root = nodes[-1].output if not is_view(nodes[-1]) else nodes[-1].input
            at: Index = tuple(dim_of(coordinate(f"i{a}", d)) for a, d in enumerate(root.shape))
            known = spread_indices(nodes, root, at, backward=True)
            found = None
            for v in list(known):
                if v.producer not in g.nodes:
                    continue
                for path, user in self._consumers(v):
                    if user in g.nodes:
                        continue
                    reason = self._no_tail(g, known, path, user)
                    if not reason and not self._one_place(g, [*path, user]):
                        reason = "the launch could not compute all its results from one place"
                    if not reason:
                        found = [*path, user]
                        break
                    self.no(v, user, reason)
                if found:
                    break
            if not found:
                return
            self.add(g, found)
        self.full(g)

    def _one_place(self, g: Growing, extra: list[Node]) -> bool:
        """Whether a map group with ``extra`` can still compute all its outputs from one coordinate."""
        group = make_group(sorted(g.nodes | set(extra), key=self.order.__getitem__), None, self.outputs)
        start = group.outputs[0]
        at: Index = tuple(dim_of(coordinate(f"i{a}", d)) for a, d in enumerate(start.shape))
        return output_indices(group, start, at, backward=True) is not None

    # --- the whole
    def run(self) -> list[Group]:
        growing: list[Growing] = []
        anchors = [n for n in self.list if is_anchor(n)]
        for n in anchors:
            growing.append(self.start(n, n))
        for g in reversed(growing):
            assert g.anchor is not None
            kernel = KERNELS[self.kernels[g.anchor]]
            if kernel.tails and len(g.anchor.outputs) == 1:
                self.grow_tail(g)
                if kernel.moments:
                    self.take_moments(g, kernel.moments)
            else:
                self._readers_apart(g.anchor, f"kernel {kernel.name} stores results as they are" if not kernel.tails else _SEVERAL)
        for g in growing:
            assert g.anchor is not None
            kernel = KERNELS[self.kernels[g.anchor]]
            if kernel.heads:
                self.grow_up(g, [(g.anchor, 0)])
            self.grow_up(g, self.statistics_of(g))
            for v in g.anchor.inputs[1 if kernel.heads else 0 :]:
                self.no(v, g.anchor, f"kernel {kernel.name} reads this operand from memory")
        # Windows first: what follows them is theirs, since they are evaluated once for each element and never in another group.
        windows = [n for n in reversed(self.list) if n.op.kind is Kind.WINDOW]
        for n in (*windows, *reversed(self.list)):
            if is_view(n) or not self.free(n) or self.storage.joined(n):
                continue
            g = self.start(n, None)
            growing.append(g)
            if n.op.kind is not Kind.WINDOW and len(n.outputs) == 1:
                self.grow_up(g, [(n, i) for i in range(len(n.inputs))])
            else:
                for v in n.inputs:
                    self.no(v, n, "a window reads each element several times: it is computed once and stored")
            if len(n.outputs) == 1:
                self.grow_sideways(g)
            else:
                self._readers_apart(n, _SEVERAL)
        self.why.settle(self.list, self.group_of)
        return self.in_order(growing)

    def _readers_apart(self, node: Node, reason: str) -> None:
        for v in node.outputs:
            for _, user in self._consumers(v):
                self.no(v, user, reason)


_SEVERAL = "a node with several results computes nothing behind them"
_OWN = {
    Kind.MOVE: "it reads elements at other places than they are computed",
    Kind.WINDOW: "a window reads each element several times: it is computed once and stored",
    Kind.CONTROL: "the host reads it",
}


def _light(node: Node) -> bool:
    """Whether an op with an element rule costs little more than a load."""
    return node.op.name in ELEMENTS and node.op.kind in (Kind.MOVE, Kind.SOURCE)


def form_groups(
    graph: Graph, kernels: dict[Node, str], storage: Storages, defined: Mapping[str, Node] | None = None, why: Fusions | None = None
) -> list[Group]:
    """Every node that is no view (and no Concat joined in place) is in exactly one group; groups come in an order in which they can run.

    ``defined``: late symbols and the nodes that give them their values; who needs a symbol runs after its node. ``why`` gets what stayed
    apart.
    """
    return _Former(graph, kernels, storage, defined or {}, why or Fusions()).run()
