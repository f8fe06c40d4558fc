"""Recurrent networks. The product with the input, for all steps at once, is a MatMul in front; the core ops hold only
what is sequential.

Core ops LSTM, GRU and RNN take: x [D, T, B, G H], already multiplied by W and with W's bias (and R's too, unless
``linear_before_reset``) added; R [D, G H, H]; lengths [B] or None; h0 [D, B, H]; then LSTM: c0 [D, B, H], peepholes [D,
3 H] or None; GRU: R's bias [D, G H] or None. They give Y [T, D, B, H], the last h [D, B, H] and, LSTM alone, the last
c. D is 2 for both directions; gates are in ONNX's order (LSTM i o f c, GRU z r h).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aitc.ir import dim as d
from aitc.ir.dim import Dim
from aitc.ir.dtype import I32
from aitc.ir.graph import Value
from aitc.ir.op import OPS, Kind, Op
from aitc.ir.parse import record
from aitc.ir.types import TensorType
from aitc.ops import declare
from aitc.ops.attribute import Activations, Count, Direction, Finite, Finites
from aitc.ops.declare import Scope, add_importer, cast, transpose
from aitc.ops.pointwise import sigmoid, softplus, widen

Types = Sequence["TensorType | None"]

# name -> (function of x, alpha, beta; ONNX's defaults of alpha and beta)
ACTIVATIONS: dict[str, tuple[Callable[[np.ndarray, float, float], np.ndarray], float, float]] = {
    "Relu": (lambda x, a, b: np.maximum(x, 0), 0, 0),
    "Tanh": (lambda x, a, b: np.tanh(x), 0, 0),
    "Sigmoid": (lambda x, a, b: sigmoid(x), 0, 0),
    "Affine": (lambda x, a, b: np.asarray(a * x + b, x.dtype), 1, 0),
    "LeakyRelu": (lambda x, a, b: np.where(x >= 0, x, np.asarray(a, x.dtype) * x), 0.01, 0),
    "ThresholdedRelu": (lambda x, a, b: np.where(x >= a, x, np.zeros_like(x)), 1, 0),
    "ScaledTanh": (lambda x, a, b: np.asarray(a * np.tanh(b * x), x.dtype), 1, 1),
    "HardSigmoid": (lambda x, a, b: np.clip(np.asarray(a * x + b, x.dtype), 0, 1), 0.2, 0.5),
    "Elu": (lambda x, a, b: np.where(x >= 0, x, np.asarray(a, x.dtype) * np.expm1(x)), 1, 0),
    "Softsign": (lambda x, a, b: x / (1 + np.abs(x)), 0, 0),
    "Softplus": (lambda x, a, b: softplus(x), 0, 0),
}


@record
@dataclass(frozen=True, slots=True)
class Activation:
    """With the parameters that ACTIVATIONS names alpha and beta."""

    name: str
    alpha: float
    beta: float

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return ACTIVATIONS[self.name][0](x, self.alpha, self.beta)


@dataclass(frozen=True, slots=True)
class RecurrentAttrs:
    """``activations``: for each direction LSTM's three, GRU's two, RNN's one. ``reverse``: for each direction
    whether it runs backward."""

    reverse: tuple[bool, ...]
    activations: tuple[Activation, ...]
    clip: Finite = 0.0  # 0: none
    input_forget: bool = False  # LSTM: the forget gate is 1 - the input gate
    linear_before_reset: bool = False  # GRU


def _infer(states: int) -> Callable[[Types, RecurrentAttrs], tuple[TensorType, ...]]:
    def infer(types: Types, a: RecurrentAttrs) -> tuple[TensorType, ...]:
        x, r = types[0], types[1]
        assert x is not None and r is not None
        directions, steps, batch, _ = x.shape
        hidden = r.shape[2]
        last = TensorType(x.dtype, (directions, batch, hidden))
        return (TensorType(x.dtype, (steps, directions, batch, hidden)), *([last] * states))

    return infer


Step = Callable[..., "tuple[np.ndarray, ...]"]


def _clip(x: np.ndarray, a: RecurrentAttrs) -> np.ndarray:
    return np.clip(x, -a.clip, a.clip) if a.clip else x


def _run(
    x: np.ndarray,
    states: Sequence[np.ndarray],
    lengths: np.ndarray | None,
    a: RecurrentAttrs,
    step: Callable[[int, np.ndarray, Any], Any],
) -> tuple[np.ndarray, ...]:
    """Runs ``step(direction, x of a step, states) -> states`` over time; a sequence that has ended keeps its
    state and gives 0. One without steps has no last state: it is 0, as in ONNX Runtime (ONNX leaves it open)."""
    directions, steps, batch, _ = x.shape
    hidden = states[0].shape[-1]
    y = np.zeros((steps, directions, batch, hidden), x.dtype)
    last = [s.copy() for s in states]
    for direction in range(directions):
        now = [s[direction] for s in last]
        for t in range(steps):
            if lengths is None:
                at = np.full(batch, steps - 1 - t if a.reverse[direction] else t)
                alive = np.ones(batch, bool)
            else:  # backward starts at each sequence's own end
                at = np.where(a.reverse[direction], lengths - 1 - t, t)
                alive = t < lengths
            rows = x[direction, np.clip(at, 0, steps - 1), np.arange(batch)]
            after = step(direction, rows, now)
            now = [np.where(alive[:, None], n, o) for n, o in zip(after, now)]
            y[at[alive], direction, alive] = now[0][alive]
        never = np.full(batch, steps == 0) if lengths is None else np.asarray(lengths) <= 0
        for s, n in zip(last, now):
            s[direction] = np.where(never[:, None], 0, n)
    return (y, *last)


def rnn_array(
    x: np.ndarray, r: np.ndarray, lengths: np.ndarray | None, h0: np.ndarray, a: RecurrentAttrs
) -> tuple[np.ndarray, ...]:
    dtype, x, r, h0 = x.dtype, widen(x), widen(r), widen(h0)

    def step(direction: int, rows: np.ndarray, states: Any) -> Any:
        return [a.activations[direction](_clip(rows + states[0] @ r[direction].T, a))]

    return tuple(v.astype(dtype) for v in _run(x, [h0], lengths, a, step))


def gru_array(
    x: np.ndarray, r: np.ndarray, lengths: np.ndarray | None, h0: np.ndarray, bias: np.ndarray | None, a: RecurrentAttrs
) -> tuple[np.ndarray, ...]:
    dtype, x, r, h0 = x.dtype, widen(x), widen(r), widen(h0)
    n = r.shape[2]
    rb = np.zeros(r.shape[:2], x.dtype) if bias is None else widen(bias)

    def step(direction: int, rows: np.ndarray, states: Any) -> Any:
        f, g = a.activations[2 * direction : 2 * direction + 2]
        h, w, b = states[0], r[direction], rb[direction]
        z = f(_clip(rows[:, :n] + h @ w[:n].T + b[:n], a))
        reset = f(_clip(rows[:, n : 2 * n] + h @ w[n : 2 * n].T + b[n : 2 * n], a))
        if a.linear_before_reset:
            inner = reset * (h @ w[2 * n :].T + b[2 * n :])
        else:
            inner = (reset * h) @ w[2 * n :].T + b[2 * n :]
        fresh = g(_clip(rows[:, 2 * n :] + inner, a))
        return [(1 - z) * fresh + z * h]

    return tuple(v.astype(dtype) for v in _run(x, [h0], lengths, a, step))


def lstm_array(
    x: np.ndarray,
    r: np.ndarray,
    lengths: np.ndarray | None,
    h0: np.ndarray,
    c0: np.ndarray,
    peepholes: np.ndarray | None,
    a: RecurrentAttrs,
) -> tuple[np.ndarray, ...]:
    dtype, x, r, h0, c0 = x.dtype, widen(x), widen(r), widen(h0), widen(c0)
    n = r.shape[2]
    p = np.zeros((r.shape[0], 3 * n), x.dtype) if peepholes is None else widen(peepholes)

    def step(direction: int, rows: np.ndarray, states: Any) -> Any:
        f, g, out = a.activations[3 * direction : 3 * direction + 3]
        h, c = states
        gates = rows + h @ r[direction].T
        pi, po, pf = p[direction, :n], p[direction, n : 2 * n], p[direction, 2 * n :]
        i = f(_clip(gates[:, :n] + pi * c, a))
        forget = 1 - i if a.input_forget else f(_clip(gates[:, 2 * n : 3 * n] + pf * c, a))
        now = forget * c + i * g(_clip(gates[:, 3 * n :], a))
        o = f(_clip(gates[:, n : 2 * n] + po * now, a))
        return [o * out(now), now]

    return tuple(v.astype(dtype) for v in _run(x, [h0, c0], lengths, a, step))


for _name, _function, _states, _arity in (
    ("RNN", rnn_array, 1, 4),
    ("GRU", gru_array, 1, 5),
    ("LSTM", lstm_array, 2, 6),
):
    OPS.add(
        _name,
        Op(
            _name,
            Kind.RECURRENT,
            _infer(_states),
            _function,
            RecurrentAttrs,
            arity=(_arity, _arity),
            outputs=1 + _states,
            tolerance=8.0,
            flops=lambda types, a: d.mul(d.mul(types[0].elems, types[1].shape[2]), 2),
        ),
    )


# --- ONNX -------------------------------------------------------------------------------------------------------------


def activations(
    names: tuple[str, ...] | None,
    alphas: tuple[float, ...],
    betas: tuple[float, ...],
    defaults: tuple[str, ...],
    directions: int,
) -> tuple[Activation, ...]:
    """One entry a function; alphas and betas go, in order, to those functions that have them."""
    names = names or defaults * directions
    if len(names) != len(defaults) * directions:
        raise ValueError(f"{len(names)} activations, {len(defaults) * directions} needed")
    alpha, beta = iter(alphas), iter(betas)
    known = {n.lower(): n for n in ACTIVATIONS}
    result = []
    for name in names:
        if name.lower() not in known:
            raise ValueError(f"activation {name!r}")
        spelled = known[name.lower()]
        _, default_alpha, default_beta = ACTIVATIONS[spelled]
        takes_alpha = spelled in ("Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu")
        takes_beta = spelled in ("Affine", "ScaledTanh", "HardSigmoid")
        result.append(Activation(
            spelled, float(next(alpha, default_alpha)) if takes_alpha else 0.0, float(next(beta, default_beta)) if
            takes_beta else 0.0
        ))  # fmt: skip
    return tuple(result)


def _expect(name: str, v: Value | None, shape: tuple[Dim, ...]) -> None:
    """Raises ValueError if an operand's shape certainly is not ``shape``."""
    if v is None:
        return
    known = [(s, w) for s, w in zip(v.shape, shape) if isinstance(s, int) and isinstance(w, int)]
    if v.type.rank != len(shape) or any(s != w for s, w in known):
        raise ValueError(f"{name} is {v.type}, expected [{', '.join(map(str, shape))}]")


def _recurrent(op: str, gates: int, defaults: tuple[str, ...]) -> Any:
    def build(
        b: Scope, x: Value, w: Value, r: Value, bias: Value | None, lengths: Value | None, h0: Value | None,
        c0: Value | None, p: Value | None, direction: str, layout: int, attrs: dict[str, Any], names: Any, alphas: Any,
        betas: Any,
    ) -> tuple[Value, ...]:  # fmt: skip
        if direction not in ("forward", "reverse", "bidirectional"):
            raise ValueError(f"direction {direction!r}")
        reverse = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[direction]
        n = len(reverse)
        for name, v in (("X", x), ("W", w), ("R", r), ("initial_h", h0), ("initial_c", c0)):
            if v is not None and v.type.rank != 3:
                raise ValueError(f"{name} is {v.type}, expected three axes")
        if layout:
            x = transpose(b, x, (1, 0, 2))
            h0 = None if h0 is None else transpose(b, h0, (1, 0, 2))
            c0 = None if c0 is None else transpose(b, c0, (1, 0, 2))
        steps, batch, size = x.shape
        hidden = r.shape[2]
        if any(isinstance(s, int) and s != n for s in (w.shape[0], r.shape[0])):
            raise ValueError(f"direction {direction} with W {w.type}")
        state = (n, batch, hidden)
        _expect("W", w, (n, d.mul(hidden, gates), size))
        _expect("R", r, (n, d.mul(hidden, gates), hidden))
        _expect("B", bias, (n, d.mul(hidden, 2 * gates)))
        _expect("sequence_lens", lengths, (batch,))
        _expect("initial_h", h0, state)
        _expect("initial_c", c0, state)
        _expect("P", p, (n, d.mul(hidden, 3)))
        rows = declare.reshape(b, x, (1, d.mul(steps, batch), size))
        gx = declare.reshape(
            b, b.op("MatMul", rows, transpose(b, w, (0, 2, 1))), (n, steps, batch, d.mul(hidden, gates))
        )
        width = d.mul(hidden, gates)
        rb = None
        if bias is not None:
            wb, rb = declare.slice_axis(b, bias, 1, 0, width), declare.slice_axis(b, bias, 1, width, width)
            if not attrs.get("linear_before_reset"):
                wb, rb = b.op("Add", wb, rb), None
            gx = b.op("Add", gx, declare.reshape(b, wb, (n, 1, 1, width)))
        h0 = b.op("Fill", value=0.0, shape=state, dtype=x.type.dtype) if h0 is None else h0
        rest: list[Value | None] = []
        if op == "LSTM":
            rest = [b.op("Fill", value=0.0, shape=state, dtype=x.type.dtype) if c0 is None else c0, p]
        elif op == "GRU":
            rest = [rb]
        lengths = None if lengths is None else cast(b, lengths, I32)
        functions = activations(names, alphas, betas, defaults, n)
        node = b.node(op, gx, r, lengths, h0, *rest, reverse=reverse, activations=functions, **attrs)
        y, *last = node.outputs
        if layout:
            y, last = transpose(b, y, (2, 0, 1, 3)), [transpose(b, v, (1, 0, 2)) for v in last]
        return (y, *last)

    return build


_RNN, _GRU, _LSTM = (
    _recurrent("RNN", 1, ("Tanh",)),
    _recurrent("GRU", 3, ("Sigmoid", "Tanh")),
    _recurrent("LSTM", 4, ("Sigmoid", "Tanh", "Tanh")),
)


def rnn(
    b: Scope, x: Value, w: Value, r: Value, bias: Value | None = None, lengths: Value | None = None,
    h0: Value | None = None, *, activations: Activations | None = None, activation_alpha: Finites = (),
    activation_beta: Finites = (), clip: Finite = 0.0, direction: Direction = "forward", hidden_size: Count = 0,
    layout: int = 0, output_sequence: int = 0,
) -> tuple[Value, ...]:  # fmt: skip
    return _RNN(
        b,
        x,
        w,
        r,
        bias,
        lengths,
        h0,
        None,
        None,
        direction,
        layout,
        {"clip": clip},
        activations,
        activation_alpha,
        activation_beta,
    )


def gru(
    b: Scope, x: Value, w: Value, r: Value, bias: Value | None = None, lengths: Value | None = None,
    h0: Value | None = None, *, activations: Activations | None = None, activation_alpha: Finites = (),
    activation_beta: Finites = (), clip: Finite = 0.0, direction: Direction = "forward", hidden_size: Count = 0,
    layout: int = 0, linear_before_reset: int = 0, output_sequence: int = 0,
) -> tuple[Value, ...]:  # fmt: skip
    attrs = {"clip": clip, "linear_before_reset": bool(linear_before_reset)}
    return _GRU(
        b,
        x,
        w,
        r,
        bias,
        lengths,
        h0,
        None,
        None,
        direction,
        layout,
        attrs,
        activations,
        activation_alpha,
        activation_beta,
    )


def lstm(
    b: Scope, x: Value, w: Value, r: Value, bias: Value | None = None, lengths: Value | None = None,
    h0: Value | None = None, c0: Value | None = None, p: Value | None = None, *,
    activations: Activations | None = None, activation_alpha: Finites = (),
    activation_beta: Finites = (), clip: Finite = 0.0, direction: Direction = "forward", hidden_size: Count = 0,
    input_forget: int = 0, layout: int = 0, output_sequence: int = 0,
) -> tuple[Value, ...]:  # fmt: skip
    attrs = {"clip": clip, "input_forget": bool(input_forget)}
    return _LSTM(
        b, x, w, r, bias, lengths, h0, c0, p, direction, layout, attrs, activations, activation_alpha, activation_beta
    )


for _op, _importer in (("RNN", rnn), ("GRU", gru), ("LSTM", lstm)):
    add_importer(_op, _importer)
