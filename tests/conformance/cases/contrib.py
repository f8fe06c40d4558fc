"""Operators of com.microsoft against onnxruntime, whose operators they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import onnx
from conformance.cases.case import Array, Case, onnxruntime_gives
from onnx import helper

from aitc.ir import dtype as dt

RNG = np.random.default_rng(7)


def f(*shape: int, scale: float = 1.0) -> Array:
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


def u8(*shape: int) -> Array:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def _case(
    op: str, inputs: Sequence[Array | None], attrs: Mapping[str, Any] | None = None, outputs: Sequence[int] = (0,),
    constants: Sequence[int] = (), tolerance: float = 2e-5, steps: int = 0, domain: str = "com.microsoft",
) -> Case:  # fmt: skip
    """One node. ``outputs`` and ``constants`` are numbers of outputs that are asked for and of inputs that are known. ``steps``: by how
    many units integers may differ, where both round what lies half way."""
    names = [f"i{k}" if v is not None else "" for k, v in enumerate(inputs)]
    given = {n: v for k, (n, v) in enumerate(zip(names, inputs)) if v is not None and k not in constants}
    node = helper.make_node(op, names, [f"o{k}" if k in outputs else "" for k in range(max(outputs) + 1)], domain=domain, **attrs or {})
    graph = helper.make_graph(
        [node],
        "contrib",
        [helper.make_tensor_value_info(n, dt.of(v).onnx, v.shape) for n, v in given.items()],
        [onnx.ValueInfoProto(name=f"o{k}") for k in outputs],
        [onnx.numpy_helper.from_array(inputs[k], names[k]) for k in constants],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    expected = list(onnxruntime_gives(model)(**given))
    return Case(op, model, [(list(given.values()), expected)], tolerance, tolerance, {}, steps)


B, S, H, D = 2, 5, 4, 16
W = H * D


def _gelus() -> Iterator[Case]:
    yield _case("FastGelu", [f(3, W), f(W)])
    yield _case("FastGelu", [f(3, W)])
    yield _case("BiasGelu", [f(3, W), f(W)])
    yield _case("Gelu", [f(3, W)])
    yield _case("QuickGelu", [f(3, W)], {"alpha": 1.5})


def _norms() -> Iterator[Case]:
    yield _case("SimplifiedLayerNormalization", [f(B, S, W), f(W)], {"epsilon": 1e-5, "axis": -1}, domain="")
    yield _case("SkipLayerNormalization", [f(B, S, W), f(B, S, W), f(W), f(W), f(W)], {"epsilon": 1e-5}, outputs=(0, 3))
    yield _case("SkipLayerNormalization", [f(B, S, W), f(B, S, W), f(W)], {"epsilon": 1e-5})
    yield _case("SkipSimplifiedLayerNormalization", [f(B, S, W), f(B, S, W), f(W)], {"epsilon": 1e-5}, outputs=(0, 3))


def _embedding() -> Iterator[Case]:
    ids, segments = (RNG.integers(0, n, (B, S)).astype(np.int32) for n in (11, 2))
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], np.int32)
    yield _case(
        "EmbedLayerNormalization",
        [ids, segments, f(11, W), f(16, W), f(2, W), f(W), f(W), mask],
        {"epsilon": 1e-5},
        outputs=(0, 1),
    )


def _attention(mask: str, causal: int) -> Iterator[Case]:
    masks = {
        "none": None, "lengths": np.array([5, 3], np.int32), "keys": np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], np.int32),
        "full": np.tril(np.ones((B, S, S), np.int32)),
    }  # fmt: skip
    yield _case(
        "Attention",
        [f(B, S, W), f(W, 3 * W, scale=0.125), f(3 * W), masks[mask]],
        {"num_heads": H, "unidirectional": causal},
        constants=(1, 2),
        tolerance=1e-4,
    )


def _multi_head_attention() -> Iterator[Case]:
    yield _case("MultiHeadAttention", [f(B, S, W), f(B, 7, W), f(B, 7, W)], {"num_heads": H})
    keys = np.array([[1] * 7, [1] * 4 + [0] * 3], np.int32)
    yield _case("MultiHeadAttention", [f(B, S, W), f(B, 7, W), f(B, 7, W), f(3 * W), keys], {"num_heads": H, "scale": 0.3})
    bias = f(B, H, S, S)
    yield _case(
        "MultiHeadAttention",
        [f(B, S, W), f(B, S, W), f(B, S, W), None, None, bias],
        {"num_heads": H, "unidirectional": 1},
    )
    past = [f(B, H, 3, D), f(B, H, 3, D)]
    yield _case(
        "MultiHeadAttention",
        [f(B, S, W), f(B, S, W), f(B, S, W), None, None, None, *past],
        {"num_heads": H},
        outputs=(0, 1, 2),
    )


def _rotary_embedding(interleaved: int) -> Iterator[Case]:
    cache = [f(16, D // 2), f(16, D // 2)]
    positions = RNG.integers(0, 16, (B, S))
    yield _case("RotaryEmbedding", [f(B, S, W), positions, *cache], {"interleaved": interleaved})
    yield _case("RotaryEmbedding", [f(B, H, S, D), np.array([3]), *cache], {"interleaved": interleaved})


def _group_query_attention(rotary: int, window: int) -> Iterator[Case]:
    attrs = {"num_heads": H, "kv_num_heads": 2, "do_rotary": rotary, "local_window_size": window}
    cache = [f(16, D // 2), f(16, D // 2)]
    prompt = [
        f(B, S, W),
        f(B, S, 2 * D),
        f(B, S, 2 * D),
        f(B, 2, 0, D),
        f(B, 2, 0, D),
        np.array([S - 1] * B, np.int32),
        np.array(S, np.int32),
    ]
    yield _case("GroupQueryAttention", [*prompt, *cache], attrs, outputs=(0, 1, 2))
    step = [
        f(B, 1, W),
        f(B, 1, 2 * D),
        f(B, 1, 2 * D),
        f(B, 2, 6, D),
        f(B, 2, 6, D),
        np.array([6, 6], np.int32),
        np.array(7, np.int32),
    ]
    yield _case("GroupQueryAttention", [*step, *cache], attrs, outputs=(0, 1, 2))


def _products() -> Iterator[Case]:
    yield _case("FusedMatMul", [f(B, 6, 5), f(B, 7, 6)], {"transA": 1, "transB": 1, "alpha": 0.5})
    yield _case("TransposeMatMul", [f(B, 6, 5), f(B, 6, 7)], {"transA": 1})
    yield _case("FusedMatMul", [f(5, B, 3, 6), f(B, 3, 6, 7)], {"transBatchA": 1})
    yield _case("FusedGemm", [f(4, 5), f(5, 6), f(6)], {"activation": "LeakyRelu", "activation_alpha": 0.2})
    yield _case(
        "FusedConv", [f(1, 3, 8, 8), f(4, 3, 3, 3), f(4)], {"activation": "Relu", "pads": [1, 1, 1, 1]}, tolerance=1e-4
    )


def _matmul_nbits(zeros: bool) -> Iterator[Case]:
    k, n, block = 96, 6, 32
    inputs = [f(3, k), u8(n, k // block, block // 2), f(n * (k // block)), u8(n * 2) if zeros else None]
    yield _case(
        "MatMulNBits",
        inputs,
        {"K": k, "N": n, "bits": 4, "block_size": block},
        constants=(1, 2, 3) if zeros else (1, 2),
        tolerance=1e-4,
    )


def one(x: float) -> np.ndarray:
    return np.array(x, np.float32)


def zero(x: int) -> np.ndarray:
    return np.array(x, np.uint8)


def _quantized_pointwise() -> Iterator[Case]:
    yield _case("QuantizeLinear", [f(3, 4), one(0.05), zero(100)], steps=1)
    yield _case("QuantizeLinear", [f(3, 4), np.float32([0.02, 0.05, 0.1]), np.uint8([3, 100, 128])], {"axis": 0}, steps=1)
    yield _case("DequantizeLinear", [u8(3, 4), one(0.05), zero(100)])
    yield _case("DequantizeLinear", [u8(3, 4), np.float32([0.02, 0.05, 0.1]), np.uint8([3, 100, 128])], {"axis": 0})
    operands = [u8(2, 3, 4), one(0.1), zero(120), u8(3, 4), one(0.07), zero(10)]
    yield _case("QLinearAdd", [*operands, one(0.2), zero(100)], steps=1)
    yield _case("QLinearMul", [*operands, one(0.9), zero(100)], steps=1)
    yield _case("QLinearSigmoid", [u8(5, 6), one(0.05), zero(128), one(1 / 256), zero(0)], constants=(1, 2, 3, 4), steps=1)
    yield _case(
        "QLinearLeakyRelu",
        [u8(5, 6), one(0.05), zero(128), one(0.05), zero(30)],
        {"alpha": 0.2},
        constants=(1, 2, 3, 4),
        steps=1,
    )
    yield _case(
        "QLinearConcat",
        [one(0.1), zero(3), u8(2, 3), one(0.1), zero(3), u8(2, 5), one(0.05), zero(7)],
        {"axis": 1},
        constants=(0, 1, 3, 4, 6, 7),
        steps=1,
    )
    yield _case(
        "QLinearGlobalAveragePool",
        [u8(1, 3, 4, 4), one(0.1), zero(3), one(0.05), zero(9)],
        {"channels_last": 0},
        steps=1,
    )
    yield _case(
        "QLinearSoftmax",
        [u8(2, 9), one(0.1), zero(3), one(1 / 256), zero(0)],
        {"axis": -1, "opset": 13},
        constants=(1, 2, 3, 4),
        steps=1,
    )


def _quantized_products() -> Iterator[Case]:
    x, w = [u8(4, 6), one(0.1), zero(120)], [u8(6, 5), one(0.07), zero(10)]
    yield _case("QGemm", [*x, *w, None, one(0.8), zero(99)], steps=1)
    yield _case("QGemm", [*x, *w, RNG.integers(-99, 99, 5).astype(np.int32)], {"alpha": 0.5})
    yield _case("MatMulIntegerToFloat", [x[0], w[0], x[1], w[1], x[2], w[2], f(5)])
    yield _case("DynamicQuantizeMatMul", [f(4, 6), w[0], w[1], w[2], f(5)], tolerance=1e-4)
    mask = np.array([5, 3], np.int32)
    yield _case(
        "QAttention",
        [u8(B, S, W), u8(W, 3 * W), f(3 * W), one(0.01), one(0.01), mask, zero(127), zero(128)],
        {"num_heads": H},
        tolerance=1e-4,
    )


def _cases() -> Iterator[Case]:
    yield from _gelus()
    yield from _norms()
    yield from _embedding()
    for mask, causal in product(("none", "lengths", "keys", "full"), (0, 1)):
        yield from _attention(mask, causal)
    yield from _multi_head_attention()
    for interleaved in (0, 1):
        yield from _rotary_embedding(interleaved)
    for rotary, window in product((0, 1), (-1, 3)):
        yield from _group_query_attention(rotary, window)
    yield from _products()
    for zeros in (False, True):
        yield from _matmul_nbits(zeros)
    yield from _quantized_pointwise()
    yield from _quantized_products()


CASES = [replace(c, name=f"{c.name}_{n}") for n, c in enumerate(_cases())]
