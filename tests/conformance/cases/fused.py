"""Operators of com.microsoft that image generators, mixtures of experts, packed batches and quantized networks carry. Those
that ONNX Runtime has no kernel for on the CPU are beside float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from conformance.cases.case import Array, Case, onnxruntime_gives
from conformance.cases.contrib import one, zero
from onnx import helper

from aitc.ir import dtype as dt

RNG = np.random.default_rng(11)
Expect = Callable[..., Any]  # the inputs in the node's order (None: absent) -> the output, or a tuple of them


def f(*shape: int, scale: float = 1.0) -> Array:
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


def bytes_(*shape: int, lo: int = 0, hi: int = 256, dtype: Any = np.uint8) -> Array:
    return RNG.integers(lo, hi, shape).astype(dtype)


def _case(
    op: str, inputs: Sequence[Array | None], attrs: Mapping[str, Any] | None = None, outputs: Sequence[int] = (0,),
    constants: Sequence[int] = (), expect: Expect | None = None, tolerance: float = 2e-5, steps: int = 0,
) -> Case:  # fmt: skip
    """One node, as ``_case`` of contrib.py. ``expect`` is its float64 arithmetic, where ONNX Runtime cannot say."""
    names = [f"i{k}" if v is not None else "" for k, v in enumerate(inputs)]
    given = {n: v for k, (n, v) in enumerate(zip(names, inputs)) if v is not None and k not in constants}
    node = helper.make_node(op, names, [f"o{k}" if k in outputs else "" for k in range(max(outputs) + 1)], domain="com.microsoft", **attrs or {})
    graph = helper.make_graph(
        [node],
        "fused",
        [helper.make_tensor_value_info(n, dt.of(v).onnx, v.shape) for n, v in given.items()],
        [onnx.ValueInfoProto(name=f"o{k}") for k in outputs],
        [onnx.numpy_helper.from_array(inputs[k], names[k]) for k in constants],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    if expect is None:
        expected = list(onnxruntime_gives(model)(**given))
    else:
        wide = [v.astype(np.float64) if v is not None and v.dtype.kind == "f" else v for v in inputs]
        result = expect(*wide, **attrs or {})
        expected = list(result) if isinstance(result, tuple) else [result]
        floating = next(v.dtype for v in inputs if v is not None and v.dtype.kind == "f")
        expected = [e.astype(floating) if e.dtype.kind == "f" else e for e in expected]
    return Case(op, model, [(list(given.values()), expected)], tolerance, tolerance, {}, steps)


# --- image generators


def erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def fast_gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gelu(x: Array) -> Array:
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def _group_norm(
    x: Array, gamma: Array, beta: Array, groups: int, activation: int, channels_last: int = 1, epsilon: float = 1e-5
) -> Array:
    y = np.moveaxis(x, -1, 1) if channels_last else x
    n, c, *space = y.shape
    rows = y.reshape(n, groups, -1)
    rows = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + epsilon)
    per = (1, c) + (1,) * len(space)
    y = rows.reshape(y.shape) * gamma.reshape(per) + beta.reshape(per)
    y = y * sigmoid(y) if activation else y
    return np.moveaxis(y, 1, -1) if channels_last else y


def _skip_group_norm(x: Array, gamma: Array, beta: Array, skip: Array, bias: Array | None = None, **attrs: Any) -> Any:
    last = attrs.get("channels_last", 1)
    if skip.ndim == 2:
        skip = skip[:, None, None, :] if last else skip[:, :, None, None]
    total = x + skip
    if bias is not None:
        total = total + (bias if last else bias[:, None, None])
    return _group_norm(total, gamma, beta, **attrs), total


def _conv(x: Array, w: Array, pads: Sequence[int], strides: Sequence[int], dilations: Sequence[int], group: int) -> Array:
    """[N, C, H, W] by [M, C / group, h, w]."""
    x = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    m, per, *window = w.shape
    reach = [(k - 1) * dl + 1 for k, dl in zip(window, dilations)]
    out = [(s - r) // st + 1 for s, r, st in zip(x.shape[2:], reach, strides)]
    y = np.zeros((x.shape[0], m, *out))
    for i, j, k in product(range(m), range(out[0]), range(out[1])):
        g = i // (m // group)
        part = x[:, g * per : (g + 1) * per, j * strides[0] :, k * strides[1] :][:, :, : reach[0] : dilations[0], : reach[1] : dilations[1]]
        y[:, i, j, k] = (part * w[i]).sum((1, 2, 3))
    return y


def _nhwc(weights_last: bool) -> Expect:
    def expect(x: Array, w: Array, bias: Array | None = None, z: Array | None = None, **a: Any) -> Array:
        w = np.moveaxis(w, -1, 1) if weights_last else w
        y = _conv(
            np.moveaxis(x, -1, 1), w, a.get("pads", (0,) * 4), a.get("strides", (1, 1)), a.get("dilations", (1, 1)), a.get("group", 1)
        )
        y = np.moveaxis(y, 1, -1) + (0 if bias is None else bias) + (0 if z is None else z)
        return np.maximum(y, 0) if a.get("activation") == "Relu" else y

    return expect


def _bias_split_gelu(x: Array, bias: Array) -> Array:
    left, right = np.split(x + bias, 2, -1)
    return left * gelu(right)


def _image_layers() -> Iterator[Case]:
    for last, silu in product((0, 1), (0, 1)):
        shape = (2, 5, 3, 12) if last else (2, 12, 5, 3)
        attrs = {"groups": 4, "activation": silu, "channels_last": last}
        x, gamma, beta = f(*shape), f(12), f(12)
        yield _case("GroupNorm", [x, gamma, beta], {**attrs, "epsilon": 1e-3}, expect=_group_norm)
        for skip in (f(*shape), f(2, 12), f(2, 1, 1, 12) if last else f(2, 12, 1, 1)):
            bias = None if skip.ndim == 2 else f(12)
            yield _case("SkipGroupNorm", [x, gamma, beta, skip, bias], attrs, (0, 1), expect=_skip_group_norm)
    yield _case("GroupNorm", [f(2, 5, 3, 12).astype(np.float16), f(12), f(12)], {"groups": 3, "activation": 1}, expect=_group_norm, tolerance=4e-3)
    yield _case("BiasSplitGelu", [f(2, 5, 14), f(14)], expect=_bias_split_gelu)
    yield _case("BiasAdd", [f(2, 5, 14), f(14), f(2, 5, 14)], expect=lambda x, bias, skip: x + bias + skip)
    yield _case("GemmFastGelu", [f(2, 5, 7), f(7, 6), f(6)], expect=lambda x, w, bias: fast_gelu(x @ w + bias))
    yield _case("GemmFastGelu", [f(5, 7), f(7, 6)], expect=lambda x, w: fast_gelu(x @ w))
    yield _case("NhwcConv", [f(2, 7, 6, 3), f(5, 3, 2, 3), f(5)], {"pads": [1, 0, 1, 1], "strides": [2, 1]}, expect=_nhwc(True))
    yield _case("NhwcConv", [f(1, 7, 6, 4), f(6, 3, 3, 2)], {"group": 2, "dilations": [2, 1]}, expect=_nhwc(True))
    conv = [f(2, 7, 6, 3), f(5, 3, 3, 3), f(5), f(2, 7, 6, 5)]
    yield _case("NhwcFusedConv", conv, {"pads": [1, 1, 1, 1], "activation": "Relu"}, expect=_nhwc(False))
    yield _case("NhwcMaxPool", [bytes_(2, 7, 6, 3)], {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 2]})
    yield _case("NhwcMaxPool", [bytes_(1, 7, 6, 3, dtype=np.int8)], {"kernel_shape": [2, 2], "dilations": [2, 1]})


# --- experts


def _experts(activation: str, k: int, normalize: int, fusion: int = 0, three: bool = False, **attrs: Any) -> Case:
    width, inner, experts = 8, 6, 5
    wide = 2 * inner if fusion else inner
    inputs = [
        f(2, 3, width), f(6, experts), f(experts, wide, width), f(experts, wide), f(experts, width, inner), f(experts, width),
        *([f(experts, inner, width), f(experts, inner)] if three else []),
    ]  # fmt: skip
    given = {"activation_type": activation, "k": k, "normalize_routing_weights": normalize, "swiglu_fusion": fusion, **attrs}
    computes = fusion < 2 and not three and activation in ("relu", "gelu", "silu", "identity", "swiglu")  # of ONNX Runtime
    return _case("MoE", inputs, given, expect=None if computes else _mixture, tolerance=1e-4)


def _mixture(
    x: Array, router: Array, fc1: Array, fc1_bias: Array, fc2: Array, fc2_bias: Array, fc3: Array | None = None,
    fc3_bias: Array | None = None, *, activation_type: str, k: int, normalize_routing_weights: int, swiglu_fusion: int,
    swiglu_limit: float = math.inf, activation_alpha: float = 1.0, activation_beta: float = 0.0,
    swiglu_limit_after_activation: int = 0,
) -> Array:  # fmt: skip
    rows, y = x.reshape(-1, x.shape[-1]), np.zeros((router.shape[0], x.shape[-1]))
    for t, scores in enumerate(router):
        best = np.argsort(-scores, kind="stable")[:k]
        share = np.exp(scores - scores.max())
        share = share / (share[best] if normalize_routing_weights else share).sum()
        for e in best:
            h = fc1[e] @ rows[t] + fc1_bias[e]
            up = None if fc3 is None else fc3[e] @ rows[t] + fc3_bias[e]
            if swiglu_fusion:
                h, up = (h[0::2], h[1::2]) if swiglu_fusion == 1 else np.split(h, 2)
            if activation_type == "swiglu":
                after = swiglu_limit_after_activation
                h = h if after else np.minimum(h, swiglu_limit)
                h = h * sigmoid(activation_alpha * h)
                h = np.minimum(h, swiglu_limit) if after else h
                up = np.clip(up, -swiglu_limit, swiglu_limit) + activation_beta
            else:
                h = {
                    "relu": lambda v: np.maximum(v, 0), "relu2": lambda v: np.maximum(v, 0) ** 2, "silu": lambda v: v * sigmoid(v),
                    "geglu": fast_gelu, "gelu": fast_gelu, "identity": lambda v: v,
                }[activation_type](h)  # fmt: skip
            y[t] += share[e] * (fc2[e] @ (h if up is None else h * up) + fc2_bias[e])
    return y.reshape(x.shape)


def _mixtures() -> Iterator[Case]:
    for activation, k, normalize in (("relu", 1, 0), ("silu", 2, 1), ("identity", 3, 0), ("gelu", 2, 0)):
        yield _experts(activation, k, normalize)
    for attrs in ({}, {"swiglu_limit": 0.7, "activation_alpha": 1.702, "activation_beta": 1.0}):
        yield _experts("swiglu", 2, 1, 1, **attrs)
    yield _experts("swiglu", 2, 0, 2, swiglu_limit=0.7)
    yield _experts("swiglu", 2, 0, 2, swiglu_limit=0.3, swiglu_limit_after_activation=1)
    yield _experts("swiglu", 2, 1, three=True)
    yield _experts("silu", 2, 1, three=True)
    yield _experts("relu2", 2, 1)
    for fusion in (1, 2):
        yield _experts("geglu", 2, 1, fusion)


# --- packed batches

COUNTS = (3, 1, 4)
ROOM = 5  # rows of a sequence with padding


def _offsets() -> tuple[Array, Array]:
    places = np.arange(len(COUNTS) * ROOM).reshape(len(COUNTS), ROOM)
    real = [p for row, n in zip(places, COUNTS) for p in row[:n]]
    rest = [p for row, n in zip(places, COUNTS) for p in row[n:]]
    return np.int32([*real, *rest]).reshape(places.shape), np.int32([0, *np.cumsum(COUNTS)])


def _within(q: Array, k: Array, v: Array, ends: Array, heads: int, bias: Array | None, scale: float | None) -> Array:
    out = np.zeros_like(v)
    for s, (lo, hi) in enumerate(pairwise(ends)):
        for h in range(heads):
            a, b, c = (m[lo:hi].reshape(hi - lo, heads, -1)[:, h] for m in (q, k, v))
            scores = a @ b.T * (scale or 1 / math.sqrt(a.shape[1]))
            if bias is not None:
                scores = scores + bias[s % bias.shape[0], h % bias.shape[1], : hi - lo, : hi - lo]
            e = np.exp(scores - scores.max(-1, keepdims=True))
            out[lo:hi].reshape(hi - lo, heads, -1)[:, h] = e / e.sum(-1, keepdims=True) @ c
    return out


def _packed(
    query: Array, key: Array | None, value: Array | None, shift: Array | None, offset: Array, ends: Array,
    bias: Array | None = None, *, num_heads: int, scale: float | None = None,
) -> Array:  # fmt: skip
    if query.ndim == 4:
        query, key, value = (query[:, :, i].reshape(query.shape[0], -1) for i in range(3))
    assert key is not None and value is not None
    if shift is not None:
        cut = np.cumsum([query.shape[1], key.shape[1]])
        query, key, value = (p + s for p, s in zip((query, key, value), np.split(shift, cut)))
    return _within(query, key, value, ends, num_heads, bias, scale)


def _packed_attention(
    x: Array, weights: Array, shift: Array, offset: Array, ends: Array, bias: Array | None = None, *, num_heads: int,
    qkv_hidden_sizes: Sequence[int] | None = None, scale: float | None = None,
) -> Array:  # fmt: skip
    sizes = qkv_hidden_sizes or [weights.shape[1] // 3] * 3
    q, k, v = np.split(x @ weights + shift, np.cumsum(sizes)[:2], -1)
    return _within(q, k, v, ends, num_heads, bias, scale)


def _restored(x: Array, offset: Array) -> Array:
    y = np.zeros((offset.size, x.shape[1]))
    y[offset.reshape(-1)[: len(x)]] = x
    return y.reshape(*offset.shape, -1)


def _packing() -> Iterator[Case]:
    offset, ends = _offsets()
    tokens, heads, width = sum(COUNTS), 2, 8
    q, k, v = f(tokens, width), f(tokens, width), f(tokens, 12)
    attrs = {"num_heads": heads}
    yield _case("PackedMultiHeadAttention", [q, k, v, None, offset, ends], attrs, expect=_packed)
    yield _case("PackedMultiHeadAttention", [q, k, v, f(28), offset, ends, f(3, heads, ROOM, ROOM)], attrs, expect=_packed)
    joined = [f(tokens, heads, 3, 4), None, None, None, offset, ends, f(1, 1, ROOM, ROOM)]
    yield _case("PackedMultiHeadAttention", joined, {**attrs, "scale": 0.3}, expect=_packed)
    yield _case("PackedAttention", [f(tokens, 6), f(6, 24), f(24), offset, ends], attrs, expect=_packed_attention)
    sizes = {"qkv_hidden_sizes": [8, 8, 12]}
    yield _case("PackedAttention", [f(tokens, 6), f(6, 28), f(28), offset, ends, f(3, 1, ROOM, ROOM)], {**attrs, **sizes}, expect=_packed_attention)
    yield _case("RestorePadding", [f(tokens, width), offset], expect=_restored)
    x = f(len(COUNTS), ROOM, width)
    rows = np.concatenate([part[:n] for part, n in zip(x, COUNTS)])
    packed = lambda x, counts: (rows.astype(np.float64), offset, ends, np.int32([max(COUNTS)]))  # noqa: E731
    yield _case("RemovePadding", [x, np.int32(COUNTS)], outputs=(0, 1, 2, 3), expect=packed)


# --- quantized


def _mean(x: Array, scale: Array, shift: Array | None, y_scale: Array, y_shift: Array | None = None, *, axes: Sequence[int], keepdims: int) -> Array:
    real = (x.astype(np.float64) - (0 if shift is None else float(shift))) * float(scale)
    y = np.rint(real.mean(tuple(axes), keepdims=bool(keepdims)) / float(y_scale)) + (0 if y_shift is None else float(y_shift))
    limits = np.iinfo(x.dtype)
    return np.clip(y, limits.min, limits.max).astype(x.dtype)


def _quantized() -> Iterator[Case]:
    x = [bytes_(2, 3, 7, 6), one(0.1), zero(100), one(0.08), zero(90)]
    for attrs in (
        {"kernel_shape": [3, 2]},
        {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1]},
        {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 2], "count_include_pad": 1},
        {"kernel_shape": [2, 2], "strides": [2, 4], "ceil_mode": 1},
        {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
    ):
        for last in (0, 1):
            data = np.moveaxis(x[0], 1, -1) if last else x[0]
            yield _case("QLinearAveragePool", [np.ascontiguousarray(data), *x[1:]], {**attrs, "channels_last": last}, constants=(1, 2, 3, 4), steps=1)
    signed = [bytes_(2, 3, 4, lo=-128, hi=128, dtype=np.int8), one(0.1), np.array(-3, np.int8), one(0.05), np.array(7, np.int8)]
    for axes, keep in product(((1, 2), (-1,)), (0, 1)):
        yield _case("QLinearReduceMean", signed, {"axes": axes, "keepdims": keep}, expect=_mean, steps=1)
    yield _case("QLinearReduceMean", [x[0], x[1], None, x[3]], {"axes": (2, 3), "keepdims": 1}, expect=_mean, steps=1)
    pair = [bytes_(3, 4), one(0.1), zero(120), bytes_(3, 4), one(0.07), zero(10)]
    chosen = RNG.integers(0, 2, (3, 4)).astype(bool)
    yield _case("QLinearWhere", [chosen, *pair, one(0.12), zero(90)], constants=(2, 3, 5, 6, 7, 8), steps=1)
    conv = [one(0.1), zero(120), bytes_(5, 3, 3, 3), one(0.02), zero(100), one(0.5), zero(90), RNG.integers(-99, 99, 5).astype(np.int32)]
    for last in (0, 1):
        data = bytes_(2, 7, 6, 3) if last else bytes_(2, 3, 7, 6)
        yield _case("QLinearConv", [data, *conv], {"pads": [1, 1, 1, 1], "channels_last": last}, constants=tuple(range(1, 9)), steps=1)


def _tables() -> Iterator[Case]:
    """Rows, and an index that is in no row."""
    rows, width, block = 6, 64, 16
    indices = np.int64([[0, 5, -1], [2, -6, 3]])
    scales = f(rows, width // block, scale=0.1)
    for bits, zeros in product((2, 4, 8), (False, True)):
        inputs = [bytes_(rows, width * bits // 8), indices, scales]
        attrs = {"bits": bits, "block_size": block, "gather_axis": 0, "quantize_axis": 1}
        known = bytes_(rows, -(-(width // block) * bits // 8))
        yield _case("GatherBlockQuantized", [*inputs, *([known] if zeros else [])], attrs, constants=(0, 2, 3) if zeros else (0, 2))
    for name, lo, hi in (("int4", -8, 8), ("uint4", 0, 16)):
        narrow = np.dtype(getattr(ml_dtypes, name))
        table = RNG.integers(lo, hi, (rows, 40)).astype(narrow)
        points = RNG.integers(lo, hi, (rows, 3)).astype(narrow)
        for zeros in (False, True):
            given = [table, indices, f(rows, 3, scale=0.1), *([points] if zeros else [])]
            yield _case("GatherBlockQuantized", given, {"block_size": block}, constants=(0, 2, 3) if zeros else (0, 2))
        deep = [RNG.integers(lo, hi, (3, rows, 20)).astype(narrow), np.int64([4, 1]), f(3, rows, 2, scale=0.1)]
        yield _case("GatherBlockQuantized", deep, {"block_size": block, "gather_axis": 1, "quantize_axis": 2}, constants=(0, 2))
        deep = [RNG.integers(lo, hi, (3, 32, 4)).astype(narrow), np.int64([[2], [1]]), f(3, 2, 4, scale=0.1)]
        yield _case("GatherBlockQuantized", deep, {"block_size": block, "gather_axis": -1, "quantize_axis": 1}, constants=(0, 2))
        deep = [RNG.integers(lo, hi, (32, 4)).astype(narrow), np.int64([20, 3, 31]), f(2, 4, scale=0.1)]
        yield _case("GatherBlockQuantized", deep, {"block_size": block, "gather_axis": 0, "quantize_axis": 0}, constants=(0, 2))


# --- matrices and views


def _matrices() -> Iterator[Case]:
    for n, batch in ((1, (3,)), (3, ()), (4, (2, 3)), (9, (2,))):
        x = f(*batch, n, n)
        yield _case("Inverse", [x], tolerance=2e-3)
    turned = np.float32([[0, 2, 0], [0, 0, 4], [5, 0, 0]])  # no pivot stands on its diagonal
    yield _case("Inverse", [turned], expect=np.linalg.inv)
    for metric in ("sqeuclidean", "euclidean"):
        yield _case("CDist", [f(5, 7), f(4, 7)], {"metric": metric}, tolerance=1e-4)
    near = f(3, 7) + np.float32(100)
    yield _case("CDist", [near, near + np.float32(0.01)], {"metric": "euclidean"}, expect=_distances, tolerance=1e-5)
    for upper, k in product((0, 1), (None, -1, 2)):
        yield _case("Trilu", [f(2, 4, 5), None if k is None else np.array(k, np.int64)], {"upper": upper}, constants=() if k is None else (1,))
    for mode, pads in (("constant", [[0, 1, 2, 0]]), ("constant", [1, -1, 0, 2]), ("reflect", [1, 2, 0, 1]), ("edge", [[1, 0, 3, 2]])):
        value = one(1.5) if mode == "constant" else None
        yield _case("Pad", [f(4, 5), np.array(pads, np.int64), value], {"mode": mode}, constants=(1,))
    yield _case("GatherND", [f(3, 4, 5), np.int64([[0, 1], [2, 3]])])


def _distances(x: Array, y: Array, metric: str) -> Array:
    return np.sqrt(((x[:, None] - y[None]) ** 2).sum(-1))


def _cases() -> Iterator[Case]:
    yield from _image_layers()
    yield from _mixtures()
    yield from _packing()
    yield from _quantized()
    yield from _tables()
    yield from _matrices()


CASES = [replace(c, name=f"{c.name}_{n}") for n, c in enumerate(_cases())]
