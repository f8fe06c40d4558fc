"""Attention: softmax(scale * q k^T + mask) v, as every exporter spells it.

Seen through: scales on the scores, on q, on k or on both; masks by Add (before or after the scale) and by Where with a huge negative
number; casts around the softmax; soft caps; the guard Where(IsNaN(p), 0, p) of newer torch; batch and heads folded into one axis, or more
axes than two (shifted windows); k that was transposed already; key and value heads repeated by Expand (grouped queries).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from aitc.ir.builder import Builder
from aitc.ir.dim import Dim, product
from aitc.ir.graph import Node, Value
from aitc.ir.match import like, made_by, number, pairs, same_shape, uncast
from aitc.ir.rewrite import FUSE, Match, Outcome, Reason, Rule
from aitc.ir.types import Shape
from aitc.rules.fuse.attention_mask import EXCLUDED, Mask, combined, is_finite

LARGEST_HEAD = 256  # elements of a head that a kernel keeps at hand; attention over channels has thousands


@dataclass(slots=True)
class _Scores:
    """What lies between q k^T and the softmax."""

    matmul: Node
    scale: float = 1.0
    softcap: float = 0.0
    masks: list[Mask] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Attention:
    scores: _Scores
    q: _Operand
    k: _Operand  # [..., D, T]
    scale: float
    v: Value
    softmax: Shape
    transposed: bool  # the result is v^T p^T
    guarded: bool  # rows in which no score counts give 0


def _probabilities(v: Value, nodes: list[Node]) -> Node | None:
    """The Softmax that ``v`` comes from, through casts, reshapes of leading axes and the guard against rows of NaN."""
    while True:
        v = uncast(v, nodes)
        guard = made_by(v, "Where")
        if guard is not None:
            test = made_by(guard.inputs[0], "IsNaN")
            kept = guard.inputs[2]
            if test is None or number(guard.inputs[1]) != 0 or kept is None or uncast(test.input) is not uncast(kept):
                return None
            nodes += [guard, test]
            v = kept
            continue
        node = made_by(v, "Softmax", "Reshape")
        if node is None:
            return None
        nodes.append(node)
        if node.op.name == "Softmax":
            return node if not node.attrs.log and node.attrs.axis == node.output.type.rank - 1 else None
        if node.input.shape[-2:] != v.shape[-2:] or node.input.type.rank < 3 or v.type.rank < 3:
            return None
        v = node.input


def _scores(v: Value) -> _Scores | Reason:
    """Peels scale, masks and soft cap off the scores, down to the MatMul."""
    scale, softcap = 1.0, 0.0
    masks: list[Mask] = []
    nodes: list[Node] = []
    while True:
        v = uncast(v, nodes)
        node = v.producer
        if node is None:
            return Reason("the scores are no product of q and k")
        if node.op.name != "MatMul" and len(v.users) > 1:
            return Reason("the scores are read by others as well", node)
        nodes.append(node)
        if node.op.name == "MatMul":
            if len(v.users) > 1:
                return Reason("the scores are read by others as well", node)
            return _Scores(node, scale, softcap, masks, nodes[:-1])
        if node.op.name in ("Mul", "Div"):
            c = number(node.inputs[1])
            x = node.inputs[0]
            if c is None and node.op.name == "Mul":
                c, x = number(node.inputs[0]), node.inputs[1]
            if not c or x is None:
                return Reason(f"the scores are scaled by something that is no known number ({node.op.name})", node)
            cap = made_by(uncast(x), "Tanh")
            if cap is not None and node.op.name == "Mul":
                inner = made_by(uncast(cap.input), "Div", "Mul")
                n = number(inner.inputs[1]) if inner is not None else None
                if (
                    inner is not None
                    and n
                    and scale == 1.0
                    and abs((n if inner.op.name == "Div" else 1 / n) / c - 1) < 1e-3
                ):
                    softcap = float(c)
                    nodes += [cap, inner]
                    v = inner.input
                    continue
            scale *= float(c) if node.op.name == "Mul" else 1 / float(c)
            v = x
        elif node.op.name == "Add":
            inner_value = _towards_matmul(node)
            if inner_value is None:
                return Reason("neither operand of the Add leads to q k^T", node)
            if softcap:
                return Reason("a mask inside the soft cap", node)
            other = node.inputs[1] if node.inputs[0] is inner_value else node.inputs[0]
            assert other is not None
            masks.append(Mask(other, v.shape, scale))  # scaled by what was met so far, outside of it
            v = inner_value
        elif node.op.name == "Where":
            kept = _where(node, v)
            if isinstance(kept, Reason):
                return kept
            mask, v = kept
            masks.append(mask)
        elif node.op.name == "Reshape" and same_shape(node.input.shape[-2:], v.shape[-2:]):
            v = node.input
        else:
            return Reason(f"{node.op.name} between q k^T and the softmax", node)


def _where(node: Node, v: Value) -> tuple[Mask, Value] | Reason:
    condition, x, y = node.inputs
    assert condition is not None and x is not None and y is not None
    for fill, scores, inverted in ((y, x, False), (x, y, True)):
        n = number(fill)
        if n is not None:
            if n > EXCLUDED:
                return Reason(f"Where fills scores with {n}, which does not exclude them", node)
            return Mask(condition, v.shape, fill=float(n), inverted=inverted), scores
    return Reason("Where does not fill with one number", node)


_TRANSPARENT = frozenset({"Mul", "Div", "Add", "Cast", "Reshape", "Where", "Tanh"})


def _towards_matmul(node: Node) -> Value | None:
    """The operand of an Add behind which q k^T is: of the node's full shape, and reaching a MatMul through pointwise nodes."""
    found = [v for v in node.inputs if v is not None and v.shape == node.output.shape and _reaches_matmul(v, 12)]
    return found[0] if found else None


def _reaches_matmul(v: Value, depth: int) -> bool:
    node = v.producer
    if node is None or depth == 0 or v.type.rank < 2:
        return False
    if node.op.name == "MatMul":
        return True
    return node.op.name in _TRANSPARENT and any(
        i is not None and i.type.rank >= 2 and _reaches_matmul(i, depth - 1) for i in node.inputs
    )


@dataclass(frozen=True, slots=True)
class _Operand:
    """``value`` under ``views``, the innermost first."""

    value: Value
    views: tuple[Node, ...]
    shape: Shape

    def build(self, b: Builder) -> Value:
        v = self.value
        for view in self.views:
            v = like(b, view, v)
        return v


def _unscaled(v: Value, nodes: list[Node]) -> tuple[_Operand, float]:
    """``v`` without the constant number that it is multiplied by, before or after a few views of it."""
    shape = v.shape
    x, scale = _without_factor(v, nodes)
    inner = x
    views: list[Node] = []
    for _ in range(3):
        view = made_by(inner, "Transpose", "Reshape")
        if view is None:
            break
        views.insert(0, view)
        inner, c = _without_factor(view.input, nodes)
        if c != 1.0:
            return _Operand(inner, tuple(views), shape), scale * c
    return _Operand(x, (), shape), scale


def _without_factor(v: Value, nodes: list[Node]) -> tuple[Value, float]:
    scale = 1.0
    while (node := made_by(v, "Mul", "Div")) is not None:
        candidates = pairs(node) if node.op.name == "Mul" else [(node.inputs[0], node.inputs[1])]
        for x, c in candidates:
            n = number(c)
            if n and x is not None and same_shape(x.shape, v.shape):
                scale *= float(n) if node.op.name == "Mul" else 1 / float(n)
                nodes.append(node)
                v = x
                break
        else:
            break
    return v, scale


def _match(node: Node) -> Outcome:
    a, b = node.inputs
    assert a is not None and b is not None
    nodes: list[Node] = []
    softmax = _probabilities(a, nodes)
    transposed = False
    v = b
    if softmax is None:  # v^T p^T
        nodes = []
        turn = made_by(b, "Transpose")
        if turn is None or turn.attrs.perm != (*range(b.type.rank - 2), b.type.rank - 1, b.type.rank - 2):
            return None
        nodes.append(turn)
        softmax = _probabilities(turn.input, nodes)
        transposed, v = True, a
        if softmax is None:
            return None
    if node.attrs.out is not None and node.attrs.out is not a.type.dtype:
        return Reason("the product with v widens its result", node)
    guarded = any(n.op.name == "IsNaN" for n in nodes)
    for n in nodes:
        tested = any(u.op.name == "IsNaN" and u in nodes for u in n.output.users)
        if len(n.output.users) > (2 if tested else 1):
            return Reason("the probabilities are read by others as well", n)
    scores = _scores(softmax.input)
    if isinstance(scores, Reason):
        return scores
    q, k = scores.matmul.inputs
    assert q is not None and k is not None
    nodes += scores.nodes
    nodes.append(scores.matmul)
    if q.type.rank < 3 or k.type.rank != q.type.rank or v.type.rank != a.type.rank:
        return Reason("q, k and v do not have the same number of axes, at least three", scores.matmul)
    if not same_shape(q.shape[:-2], scores.matmul.output.shape[:-2]):
        return Reason("q is broadcast against k", scores.matmul)
    for size in (q.shape[-1], v.shape[-2] if transposed else v.shape[-1]):
        if not isinstance(size, int) or size > LARGEST_HEAD:
            return Reason(f"heads of {size} elements", scores.matmul)
    if any(m.value.type.rank > len(m.shape) for m in scores.masks):
        return Reason("a mask with more axes than the scores", scores.matmul)
    q_operand, q_scale = _unscaled(q, nodes)
    k_operand, k_scale = _unscaled(k, nodes)
    scale = scores.scale * q_scale * k_scale
    return Match(
        tuple(nodes), _Attention(scores, q_operand, k_operand, scale, v, softmax.output.shape, transposed, guarded)
    )


# --- building ------------------------------------------------------------------------------------------------------------


def _rewrite(b: Builder, node: Node, m: _Attention) -> Value:
    batch, heads = _batch_and_heads(m)
    q = _four(b, m.q.build(b), batch, heads)
    k, v = _swap(b, m.k.build(b)), _swap(b, m.v) if m.transposed else m.v
    shared = (
        1 if k.type.rank == v.type.rank == 4 and k.shape[1] == v.shape[1] == 1 else heads
    )  # one head for all queries
    k, v = _four(b, k, batch, shared), _four(b, v, batch, shared)
    dtype = (
        node.output.type.dtype
    )  # casts in front of the product of scores are seen through: they are made up for here
    q, k, v = (x if x.type.dtype is dtype else b.op("Cast", x, to=dtype) for x in (q, k, v))
    target = (batch, heads, q.shape[2], k.shape[2])
    mask, causal = combined(b, m.scores.masks, target, q)
    y = b.op(
        "Attention",
        q,
        k,
        v,
        *([mask] if mask is not None else []),
        scale=m.scale,
        causal=causal,
        softcap=m.scores.softcap,
    )
    if m.guarded and mask is not None and not is_finite(mask):
        y = b.op("Where", b.op("IsNaN", y), b.like(0, y), y)
    if m.transposed:
        y = _swap(b, y)
    return y if same_shape(y.shape, node.output.shape) else b.op("Reshape", y, shape=node.output.shape)


def _swap(b: Builder, v: Value) -> Value:
    """``v`` with its last two axes exchanged; a Transpose in front of it is composed with."""
    rank = v.type.rank
    perm = (*range(rank - 2), rank - 1, rank - 2)
    inner = made_by(v, "Transpose")
    if inner is None:
        return b.op("Transpose", v, perm=perm)
    composed = tuple(inner.attrs.perm[p] for p in perm)
    return inner.input if composed == tuple(range(rank)) else b.op("Transpose", inner.input, perm=composed)


def _batch_and_heads(m: _Attention) -> tuple[Dim, Dim]:
    """The two leading axes of the operator: of the scores where they are four-dimensional, or of what q was folded from."""
    for shape in (m.softmax, *(mask.shape for mask in m.scores.masks), m.scores.matmul.output.shape):
        if len(shape) == 4:
            return shape[0], shape[1]
    lead = m.q.shape[:-2]
    folded = made_by(m.q.value, "Reshape") if not m.q.views else None
    if folded is not None and folded.input.type.rank == 4 and same_shape(folded.input.shape[-2:], m.q.shape[-2:]):
        return folded.input.shape[0], folded.input.shape[1]
    return product(lead[:-1]) if len(lead) > 1 else 1, lead[-1]


def _four(b: Builder, v: Value, batch: Dim, heads: Dim) -> Value:
    """``v`` as [batch, heads, rows, columns]; leading axes that it broadcasts over are expanded."""
    if v.type.rank == 4 and same_shape(v.shape[:2], (batch, heads)):
        return v
    folded = made_by(v, "Reshape")
    shape = (batch, heads, *v.shape[-2:])
    if folded is not None and same_shape(folded.input.shape, shape):
        return folded.input
    if v.type.rank == 4 and (v.shape[0] == 1 or v.shape[1] == 1):
        return b.op("Expand", v, shape=shape)
    return b.op("Reshape", v, shape=shape)


FUSE.add(
    "attention", Rule("attention", "softmax(scale q k^T + mask) v becomes Attention", ("MatMul",), _match, _rewrite)
)
