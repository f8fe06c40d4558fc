"""Mixtures of experts: feed-forward networks of which each token takes a few."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from aitc.ir import dim as d
from aitc.ir.graph import Value
from aitc.ops import declare
from aitc.ops.attribute import Finite, Positive, Range
from aitc.ops.contract import matmul
from aitc.ops.contrib import MS
from aitc.ops.declare import Scope, Unsupported, onnx_op, transpose
from aitc.ops.search import top_k

ExpertActivation = Literal["relu", "gelu", "silu", "swiglu", "identity", "relu2", "geglu"]
Fusion = Annotated[int, Range(0, 2)]  # gate and linear half: of two products, interleaved, one behind the other


def _halves(b: Scope, x: Value, fusion: int) -> tuple[Value, Value]:
    """What one product gives as gate and linear half, along the last axis."""
    *rest, width = x.shape
    half, axis = d.floordiv(width, 2), len(rest)
    if isinstance(width, int) and width % 2:
        raise ValueError(f"fc1 gives {width} values, which are no gate and linear half of one size")
    if fusion == 2:
        return declare.slice_axis(b, x, axis, 0, half), declare.slice_axis(b, x, axis, half, half)
    pairs = declare.reshape(b, x, (*rest, half, 2))
    first, second = (declare.reshape(b, declare.slice_axis(b, pairs, axis + 1, i, 1), (*rest, half)) for i in (0, 1))
    return first, second


def _swiglu(b: Scope, gate: Value, up: Value, alpha: float, beta: float, limit: float | None, after: bool) -> Value:
    """gate sigmoid(alpha gate) (up + beta); ``limit`` clamps the linear half, and the gate before or ``after`` that."""

    def below(x: Value) -> Value:
        return x if limit is None else b.op("Min", x, b.like(limit, x))

    if limit is not None:
        up = b.op("Max", below(up), b.like(-limit, up))
    gate = gate if after else below(gate)
    inner = gate if alpha == 1 else b.op("Mul", gate, b.like(alpha, gate))
    gate = b.op("Mul", gate, b.op("Sigmoid", inner))
    gate = below(gate) if after else gate
    return b.op("Mul", gate, up if beta == 0 else b.op("Add", up, b.like(beta, up)))


def _plain(b: Scope, x: Value, activation: str) -> Value:
    if activation == "gelu":  # of onnxruntime's experts by tanh
        return b.op("Gelu", x, approximate="tanh")
    if activation == "relu2":
        x = b.op("Relu", x)
        return b.op("Mul", x, x)
    return x if activation == "identity" else b.op({"relu": "Relu", "silu": "Silu"}[activation], x)


def gates(b: Scope, router: Value, k: int, normalize: bool) -> Value:
    """How much of each expert a token takes, [T, E]: the softmax of the scores (over the best ``k`` if these shall add up
    to 1), and 0 for all but the best ``k``."""
    experts = router.shape[1]
    if isinstance(experts, int) and k > experts:
        raise ValueError(f"k = {k} of {experts} experts")
    _, chosen = top_k(b, router, k, 1, True)
    weights = router if normalize else b.op("Softmax", router, axis=1, log=False)
    weights = b.op("GatherElements", weights, chosen, axis=1)
    if normalize:
        weights = b.op("Softmax", weights, axis=1, log=False)
    none = b.op("Fill", value=0.0, shape=router.shape, dtype=router.type.dtype)
    return b.op("ScatterElements", none, chosen, weights, axis=1, reduction="none")


@onnx_op("MoE", domain=MS)
def mixture_of_experts(
    b: Scope, x: Value, router_probs: Value, fc1: Value, fc1_bias: Value | None, fc2: Value,
    fc2_bias: Value | None = None, fc3: Value | None = None, fc3_bias: Value | None = None, *,
    activation_alpha: Finite = 1.0, activation_beta: Finite = 0.0, activation_type: ExpertActivation = "relu",
    k: Positive = 1, normalize_routing_weights: int = 0, swiglu_fusion: Fusion = 0, swiglu_limit: float | None = None,
    swiglu_limit_after_activation: int = 0, use_sparse_mixer: int = 0,
) -> Value:  # fmt: skip
    """Every expert computes every token, and what a token does not take of it counts 0 times: products of fixed sizes."""
    if use_sparse_mixer:
        raise Unsupported("use_sparse_mixer = 1", "route with the softmax of the scores: use_sparse_mixer = 0")
    if swiglu_limit is not None and not swiglu_limit > 0:
        raise ValueError(f"attribute swiglu_limit is {swiglu_limit}, and must be more than 0")
    limit = None if swiglu_limit is None or math.isinf(swiglu_limit) else swiglu_limit
    gated = activation_type in ("swiglu", "geglu")
    if gated and (fc3 is None) != bool(swiglu_fusion):
        raise ValueError(f"activation_type {activation_type!r} with swiglu_fusion = {swiglu_fusion} {'and' if fc3 else 'without'} fc3")
    width = x.shape[-1]
    tokens = d.product(x.shape[:-1])

    def product(v: Value, w: Value, bias: Value | None) -> Value:
        """[1 or E, T, K] by the experts' [E, N, K]: [E, T, N]."""
        y = matmul(b, v, transpose(b, w, (0, 2, 1)))
        return y if bias is None else b.op("Add", y, declare.unsqueeze(b, bias, (1,)))

    rows = declare.reshape(b, x, (1, tokens, width))
    hidden = product(rows, fc1, fc1_bias)
    if gated:
        gate, up = _halves(b, hidden, swiglu_fusion) if fc3 is None else (hidden, product(rows, fc3, fc3_bias))
        if activation_type == "swiglu":
            after = bool(swiglu_limit_after_activation)
            hidden = _swiglu(b, gate, up, activation_alpha, activation_beta, limit, after)
        else:
            hidden = b.op("Mul", b.op("Gelu", gate, approximate="tanh"), up)
    else:
        hidden = _plain(b, hidden, activation_type)
        if fc3 is not None:
            hidden = b.op("Mul", hidden, product(rows, fc3, fc3_bias))
    share = declare.unsqueeze(b, transpose(b, gates(b, router_probs, k, bool(normalize_routing_weights)), (1, 0)), (2,))
    parts = b.op("Mul", product(hidden, fc2, fc2_bias), share)
    return declare.reshape(b, b.op("Reduce", parts, function="sum", axes=(0,), keepdims=False), x.shape)
