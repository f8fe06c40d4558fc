"""Operators of com.microsoft against onnxruntime, whose operators they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from aitc.importer.onnx import import_model
from aitc.ir import dtype as dt
from aitc.ir.interpret import interpret

RNG = np.random.default_rng(7)


def f(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


def u8(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def model_of(
    op: str,
    inputs: Sequence[np.ndarray | None],
    attrs: Mapping[str, Any],
    outputs: Sequence[int],
    constants: Sequence[int],
) -> onnx.ModelProto:
    names = [f"i{k}" if v is not None else "" for k, v in enumerate(inputs)]
    node = helper.make_node(
        op, names, [f"o{k}" if k in outputs else "" for k in range(max(outputs) + 1)], domain="com.microsoft", **attrs
    )
    graph = helper.make_graph(
        [node],
        "contrib",
        [
            helper.make_tensor_value_info(n, dt.of(v).onnx, v.shape)
            for k, (n, v) in enumerate(zip(names, inputs))
            if v is not None and k not in constants
        ],
        [onnx.ValueInfoProto(name=f"o{k}") for k in outputs],
        [onnx.numpy_helper.from_array(inputs[k], names[k]) for k in constants],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)], ir_version=9
    )


def check(
    op: str, inputs: Sequence[np.ndarray | None], attrs: Mapping[str, Any] | None = None, outputs: Sequence[int] = (0,),
    constants: Sequence[int] = (), tolerance: float = 2e-5, steps: float = 0.0,
) -> None:  # fmt: skip
    """``steps``: by how many units integers may differ, where both round what lies half way."""
    model = model_of(op, inputs, attrs or {}, outputs, constants)
    feed = {f"i{k}": v for k, v in enumerate(inputs) if v is not None and k not in constants}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    expected = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(
        None, feed
    )
    actual = interpret(import_model(model).graph, feed)
    for e, a in zip(expected, actual.values()):
        assert a.shape == e.shape and a.dtype == e.dtype
        wide = np.abs(a.astype(np.float64) - e.astype(np.float64))
        assert np.all(wide <= (steps if e.dtype.kind in "iu" else tolerance + tolerance * np.abs(e)))


B, S, H, D = 2, 5, 4, 16
W = H * D


def test_gelus() -> None:
    check("FastGelu", [f(3, W), f(W)])
    check("FastGelu", [f(3, W)])
    check("BiasGelu", [f(3, W), f(W)])
    check("Gelu", [f(3, W)])
    check("QuickGelu", [f(3, W)], {"alpha": 1.5})


def test_norms() -> None:
    check("SkipLayerNormalization", [f(B, S, W), f(B, S, W), f(W), f(W), f(W)], {"epsilon": 1e-5}, outputs=(0, 3))
    check("SkipLayerNormalization", [f(B, S, W), f(B, S, W), f(W)], {"epsilon": 1e-5})
    check("SkipSimplifiedLayerNormalization", [f(B, S, W), f(B, S, W), f(W)], {"epsilon": 1e-5}, outputs=(0, 3))


def test_embedding() -> None:
    ids, segments = (RNG.integers(0, n, (B, S)).astype(np.int32) for n in (11, 2))
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], np.int32)
    check(
        "EmbedLayerNormalization",
        [ids, segments, f(11, W), f(16, W), f(2, W), f(W), f(W), mask],
        {"epsilon": 1e-5},
        outputs=(0, 1),
    )


@pytest.mark.parametrize("mask", ["none", "lengths", "keys", "full"])
@pytest.mark.parametrize("causal", [0, 1])
def test_attention(mask: str, causal: int) -> None:
    masks = {
        "none": None, "lengths": np.array([5, 3], np.int32), "keys": np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], np.int32),
        "full": np.tril(np.ones((B, S, S), np.int32)),
    }  # fmt: skip
    check(
        "Attention",
        [f(B, S, W), f(W, 3 * W), f(3 * W), masks[mask]],
        {"num_heads": H, "unidirectional": causal},
        constants=(1, 2),
        tolerance=1e-4,
    )


def test_multi_head_attention() -> None:
    check("MultiHeadAttention", [f(B, S, W), f(B, 7, W), f(B, 7, W)], {"num_heads": H})
    keys = np.array([[1] * 7, [1] * 4 + [0] * 3], np.int32)
    check("MultiHeadAttention", [f(B, S, W), f(B, 7, W), f(B, 7, W), f(3 * W), keys], {"num_heads": H, "scale": 0.3})
    bias = f(B, H, S, S)
    check(
        "MultiHeadAttention",
        [f(B, S, W), f(B, S, W), f(B, S, W), None, None, bias],
        {"num_heads": H, "unidirectional": 1},
    )
    past = [f(B, H, 3, D), f(B, H, 3, D)]
    check(
        "MultiHeadAttention",
        [f(B, S, W), f(B, S, W), f(B, S, W), None, None, None, *past],
        {"num_heads": H},
        outputs=(0, 1, 2),
    )


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(interleaved: int) -> None:
    cache = [f(16, D // 2), f(16, D // 2)]
    positions = RNG.integers(0, 16, (B, S))
    check("RotaryEmbedding", [f(B, S, W), positions, *cache], {"interleaved": interleaved})
    check("RotaryEmbedding", [f(B, H, S, D), np.array([3]), *cache], {"interleaved": interleaved})


@pytest.mark.parametrize("rotary", [0, 1])
@pytest.mark.parametrize("window", [-1, 3])
def test_group_query_attention(rotary: int, window: int) -> None:
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
    check("GroupQueryAttention", [*prompt, *cache], attrs, outputs=(0, 1, 2))
    step = [
        f(B, 1, W),
        f(B, 1, 2 * D),
        f(B, 1, 2 * D),
        f(B, 2, 6, D),
        f(B, 2, 6, D),
        np.array([6, 6], np.int32),
        np.array(7, np.int32),
    ]
    check("GroupQueryAttention", [*step, *cache], attrs, outputs=(0, 1, 2))


def test_products() -> None:
    check("FusedMatMul", [f(B, 6, 5), f(B, 7, 6)], {"transA": 1, "transB": 1, "alpha": 0.5})
    check("FusedMatMul", [f(5, B, 3, 6), f(B, 3, 6, 7)], {"transBatchA": 1})
    check("FusedGemm", [f(4, 5), f(5, 6), f(6)], {"activation": "LeakyRelu", "activation_alpha": 0.2})
    check(
        "FusedConv", [f(1, 3, 8, 8), f(4, 3, 3, 3), f(4)], {"activation": "Relu", "pads": [1, 1, 1, 1]}, tolerance=1e-4
    )


@pytest.mark.parametrize("zeros", [False, True])
def test_matmul_nbits(zeros: bool) -> None:
    k, n, block = 96, 6, 32
    inputs = [f(3, k), u8(n, k // block, block // 2), f(n * (k // block)), u8(n * 2) if zeros else None]
    check(
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


def test_quantized_pointwise() -> None:
    operands = [u8(2, 3, 4), one(0.1), zero(120), u8(3, 4), one(0.07), zero(10)]
    check("QLinearAdd", [*operands, one(0.2), zero(100)], steps=1)
    check("QLinearMul", [*operands, one(0.9), zero(100)], steps=1)
    check("QLinearSigmoid", [u8(5, 6), one(0.05), zero(128), one(1 / 256), zero(0)], constants=(1, 2, 3, 4), steps=1)
    check(
        "QLinearLeakyRelu",
        [u8(5, 6), one(0.05), zero(128), one(0.05), zero(30)],
        {"alpha": 0.2},
        constants=(1, 2, 3, 4),
        steps=1,
    )
    check(
        "QLinearConcat",
        [one(0.1), zero(3), u8(2, 3), one(0.1), zero(3), u8(2, 5), one(0.05), zero(7)],
        {"axis": 1},
        constants=(0, 1, 3, 4, 6, 7),
        steps=1,
    )
    check(
        "QLinearGlobalAveragePool",
        [u8(1, 3, 4, 4), one(0.1), zero(3), one(0.05), zero(9)],
        {"channels_last": 0},
        steps=1,
    )
    check(
        "QLinearSoftmax",
        [u8(2, 9), one(0.1), zero(3), one(1 / 256), zero(0)],
        {"axis": -1, "opset": 13},
        constants=(1, 2, 3, 4),
        steps=1,
    )


def test_quantized_products() -> None:
    x, w = [u8(4, 6), one(0.1), zero(120)], [u8(6, 5), one(0.07), zero(10)]
    check("QGemm", [*x, *w, None, one(0.8), zero(99)], steps=1)
    check("QGemm", [*x, *w, RNG.integers(-99, 99, 5).astype(np.int32)], {"alpha": 0.5})
    check("MatMulIntegerToFloat", [x[0], w[0], x[1], w[1], x[2], w[2], f(5)])
    check("DynamicQuantizeMatMul", [f(4, 6), w[0], w[1], w[2], f(5)], tolerance=1e-4)
    mask = np.array([5, 3], np.int32)
    check(
        "QAttention",
        [u8(B, S, W), u8(W, 3 * W), f(3 * W), one(0.01), one(0.01), mask, zero(127), zero(128)],
        {"num_heads": H},
        tolerance=1e-4,
    )
