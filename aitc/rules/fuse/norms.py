"""Layer norm and RMS norm, spelled out in means and roots."""

from __future__ import annotations

from dataclasses import dataclass

from aitc.ir.builder import Builder
from aitc.ir.graph import Node, Value
from aitc.ir.match import made_by, number, pairs, uncast
from aitc.ir.rewrite import FUSE, Match, Outcome, Reason, Rule


@dataclass(frozen=True, slots=True)
class _Norm:
    x: Value
    axes: tuple[int, ...]
    epsilon: float
    center: bool


def _over_root(node: Node) -> tuple[Value, Value, list[Node]] | None:
    """``y`` and ``v`` of a node that is y / sqrt(v), as Div by Sqrt or Mul by Rsqrt."""
    if node.op.name == "Div":
        nodes: list[Node] = []
        root = made_by(uncast(_in(node, 1), nodes), "Sqrt")
        return (_in(node, 0), root.input, [root, *nodes]) if root is not None else None
    for y, r in pairs(node):
        nodes = []
        root = made_by(uncast(r, nodes), "Rsqrt")
        if root is not None:
            return y, root.input, [root, *nodes]
        over = made_by(uncast(r), "Reciprocal")
        root = made_by(over.input, "Sqrt") if over is not None else None
        if over is not None and root is not None:
            return y, root.input, [root, over, *nodes]
    return None


def _in(node: Node, i: int) -> Value:
    v = node.inputs[i]
    assert v is not None
    return v


def _epsilon(v: Value) -> tuple[Value, float, list[Node]]:
    """``variance`` and ``epsilon`` of variance + epsilon; the epsilon is 0 where nothing is added."""
    add = made_by(uncast(v), "Add")
    if add is not None:
        for x, c in pairs(add):
            n = number(c)
            if n is not None:
                return x, float(n), [add]
    return v, 0.0, []


def _square(v: Value) -> tuple[Value, list[Node]] | None:
    """``d`` of d * d."""
    node = made_by(uncast(v), "Mul")
    if node is not None and _in(node, 0) is _in(node, 1):
        return _in(node, 0), [node]
    node = made_by(uncast(v), "Pow")
    if node is not None and number(node.inputs[1]) == 2:
        return _in(node, 0), [node]
    return None


def _mean(v: Value) -> Node | None:
    """The Reduce that ``v`` is the mean of, its axes kept."""
    node = made_by(uncast(v), "Reduce")
    if node is not None and node.attrs.function == "mean" and node.attrs.keepdims:
        return node
    return None


def _match(node: Node) -> Outcome:
    found = _over_root(node)
    if found is None:
        return None
    y, v, nodes = found
    variance, epsilon, more = _epsilon(v)
    nodes += more
    mean = _mean(variance)
    square = _square(mean.input) if mean is not None else None
    if mean is None or square is None:
        return _naive_variance(node, y, variance, epsilon, nodes)
    d, more = square
    nodes += [mean, *more]
    axes = mean.attrs.axes
    if uncast(d) is not uncast(y):
        return Reason("what is divided by the root is not what was squared", mean)
    if axes != tuple(range(axes[0], axes[0] + len(axes))):
        return Reason(f"the axes {axes} are not neighbours", mean)
    sub = made_by(uncast(d), "Sub")
    if sub is not None:
        center = _mean(_in(sub, 1))
        if center is not None and uncast(center.input) is uncast(_in(sub, 0)) and center.attrs.axes == axes:
            return Match((*nodes, sub, center), _Norm(_in(sub, 0), axes, epsilon, True))
    return Match(tuple(nodes), _Norm(y, axes, epsilon, False))


def _naive_variance(node: Node, y: Value, variance: Value, epsilon: float, nodes: list[Node]) -> Outcome:
    """(x - m) / sqrt(mean(x * x) - m * m + epsilon)"""
    minus, sub = made_by(uncast(variance), "Sub"), made_by(uncast(y), "Sub")
    if minus is None or sub is None:
        return None
    mean, center = _mean(_in(minus, 0)), _mean(_in(sub, 1))
    square_of_mean = _square(_in(minus, 1))
    square = _square(mean.input) if mean is not None else None
    if mean is None or center is None or square is None or square_of_mean is None:
        return None
    x = uncast(_in(sub, 0))
    same = uncast(square[0]) is x and uncast(center.input) is x and uncast(square_of_mean[0]) is center.output
    if not same or mean.attrs.axes != center.attrs.axes:
        return Reason("mean(x * x) - mean(x) ** 2 is of other values than what is divided", mean)
    return Match(
        (*nodes, minus, sub, mean, center, *square[1], *square_of_mean[1]),
        _Norm(_in(sub, 0), mean.attrs.axes, epsilon, True),
    )


def _rewrite(b: Builder, node: Node, norm: _Norm) -> Value:
    y = b.op("LayerNormalization", norm.x, axes=norm.axes, epsilon=norm.epsilon, center=norm.center)
    return y if y.type.dtype is node.output.type.dtype else b.op("Cast", y, to=node.output.type.dtype)


FUSE.add(
    "layer-norm",
    Rule(
        "layer-norm",
        "(x - mean) / sqrt(variance + epsilon), or without the mean (RMS norm), becomes LayerNormalization",
        ("Div", "Mul"),
        _match,
        _rewrite,
    ),
)


def _match_group(node: Node) -> Outcome:
    """Reshape [N, C, …] to [N, G, M], norm over M, Reshape back."""
    norm = made_by(node.input, "LayerNormalization")
    first = made_by(norm.input, "Reshape") if norm is not None else None
    if norm is None or first is None or len(norm.output.users) != 1:
        return None
    x, grouped = first.input, norm.output
    if (
        x.shape != node.output.shape
        or x.type.rank < 3
        or grouped.type.rank != 3
        or norm.attrs.axes != (2,)
        or x.shape[0] != grouped.shape[0]
    ):
        return None
    c, g = x.shape[1], grouped.shape[1]
    if not isinstance(c, int) or not isinstance(g, int) or c % g or (x.type.rank == 3 and c == g):
        return Reason(f"{g} groups do not divide {c} channels", norm)
    return Match((norm, first), (x, g, norm.attrs))


def _rewrite_group(b: Builder, node: Node, found: tuple[Value, int, object]) -> Value:
    x, g, a = found
    c = x.shape[1]
    assert isinstance(c, int)
    apart = b.op("Reshape", x, shape=(x.shape[0], g, c // g, *x.shape[2:]))
    y = b.op("LayerNormalization", apart, axes=tuple(range(2, x.type.rank + 1)), epsilon=a.epsilon, center=a.center)  # type: ignore[attr-defined]
    return b.op("Reshape", y, shape=x.shape)


FUSE.add(
    "group-norm",
    Rule(
        "group-norm",
        "a norm of [N, G, M] between two Reshapes is done on [N, G, C / G, H, W], which keeps the channels in sight",
        ("Reshape",),
        _match_group,
        _rewrite_group,
    ),
)
