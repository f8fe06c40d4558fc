"""Softmax, log-softmax and the reductions with a name, spelled out."""

from __future__ import annotations

from aitc.ir.builder import Builder
from aitc.ir.graph import Node, Value
from aitc.ir.match import made_by, number, uncast
from aitc.ir.rewrite import FUSE, Match, Outcome, Reason, Rule


def _reduce(v: Value | None, function: str) -> Node | None:
    node = made_by(v, "Reduce")
    return node if node is not None and node.attrs.function == function else None


def _minus_max(v: Value, axes: tuple[int, ...]) -> tuple[Value, tuple[Node, ...]]:
    """``x`` of x - max(x), or ``v`` itself: a softmax does not change when a constant is subtracted."""
    sub = made_by(v, "Sub")
    top = _reduce(uncast(sub.inputs[1]), "max") if sub is not None and sub.inputs[1] is not None else None
    if sub is not None and top is not None and top.input is sub.input and top.attrs.axes == axes and top.attrs.keepdims:
        return sub.input, (sub, top)
    return v, ()


def _match_softmax(node: Node) -> Outcome:
    exp = made_by(node.inputs[0], "Exp")
    total = _reduce(node.inputs[1], "sum")
    if exp is None or total is None or total.input is not exp.output or not total.attrs.keepdims:
        return None
    if len(total.attrs.axes) != 1:
        return Reason(f"the sum is over axes {total.attrs.axes}, not over one", total)
    x, nodes = _minus_max(exp.input, total.attrs.axes)
    return Match((exp, total, *nodes), (x, total.attrs.axes[0]))


FUSE.add(
    "softmax",
    Rule(
        "softmax",
        "exp(x) / sum(exp(x)), with or without the maximum subtracted, becomes Softmax",
        ("Div",),
        _match_softmax,
        lambda b, node, f: b.op("Softmax", f[0], axis=f[1]),
    ),
)


def _match_log_softmax(node: Node) -> Outcome:
    inner = made_by(node.input, "Softmax")
    return (
        Match((inner,), inner) if inner is not None and not inner.attrs.log and len(inner.output.users) == 1 else None
    )


FUSE.add(
    "log-of-softmax",
    Rule(
        "log-of-softmax",
        "log(softmax(x)) becomes a log-softmax",
        ("Log",),
        _match_log_softmax,
        lambda b, node, s: b.op("Softmax", s.input, axis=s.attrs.axis, log=True),
    ),
)


def _match_minus_logsumexp(node: Node) -> Outcome:
    total = _reduce(node.inputs[1], "logsumexp")
    if total is None or total.input is not node.inputs[0] or len(total.attrs.axes) != 1 or not total.attrs.keepdims:
        return None
    x, nodes = _minus_max(total.input, total.attrs.axes)
    return Match((total, *nodes), (x, total.attrs.axes[0]))


FUSE.add(
    "log-softmax",
    Rule(
        "log-softmax",
        "x - logsumexp(x) becomes a log-softmax",
        ("Sub",),
        _match_minus_logsumexp,
        lambda b, node, f: b.op("Softmax", f[0], axis=f[1], log=True),
    ),
)

# outer op, reduction inside it, op inside that -> the reduction with a name
_NAMED = {("Log", "sum", "Exp"): "logsumexp", ("Sqrt", "sumsquare", ""): "l2", ("Log", "sum", ""): "logsum"}


def _match_named(node: Node) -> Outcome:
    inner = made_by(node.input, "Reduce")
    if inner is None or len(inner.output.users) != 1:
        return None
    for (outer, function, element), name in _NAMED.items():
        if node.op.name != outer or inner.attrs.function != function:
            continue
        if not element:
            return Match((inner,), (inner.input, name, inner.attrs))
        e = made_by(inner.input, element)
        if e is not None:
            return Match((inner, e), (e.input, name, inner.attrs))
    return None


def _named(b: Builder, node: Node, found: tuple[Value, str, object]) -> Value:
    x, function, a = found
    return b.op("Reduce", x, function=function, axes=a.axes, keepdims=a.keepdims)  # type: ignore[attr-defined]


FUSE.add(
    "named-reduction",
    Rule(
        "named-reduction",
        "log(sum(exp(x))) becomes logsumexp, sqrt(sumsquare(x)) becomes l2",
        ("Log", "Sqrt"),
        _match_named,
        _named,
    ),
)


def _match_sum_of_squares(node: Node) -> Outcome:
    mul = made_by(node.input, "Mul", "Abs")
    if node.attrs.function != "sum" or mul is None or len(mul.output.users) != 1 or not node.output.type.dtype.is_float:
        return None
    if mul.op.name == "Abs":
        return Match((mul,), (mul.input, "l1", node.attrs))
    return Match((mul,), (mul.input, "sumsquare", node.attrs)) if mul.inputs[0] is mul.inputs[1] else None


FUSE.add(
    "sum-of-squares",
    Rule(
        "sum-of-squares",
        "sum(x * x) becomes sumsquare, sum(|x|) becomes l1",
        ("Reduce",),
        _match_sum_of_squares,
        _named,
    ),
)


def _match_mean(node: Node) -> Outcome:
    """sum(x) / n, n being what is summed over"""
    total = _reduce(node.inputs[0], "sum")
    n = number(node.inputs[1])
    if total is None or n is None or len(total.output.users) != 1 or not node.output.type.dtype.is_float:
        return None
    size = 1
    for axis in total.attrs.axes:
        d = total.input.shape[axis]
        if not isinstance(d, int):
            return None
        size *= d
    if node.op.name == "Mul":
        n = 1 / n if n else 0
    return Match((total,), (total.input, "mean", total.attrs)) if abs(n - size) <= 1e-6 * size else None


FUSE.add("mean", Rule("mean", "sum(x) / n becomes a mean", ("Div", "Mul"), _match_mean, _named))
