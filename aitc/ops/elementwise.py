"""ONNX's pointwise operators, made of the rows of ``pointwise.py``."""

from __future__ import annotations

from typing import Any

import numpy as np

from aitc.ir import dtype as dt
from aitc.ir.dtype import BOOL, F32, DType
from aitc.ir.graph import Value
from aitc.ops import declare, random
from aitc.ops.attribute import BitDirection, GeluForm, RoundMode, TypeName
from aitc.ops.declare import Scope, Unsupported, add_importer, dtype_of, numbers, onnx_op, scalar


def _unary(op: str) -> Any:
    def importer(b: Scope, x: Value) -> Value:
        return b.op(op, x)

    return importer


for _op in (
    "Abs", "Neg", "Sign", "Ceil", "Floor", "Round", "Reciprocal", "Sqrt", "Exp", "Log", "Sin", "Cos", "Tan", "Asin",
    "Acos", "Atan", "Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh", "Erf", "Sigmoid", "Softplus", "Softsign", "Relu",
    "HardSwish", "Mish", "Not", "BitwiseNot", "IsNaN",
):  # fmt: skip
    add_importer(_op, _unary(_op))


def legacy_broadcast(b: Scope, x: Value, y: Value, axis: int | None) -> Value:
    """Before opset 7, y was aligned with x from ``axis`` on instead of from the end."""
    if axis is None:
        return y
    return declare.reshape(b, y, (*y.shape, *([1] * (x.type.rank - axis - y.type.rank))))


def _binary(op: str) -> Any:
    def importer(b: Scope, x: Value, y: Value) -> Value:
        return b.op(op, x, y)

    return importer


def _old_binary(op: str) -> Any:
    def importer(b: Scope, x: Value, y: Value, *, axis: int | None = None, broadcast: int = 0) -> Value:
        return b.op(op, x, legacy_broadcast(b, x, y, axis if broadcast else None))

    return importer


for _op in ("Add", "Sub", "Mul", "Div", "And", "Or", "Xor", "Equal", "Less", "Greater"):
    add_importer(_op, _old_binary(_op))
    add_importer(_op, _binary(_op), since=7)
for _op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor", "LessOrEqual", "GreaterOrEqual"):
    add_importer(_op, _binary(_op))


@onnx_op("PRelu")
def prelu(b: Scope, x: Value, slope: Value) -> Value:
    if slope.type.rank == 1 and x.type.rank > 1 and slope.shape[0] != x.shape[-1] and slope.shape[0] in (x.shape[1], 1):
        slope = declare.along_channel(b, slope, x.type.rank)  # one slope a channel, as files of before opset 7 have it
    return b.op("PRelu", x, slope)


def power(b: Scope, x: Value, y: Value) -> Value:
    """x ** y in x's element type; a constant exponent of 2, 0.5, 1 or -1 becomes a Mul, Sqrt, nothing or Reciprocal."""
    exponent = numbers(y)
    if exponent is not None and exponent.size == 1 and x.type.rank >= y.type.rank:
        e = float(exponent.reshape(()).astype(np.float64))
        if e == 1:
            return x
        if e == 2:
            return b.op("Mul", x, x)
        if e == 0.5 and x.type.dtype.is_float:
            return b.op("Sqrt", x)
        if e == -1 and x.type.dtype.is_float:
            return b.op("Reciprocal", x)
    if x.type.dtype is y.type.dtype:
        return b.op("Pow", x, y)
    if x.type.dtype.is_float or y.type.dtype.is_integer:
        return b.op("Pow", x, b.op("Cast", y, to=x.type.dtype))
    wide = dt.F64 if x.type.dtype.bits > 16 or y.type.dtype is dt.F64 else F32
    return b.op("Cast", b.op("Pow", declare.cast(b, x, wide), declare.cast(b, y, wide)), to=x.type.dtype)


@onnx_op("Pow", since=7)
def pow_(b: Scope, x: Value, y: Value) -> Value:
    return power(b, x, y)


@onnx_op("Pow", since=1)
def pow_old(b: Scope, x: Value, y: Value, *, axis: int | None = None, broadcast: int = 0) -> Value:
    return power(b, x, legacy_broadcast(b, x, y, axis if broadcast else None))


@onnx_op("Mod")
def mod(b: Scope, x: Value, y: Value, *, fmod: int = 0) -> Value:
    return b.op("Mod", x, y, fmod=bool(fmod))


@onnx_op("BitShift")
def bit_shift(b: Scope, x: Value, y: Value, *, direction: BitDirection) -> Value:
    return b.op("BitShift", x, y, left=direction == "LEFT")


@onnx_op("IsInf")
def is_inf(b: Scope, x: Value, *, detect_negative: int = 1, detect_positive: int = 1) -> Value:
    return b.op("IsInf", x, positive=bool(detect_positive), negative=bool(detect_negative))


@onnx_op("LeakyRelu")
def leaky_relu(b: Scope, x: Value, *, alpha: float = 0.01) -> Value:
    return b.op("LeakyRelu", x, alpha=alpha)


@onnx_op("ThresholdedRelu")
def thresholded_relu(b: Scope, x: Value, *, alpha: float = 1.0) -> Value:
    return b.op("ThresholdedRelu", x, alpha=alpha)


@onnx_op("Elu")
def elu(b: Scope, x: Value, *, alpha: float = 1.0) -> Value:
    return b.op("Elu", x, alpha=alpha)


@onnx_op("Celu")
def celu(b: Scope, x: Value, *, alpha: float = 1.0) -> Value:
    return b.op("Celu", x, alpha=alpha)


@onnx_op("Selu")
def selu(
    b: Scope, x: Value, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875
) -> Value:
    return b.op("Selu", x, alpha=alpha, gamma=gamma)


@onnx_op("Shrink")
def shrink(b: Scope, x: Value, *, bias: float = 0.0, lambd: float = 0.5) -> Value:
    return b.op("Shrink", x, bias=bias, lambd=lambd)


@onnx_op("HardSigmoid")
def hard_sigmoid(b: Scope, x: Value, *, alpha: float = 0.2, beta: float = 0.5) -> Value:
    return b.op("HardSigmoid", x, alpha=alpha, beta=beta)


@onnx_op("Gelu")
def gelu(b: Scope, x: Value, *, approximate: GeluForm = "none") -> Value:
    return b.op("Gelu", x, approximate=approximate)


@onnx_op("Swish")
def swish(b: Scope, x: Value, *, alpha: float = 1.0) -> Value:
    if alpha == 1:
        return b.op("Silu", x)
    return b.op("Mul", x, b.op("Sigmoid", b.op("Mul", x, b.like(alpha, x))))


def _fold(op: str) -> Any:
    def importer(b: Scope, *values: Value) -> Value:
        result = values[0]
        for v in values[1:]:
            result = b.op(op, result, v)
        return result

    return importer


for _name, _op in (("Sum", "Add"), ("Max", "Max"), ("Min", "Min")):
    add_importer(_name, _fold(_op))


@onnx_op("Mean")
def mean(b: Scope, *values: Value) -> Value:
    total = _fold("Add")(b, *values)
    return total if len(values) == 1 else b.op("Mul", total, b.like(1 / len(values), total))


def clip_to(b: Scope, x: Value, low: Value | None, high: Value | None) -> Value:
    """Max with ``low``, then Min with ``high``, so that high wins where they cross."""
    if low is not None:
        x = b.op("Max", x, declare.reshape(b, low, ()))
    return x if high is None else b.op("Min", x, declare.reshape(b, high, ()))


@onnx_op("Clip", since=11)
def clip(b: Scope, x: Value, min: Value | None = None, max: Value | None = None) -> Value:
    return clip_to(b, x, min, max)


@onnx_op("Clip", since=1)
def clip_attribute(b: Scope, x: Value, *, min: float | None = None, max: float | None = None) -> Value:
    lowest, highest = -3.4028234663852886e38, 3.4028234663852886e38  # the defaults, which exporters also write out
    low = None if min is None or min <= lowest else b.like(min, x)
    high = None if max is None or max >= highest else b.like(max, x)
    return clip_to(b, x, low, high)


@onnx_op("BitCast")
def bit_cast(b: Scope, x: Value, *, to: int) -> Value:
    target = dtype_of(to)
    if target is dt.STRING or target.bits != x.type.dtype.bits:
        raise ValueError(f"the bits of {x.type} do not make {target}")
    return x if target is x.type.dtype else b.op("BitCast", x, to=target, source=x.type.dtype)


@onnx_op("Where")
def where(b: Scope, condition: Value, x: Value, y: Value) -> Value:
    return b.op("Where", condition, x, y)


def convert(b: Scope, x: Value, to: DType, saturate: bool = True, round_mode: RoundMode = "up") -> Value:
    if to is dt.STRING or x.type.dtype is dt.STRING:
        raise Unsupported(f"to = {to} of {x.type}: strings have no compiled form", "replace the strings by integers before the export")
    if round_mode not in ("up", "down", "nearest"):
        raise ValueError(f"round_mode {round_mode!r}")
    if x.type.dtype is to:
        return x
    return b.op("Cast", x, to=to, saturate=saturate, rounding=round_mode)


@onnx_op("Cast", since=6)
def cast(b: Scope, x: Value, *, to: int, saturate: int = 1, round_mode: RoundMode = "up") -> Value:
    return convert(b, x, dtype_of(to), bool(saturate), round_mode)


@onnx_op("Cast", since=1)
def cast_named(b: Scope, x: Value, *, to: TypeName) -> Value:
    from aitc.ops.small_float import ONNX_NAMES

    if to not in ONNX_NAMES:
        raise ValueError(f"to = {to!r} is not an element type")
    return convert(b, x, dt.BY_NAME[ONNX_NAMES[to]])


@onnx_op("CastLike")
def cast_like(b: Scope, x: Value, target: Value, *, saturate: int = 1, round_mode: RoundMode = "up") -> Value:
    return convert(b, x, target.type.dtype, bool(saturate), round_mode)


@onnx_op("Dropout", since=12)
def dropout(
    b: Scope, x: Value, ratio: Value | None = None, training_mode: Value | None = None, *, seed: int | None = None
) -> tuple[Value | None, ...]:
    if training_mode is None or (numbers(training_mode) is not None and not scalar(training_mode, "training_mode")):
        return x, _ones_mask(b, x) if b.wants(1) else None
    dropped, mask = random.dropout(b, x, b.constant(0.5, np.float32) if ratio is None else ratio, seed)
    if numbers(training_mode) is None:
        training = declare.reshape(b, training_mode, ())
        dropped, mask = b.op("Where", training, dropped, x), b.op("Or", mask, b.op("Not", training))
    return dropped, mask


@onnx_op("Dropout", since=1)
def dropout_old(b: Scope, x: Value, *, ratio: float = 0.5, is_test: int = 1) -> tuple[Value | None, ...]:
    return x, _ones_mask(b, x) if b.wants(1) else None


def _ones_mask(b: Scope, x: Value) -> Value:
    return b.op("Fill", value=True, shape=x.shape, dtype=BOOL)
