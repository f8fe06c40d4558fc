"""Pointwise operators: one row each. Folding, grouping, every epilogue and the tests read these rows.

A row has a name, a C++ expression on operands in the compute type (functions of ``aitc/math.h``), and the same in
numpy. Operands broadcast; all have one element type, which is the result's too unless the row says otherwise. Small
floats are computed in float32, by the kernels and here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aitc.ir.dtype import BOOL, F32, DType
from aitc.ir.op import OPS, Kind, NoAttrs, Op
from aitc.ir.types import TensorType, broadcast

Types = Sequence["TensorType | None"]


def compute_dtype(dtype: DType) -> np.dtype:
    """The numpy type that expressions on ``dtype`` are computed in."""
    if dtype.is_float and dtype.bits < 32:
        return np.dtype(np.float32)
    return {
        ("int", 4): np.dtype(np.int8),
        ("uint", 4): np.dtype(np.uint8),
        ("int", 2): np.dtype(np.int8),
        ("uint", 2): np.dtype(np.uint8),
    }.get((dtype.kind, dtype.bits), dtype.numpy)


def widen(x: np.ndarray) -> np.ndarray:
    """A small float array as float32; others as they are."""
    return x.astype(np.float32) if x.dtype == np.float16 or x.dtype.kind not in "iufbcO" else x


def same_dtype(types: Types) -> DType:
    """The element type that all inputs share. Raises ValueError if they differ."""
    first = types[0]
    assert first is not None
    for t in types[1:]:
        if t is not None and t.dtype is not first.dtype:
            raise ValueError(
                f"operands have different element types: {' and '.join(str(t) for t in types if t is not None)}"
            )
    return first.dtype


def _infer_same(types: Types, attrs: Any) -> tuple[TensorType, ...]:
    dtype = same_dtype(types)
    return (TensorType(dtype, broadcast(*(t.shape for t in types if t is not None))),)


def _infer_bool(types: Types, attrs: Any) -> tuple[TensorType, ...]:
    same_dtype(types)
    return (TensorType(BOOL, broadcast(*(t.shape for t in types if t is not None))),)


def row(
    name: str, expr: str | Callable[[Any], str], numpy: Callable[..., Any], *, arity: int = 1, boolean: bool = False,
    attrs: type = NoAttrs, infer: Callable[[Types, Any], tuple[TensorType, ...]] | None = None, tolerance: float = 1.0,
    doc: str = "", flops: int = 1,
) -> Op:  # fmt: skip
    """Registers a pointwise op. ``numpy`` gets the operands, widened, and the attributes if the op has any."""

    def reference(*args: Any) -> np.ndarray:
        *arrays, a = args
        with np.errstate(all="ignore"):
            wide = [widen(np.asarray(x)) for x in arrays]
            y = numpy(*wide) if attrs is NoAttrs else numpy(*wide, a)
            return np.asarray(y).astype(np.bool_ if boolean else arrays[0].dtype, copy=False)

    def count(types: Sequence[TensorType], a: Any) -> Any:
        return TensorType(F32, broadcast(*(t.shape for t in types))).elems * flops

    return OPS.add(
        name,
        Op(
            name,
            Kind.POINTWISE,
            infer or (_infer_bool if boolean else _infer_same),
            reference,
            attrs,
            expr,
            (arity, arity),
            1,
            tolerance,
            doc,
            count,
        ),
    )


# --- attributes -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AlphaAttrs:
    alpha: float = 1.0


@dataclass(frozen=True, slots=True)
class AlphaBetaAttrs:
    alpha: float
    beta: float


@dataclass(frozen=True, slots=True)
class SeluAttrs:
    alpha: float = 1.67326319217681884765625
    gamma: float = 1.05070102214813232421875


@dataclass(frozen=True, slots=True)
class ShrinkAttrs:
    bias: float = 0.0
    lambd: float = 0.5


@dataclass(frozen=True, slots=True)
class GeluAttrs:
    approximate: str = "none"  # or "tanh"


@dataclass(frozen=True, slots=True)
class IsInfAttrs:
    positive: bool = True
    negative: bool = True


@dataclass(frozen=True, slots=True)
class ModAttrs:
    fmod: bool = False  # the sign of the dividend; otherwise that of the divisor


@dataclass(frozen=True, slots=True)
class ShiftAttrs:
    left: bool = True


# --- numpy that numpy lacks -------------------------------------------------------------------------------------------

_erf_each = np.frompyfunc(math.erf, 1, 1)


def erf(x: np.ndarray) -> np.ndarray:
    """The error function, exact to the last place of x's type."""
    return np.asarray(_erf_each(x.astype(np.float64)), dtype=np.float64).astype(x.dtype)


def sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e)).astype(x.dtype)


def softplus(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def gelu(x: np.ndarray, a: GeluAttrs) -> np.ndarray:
    if a.approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi).astype(x.dtype) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + erf(x * np.asarray(np.sqrt(0.5), x.dtype)))


def _divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind not in "iu":
        return np.divide(x, y)
    safe = np.where(y == 0, 1, y)
    quotient = np.floor_divide(x, safe)
    truncated = np.where((x % safe != 0) & ((x < 0) != (safe < 0)), quotient + 1, quotient)
    return np.where(y == 0, 0, truncated)


def _mod(x: np.ndarray, y: np.ndarray, a: ModAttrs) -> np.ndarray:
    if x.dtype.kind in "iu":
        y = np.where(y == 0, 1, y)
    return np.fmod(x, y) if a.fmod else np.mod(x, y)


def _pow(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind in "iu":
        return np.where(
            y < 0,
            np.where(x == 1, 1, np.where(x == -1 if x.dtype.kind == "i" else False, np.where(y % 2 == 0, 1, -1), 0)),
            np.power(x, np.maximum(y, 0)),
        )
    return np.power(x, y)


def _shift(x: np.ndarray, y: np.ndarray, a: ShiftAttrs) -> np.ndarray:
    return np.left_shift(x, y) if a.left else np.right_shift(x, y)


def _isinf(x: np.ndarray, a: IsInfAttrs) -> np.ndarray:
    return (np.isposinf(x) & a.positive) | (np.isneginf(x) & a.negative)


def _literal(x: float) -> str:
    """A double literal; functions of math.h convert it to their own type, so nothing is lost."""
    if math.isinf(x):
        return "INFINITY" if x > 0 else "-INFINITY"
    return repr(float(x))


def _call(function: str, *fields: str) -> Callable[[Any], str]:
    def text(a: Any) -> str:
        return f"{function}({{0}}, {', '.join(_literal(getattr(a, f)) for f in fields)})"

    return text


# --- one operand ------------------------------------------------------------------------------------------------------

row("Abs", "abs_({0})", np.abs)
row("Neg", "-{0}", np.negative)
row("Sign", "sign_({0})", np.sign)
row("Ceil", "ceil_({0})", np.ceil)
row("Floor", "floor_({0})", np.floor)
row("Round", "round_({0})", np.rint, doc="To the nearest integer, halves to even.")
row("Reciprocal", "reciprocal({0})", lambda x: 1 / x)
row("Sqrt", "sqrt_({0})", np.sqrt)
row("Rsqrt", "rsqrt_({0})", lambda x: 1 / np.sqrt(x), doc="1 / sqrt(x).")
row("Exp", "exp_({0})", np.exp, flops=8)
row("Log", "log_({0})", np.log, flops=8)
row("Sin", "sin_({0})", np.sin, flops=8)
row("Cos", "cos_({0})", np.cos, flops=8)
row("Tan", "tan_({0})", np.tan, flops=16)
row("Asin", "asin_({0})", np.arcsin, flops=16)
row("Acos", "acos_({0})", np.arccos, flops=16)
row("Atan", "atan_({0})", np.arctan, flops=16)
row("Sinh", "sinh_({0})", np.sinh, flops=16)
row("Cosh", "cosh_({0})", np.cosh, flops=16)
row("Tanh", "tanh_({0})", np.tanh, flops=8)
row("Asinh", "asinh_({0})", np.arcsinh, flops=16)
row("Acosh", "acosh_({0})", np.arccosh, flops=16)
row("Atanh", "atanh_({0})", np.arctanh, flops=16)
row("Erf", "erf_({0})", erf, flops=8)
row("Sigmoid", "sigmoid({0})", sigmoid, flops=8)
row("Softplus", "softplus({0})", softplus, flops=16)
row("Softsign", "softsign({0})", lambda x: x / (1 + np.abs(x)), flops=3)
row("Relu", "relu({0})", lambda x: np.maximum(x, 0))
row(
    "LeakyRelu",
    _call("leaky_relu", "alpha"),
    lambda x, a: np.where(x < 0, np.asarray(a.alpha, x.dtype) * x, x),
    attrs=AlphaAttrs,
)
row(
    "ThresholdedRelu",
    _call("thresholded_relu", "alpha"),
    lambda x, a: np.where(x > a.alpha, x, np.zeros_like(x)),
    attrs=AlphaAttrs,
)
row(
    "Elu",
    _call("elu", "alpha"),
    lambda x, a: np.where(x < 0, a.alpha * np.expm1(np.minimum(x, 0)), x),
    attrs=AlphaAttrs,
    flops=8,
)
row(
    "Celu",
    _call("celu", "alpha"),
    lambda x, a: np.maximum(x, 0) + np.minimum(0, a.alpha * np.expm1(np.minimum(x, 0) / a.alpha)),
    attrs=AlphaAttrs,
    flops=8,
)
row(
    "Selu",
    _call("selu", "alpha", "gamma"),
    lambda x, a: a.gamma * np.where(x <= 0, a.alpha * np.expm1(np.minimum(x, 0)), x),
    attrs=SeluAttrs,
    flops=8,
)
row(
    "Shrink",
    _call("shrink", "bias", "lambd"),
    lambda x, a: np.where(
        x < -a.lambd,
        x + np.asarray(a.bias, x.dtype),
        np.where(x > a.lambd, x - np.asarray(a.bias, x.dtype), np.zeros_like(x)),
    ),
    attrs=ShrinkAttrs,
)
row(
    "HardSigmoid",
    _call("hard_sigmoid", "alpha", "beta"),
    lambda x, a: np.clip(np.asarray(a.alpha, x.dtype) * x + np.asarray(a.beta, x.dtype), 0, 1),
    attrs=AlphaBetaAttrs,
    flops=2,
)
row(
    "HardSwish",
    "hard_swish({0})",
    lambda x: x * np.clip(x * np.asarray(1 / 6, x.dtype) + np.asarray(0.5, x.dtype), 0, 1),
    flops=3,
)
row("Mish", "mish({0})", lambda x: x * np.tanh(softplus(x)), flops=16)
row("Gelu", lambda a: "gelu_tanh({0})" if a.approximate == "tanh" else "gelu({0})", gelu, attrs=GeluAttrs, flops=12)
row("Silu", "silu({0})", lambda x: x * sigmoid(x), flops=9, doc="x * sigmoid(x).")
row("Not", "!{0}", np.logical_not)
row("BitwiseNot", "~{0}", np.bitwise_not)
row("IsNaN", "is_nan({0})", np.isnan, boolean=True)
row(
    "IsInf",
    lambda a: f"is_inf({{0}}, {str(a.positive).lower()}, {str(a.negative).lower()})",
    _isinf,
    boolean=True,
    attrs=IsInfAttrs,
)

# --- two operands -----------------------------------------------------------------------------------------------------

row("Add", "{0} + {1}", np.add, arity=2)
row("Sub", "{0} - {1}", np.subtract, arity=2)
row("Mul", "{0} * {1}", np.multiply, arity=2)
row("Div", "div_({0}, {1})", _divide, arity=2, doc="Integers truncate; an integer divided by zero gives 0.")
row("Pow", "pow_({0}, {1})", _pow, arity=2, flops=16)
row("Mod", lambda a: "fmod_({0}, {1})" if a.fmod else "mod_({0}, {1})", _mod, arity=2, attrs=ModAttrs, flops=4)
row("Min", "min_({0}, {1})", np.minimum, arity=2, doc="NaN if either operand is.")
row("Max", "max_({0}, {1})", np.maximum, arity=2, doc="NaN if either operand is.")
row("And", "{0} && {1}", np.logical_and, arity=2)
row("Or", "{0} || {1}", np.logical_or, arity=2)
row("Xor", "{0} != {1}", np.logical_xor, arity=2)
row("BitwiseAnd", "{0} & {1}", np.bitwise_and, arity=2)
row("BitwiseOr", "{0} | {1}", np.bitwise_or, arity=2)
row("BitwiseXor", "{0} ^ {1}", np.bitwise_xor, arity=2)
row(
    "BitShift",
    lambda a: "shift_left({0}, {1})" if a.left else "shift_right({0}, {1})",
    _shift,
    arity=2,
    attrs=ShiftAttrs,
)
row("Equal", "{0} == {1}", np.equal, arity=2, boolean=True)
row("Less", "{0} < {1}", np.less, arity=2, boolean=True)
row("LessOrEqual", "{0} <= {1}", np.less_equal, arity=2, boolean=True)
row("Greater", "{0} > {1}", np.greater, arity=2, boolean=True)
row("GreaterOrEqual", "{0} >= {1}", np.greater_equal, arity=2, boolean=True)
row(
    "PRelu",
    "prelu({0}, {1})",
    lambda x, slope: np.where(x < 0, slope * x, x),
    arity=2,
    doc="slope * x where x is negative.",
)


# --- Where and Cast: rules of their own -------------------------------------------------------------------------------
