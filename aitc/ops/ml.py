"""The numeric operators of ai.onnx.ml: linear models, scalers, encoders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from aitc.ir import dim as d
from aitc.ir.dtype import F32, F64, I64
from aitc.ir.graph import Value
from aitc.ops import declare
from aitc.ops.attribute import Datum, Labels, PostTransform, Words
from aitc.ops.declare import Scope, Unsupported, cast, onnx_op

ML = "ai.onnx.ml"


def real(b: Scope, x: Value) -> Value:
    """``x`` as floats: what is not double becomes float32."""
    return x if x.type.dtype is F64 else cast(b, x, F32)


def post_transformed(b: Scope, x: Value, how: str) -> Value:
    """Scores [rows, classes] as ai.onnx.ml's post_transform says."""
    if how == "NONE":
        return x
    if how == "LOGISTIC":
        return b.op("Sigmoid", x)
    if how == "SOFTMAX":
        return b.op("Softmax", x, axis=x.type.rank - 1, log=False)
    if how == "SOFTMAX_ZERO":  # zeros stay (nearly) zero
        top = b.op("Reduce", x, function="max", axes=(x.type.rank - 1,), keepdims=True)
        far = b.op("Greater", b.op("Abs", x), b.like(1e-7, x))
        e = b.op("Where", far, b.op("Exp", b.op("Sub", x, top)), b.op("Mul", x, b.op("Exp", b.op("Neg", top))))
        total = b.op("Reduce", e, function="sum", axes=(x.type.rank - 1,), keepdims=True)
        return b.op("Where", b.op("Equal", total, b.like(0, total)), b.like(0.5, x), b.op("Div", e, total))
    if how == "PROBIT":
        return probit(b, x)
    raise ValueError(f"post_transform {how!r}")


def probit(b: Scope, x: Value) -> Value:
    """sqrt(2) times the inverse error function of 2 x - 1, in Winitzki's approximation, which ONNX uses."""
    t = b.op("Sub", b.op("Mul", x, b.like(2, x)), b.like(1, x))
    log = b.op("Log", b.op("Mul", b.op("Sub", b.like(1, t), t), b.op("Add", b.like(1, t), t)))
    v = b.op("Add", b.op("Mul", log, b.like(0.5, log)), b.like(2 / (math.pi * 0.147), log))
    root = b.op("Sqrt", b.op("Sub", b.op("Mul", v, v), b.op("Mul", log, b.like(1 / 0.147, log))))
    y = b.op("Sqrt", b.op("Sub", root, v))
    return b.op("Mul", b.op("Mul", y, b.op("Sign", t)), b.like(1.41421356, y))


def labelled(b: Scope, scores: Value, labels: Sequence[int]) -> Value:
    """The label of each row's best class."""
    best = b.op("ArgReduce", scores, function="max", axis=1, keepdims=False)
    if tuple(labels) == tuple(range(len(labels))):
        return best
    return b.op("Gather", b.constant(np.array(labels, np.int64)), best, axis=0)


@onnx_op("LinearRegressor", domain=ML)
def linear_regressor(
    b: Scope,
    x: Value,
    *,
    coefficients: tuple[float, ...] = (),
    intercepts: tuple[float, ...] = (),
    post_transform: PostTransform = "NONE",
    targets: int = 1,
) -> Value:
    y = _linear(b, real(b, x), coefficients, intercepts, targets)
    return post_transformed(b, y, post_transform)


def _linear(b: Scope, x: Value, coefficients: tuple[float, ...], intercepts: tuple[float, ...], rows: int) -> Value:
    if x.type.rank == 1:
        x = declare.reshape(b, x, (1, x.shape[0]))
    weights = np.array(coefficients, x.type.dtype.numpy).reshape(rows, -1).T
    y = b.op("MatMul", x, b.constant(np.ascontiguousarray(weights)))
    return b.op("Add", y, b.constant(np.array(intercepts, x.type.dtype.numpy))) if intercepts else y


@onnx_op("LinearClassifier", domain=ML)
def linear_classifier(
    b: Scope, x: Value, *, coefficients: tuple[float, ...], classlabels_ints: tuple[int, ...] | None = None,
    classlabels_strings: Labels | None = None, intercepts: tuple[float, ...] = (), multi_class: int = 0,
    post_transform: PostTransform = "NONE",
) -> tuple[Value, ...]:  # fmt: skip
    if classlabels_strings and not classlabels_ints:
        raise Unsupported(f"classlabels_strings of {len(classlabels_strings)} strings", "export the classifier with integer labels")
    x = real(b, x)
    features = x.shape[-1]
    if not isinstance(features, int):
        raise Unsupported(f"{features} features, a symbolic number", declare.binding(features))
    rows = len(coefficients) // features
    scores = _linear(b, x, coefficients, intercepts, rows)
    labels = classlabels_ints or tuple(range(max(rows, 2)))
    if rows == 1 and len(labels) == 2:
        scores = b.op("Concat", b.op("Neg", scores), scores, axis=1)
    scores = post_transformed(b, scores, post_transform)
    if scores.shape[1] == 1:
        over = b.op("GreaterOrEqual", scores, b.like(0 if post_transform == "NONE" else 0.5, scores))
        chosen = b.op("Where", over, b.constant(labels[0], np.int64), b.constant(0, np.int64))
        return declare.reshape(b, chosen, (chosen.shape[0],)), scores
    return labelled(b, scores, labels), scores


@onnx_op("SVMRegressor", domain=ML)
def svm_regressor(
    b: Scope, x: Value, *, coefficients: tuple[float, ...] = (), kernel_params: tuple[float, ...] = (),
    kernel_type: Literal["LINEAR", "POLY", "RBF", "SIGMOID"] = "LINEAR",
    n_supports: int = 0, one_class: int = 0, post_transform: PostTransform = "NONE", rho: tuple[float, ...] = (),
    support_vectors: tuple[float, ...] = (),
) -> Value:  # fmt: skip
    """As onnxruntime has it: without support vectors linear, whatever ``kernel_type`` says, and never a ``post_transform``."""
    x = cast(b, x, F32)
    if n_supports:
        alike = _alike(b, x, np.array(support_vectors, np.float32).reshape(n_supports, -1), kernel_type, kernel_params)
        y = b.op("MatMul", alike, b.constant(np.array(coefficients, np.float32).reshape(-1, 1)))
    else:
        y = _linear(b, x, coefficients, (), 1)
    if rho:
        y = b.op("Add", y, b.constant(np.array(rho[:1], np.float32)))
    if not one_class:
        return y
    return b.op("Where", b.op("Greater", y, b.like(0, y)), b.constant(1, np.float32), b.constant(-1, np.float32))


def _alike(b: Scope, x: Value, vectors: np.ndarray, kind: str, params: tuple[float, ...]) -> Value:
    """The kernel function of each row and each vector."""
    gamma, offset, degree = params if len(params) == 3 else (0.0, 0.0, 0.0)  # onnxruntime: as many or none
    if kind == "RBF":
        apart = b.op("Sub", declare.unsqueeze(b, x, (1,)), b.constant(vectors[None]))
        square = b.op("Reduce", b.op("Mul", apart, apart), function="sum", axes=(2,), keepdims=False)
        return b.op("Exp", b.op("Mul", square, b.like(-gamma, x)))
    product = b.op("MatMul", x, b.constant(np.ascontiguousarray(vectors.T)))
    if kind == "LINEAR":
        return product
    product = b.op("Add", b.op("Mul", product, b.like(gamma, x)), b.like(offset, x))
    if kind == "POLY":
        return b.op("Pow", product, b.like(degree, x))
    if kind == "SIGMOID":
        return b.op("Tanh", product)
    raise ValueError(f"kernel_type {kind!r}")


@onnx_op("Scaler", domain=ML)
def scaler(b: Scope, x: Value, *, offset: tuple[float, ...] = (), scale: tuple[float, ...] = ()) -> Value:
    x = cast(b, x, F32)
    if offset:
        x = b.op("Sub", x, b.constant(np.array(offset, np.float32)))
    return b.op("Mul", x, b.constant(np.array(scale, np.float32))) if scale else x


@onnx_op("Normalizer", domain=ML)
def normalizer(b: Scope, x: Value, *, norm: Literal["MAX", "L1", "L2"] = "MAX") -> Value:
    x = cast(b, x, F32)
    axis = x.type.rank - 1
    if norm == "MAX":
        size = b.op("Reduce", b.op("Abs", x), function="max", axes=(axis,), keepdims=True)
    else:
        size = b.op("Reduce", x, function=norm.lower(), axes=(axis,), keepdims=True)
    return b.op("Div", x, b.op("Max", size, b.like(1e-30, size)))


@onnx_op("Binarizer", domain=ML)
def binarizer(b: Scope, x: Value, *, threshold: float = 0.0) -> Value:
    return cast(b, b.op("Greater", x, b.like(threshold, x)), x.type.dtype)


@onnx_op("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(b: Scope, x: Value, indices: Value) -> Value:
    count = indices.type.elems
    lead = (1,) if x.type.rank == 1 else x.shape[:-1]
    y = b.op("Gather", x, declare.reshape(b, indices, (count,)), axis=x.type.rank - 1)
    return declare.reshape(b, y, (*lead, count))


@onnx_op("FeatureVectorizer", domain=ML)
def feature_vectorizer(b: Scope, *values: Value, inputdimensions: tuple[int, ...] = ()) -> Value:
    parts = []
    for v, width in zip(values, inputdimensions or [v.shape[-1] for v in values]):
        v = cast(b, declare.reshape(b, v, (v.shape[0], d.product(v.shape[1:]))), F32)
        have = v.shape[1]
        if not isinstance(have, int) or not isinstance(width, int):
            raise Unsupported(f"an input of {have} columns, a symbolic number", declare.binding(have, width))
        v = declare.slice_axis(b, v, 1, 0, min(have, width))
        parts.append(b.op("Pad", v, b.like(0, v), pads=(0, 0, 0, width - have), mode="constant") if width > have else v)
    return parts[0] if len(parts) == 1 else b.op("Concat", *parts, axis=1)


@onnx_op("Imputer", domain=ML)
def imputer(
    b: Scope, x: Value, *, imputed_value_floats: tuple[float, ...] = (), imputed_value_int64s: tuple[int, ...] = (),
    replaced_value_float: float = 0.0, replaced_value_int64: int = 0,
) -> Value:  # fmt: skip
    values = imputed_value_floats or imputed_value_int64s
    if not values:
        raise ValueError("no imputed values")
    old = replaced_value_float if imputed_value_floats else replaced_value_int64
    missing = b.op("IsNaN", x) if isinstance(old, float) and math.isnan(old) else b.op("Equal", x, b.like(old, x))
    return b.op("Where", missing, b.constant(np.array(values).astype(x.type.dtype.numpy)), x)


@onnx_op("OneHotEncoder", domain=ML)
def one_hot_encoder(
    b: Scope, x: Value, *, cats_int64s: tuple[int, ...] = (), cats_strings: Words = (), zeros: int = 1
) -> Value:
    """A row of zeros for what is of no category; ``zeros`` = 0, which makes that an error, cannot be checked here."""
    if not cats_int64s:
        raise Unsupported(f"cats_strings of {len(cats_strings)} strings", "replace the strings by integers before the export")
    same = b.op(
        "Equal", declare.unsqueeze(b, cast(b, x, I64), (x.type.rank,)), b.constant(np.array(cats_int64s, np.int64))
    )
    return cast(b, same, F32)


@onnx_op("LabelEncoder", domain=ML, since=2)
def label_encoder(
    b: Scope, x: Value, *, default_float: float = -0.0, default_int64: int = -1, default_string: Datum = "_Unused",
    default_tensor: np.ndarray | None = None, keys_floats: tuple[float, ...] = (), keys_int64s: tuple[int, ...] = (),
    keys_strings: Words = (), keys_tensor: np.ndarray | None = None, values_floats: tuple[float, ...] = (),
    values_int64s: tuple[int, ...] = (), values_strings: Words = (), values_tensor: np.ndarray | None = None,
) -> Value:  # fmt: skip
    """Compares with every key: of equal keys the last counts."""
    keys = np.array(keys_floats or keys_int64s, x.type.dtype.numpy) if keys_tensor is None else keys_tensor
    if values_tensor is not None:
        values = values_tensor
        default = np.zeros((), values.dtype) if default_tensor is None else default_tensor.reshape(())
    elif values_floats:
        values, default = np.array(values_floats, np.float32), np.array(default_float, np.float32)
    else:
        values, default = np.array(values_int64s, np.int64), np.array(default_int64, np.int64)
    if keys_strings or values_strings or keys.dtype == object or values.dtype == object:
        kinds = ("strings" if given or array.dtype == object else str(array.dtype) for given, array in ((keys_strings, keys), (values_strings, values)))
        raise Unsupported("keys of {}, values of {}".format(*kinds), "replace the strings by integers before the export")
    count = len(keys)
    wide = declare.unsqueeze(b, x, (x.type.rank,))
    same = b.op("Equal", wide, b.constant(keys.astype(x.type.dtype.numpy)))
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        same = b.op("Or", same, b.op("And", b.op("IsNaN", wide), b.constant(np.isnan(keys))))
    place = b.op("Where", same, b.constant(np.arange(count)), b.constant(-1, np.int64))
    best = b.op("Reduce", place, function="max", axes=(x.type.rank,), keepdims=False)
    table = np.concatenate([values.ravel(), default.reshape(1)])
    index = b.op("Where", b.op("Less", best, b.constant(0, np.int64)), b.constant(count, np.int64), best)
    return b.op("Gather", b.constant(table), index, axis=0)
