"""Which nodes keep float32 when a model is narrowed to 16 bits, and why. One table, read by choose_precision and shown to users."""

from __future__ import annotations

import math
import re
from collections.abc import Collection

import ml_dtypes
import numpy as np

from aitc.errors import AitcError, Diagnostic, Exit
from aitc.ir.dtype import DType
from aitc.ir.graph import Node, Value
from aitc.ir.op import Kind
from aitc.passes.base import Ranges

_KINDS = {
    Kind.SEARCH: "compares or sorts",
    Kind.RECURRENT: "carries state from step to step",
    Kind.CONTROL: "control flow",
}
_OPS = {
    **dict.fromkeys(("Exp", "Pow", "Reciprocal", "Rsqrt", "Sinh", "Cosh", "Tan"), "may overflow"),
    **dict.fromkeys(
        ("Log", "Sqrt", "Softplus", "Sin", "Cos", "Asin", "Acos", "Asinh", "Acosh", "Atanh"),
        "needs its argument exactly",
    ),
    **dict.fromkeys(
        (
            "Floor",
            "Ceil",
            "Round",
            "Mod",
            "Sign",
            "Equal",
            "Less",
            "LessOrEqual",
            "Greater",
            "GreaterOrEqual",
            "IsNaN",
            "IsInf",
        ),
        "decides on the last digit",
    ),
    **dict.fromkeys(("CumSum", "Range"), "adds up along an axis"),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), "quantises"),
    **dict.fromkeys(("GridSample", "RoiAlign", "STFT", "DFT"), "has coordinates among its inputs"),
}
_LARGE = frozenset({"Rsqrt", "Reciprocal", "Exp"})
_SUMS = frozenset({"sum", "sumsquare", "l1", "l2", "prod", "logsum", "logsumexp"})
_FOLLOWS = frozenset({Kind.POINTWISE, Kind.REDUCE, Kind.VIEW, Kind.MOVE})
_EXCLUDES = 1e38  # masks of float32's least number are not values of the model
_MASK = -1e4  # a number below this in a large constant excludes scores: it may become the least finite number


class Keeper:
    """Matches ``--keep-fp32``: the name of an ONNX node, an op type, or a regular expression on either. Raises AitcError (USAGE)."""

    def __init__(self, patterns: Collection[str]):
        self.patterns = tuple(patterns)
        self.used: set[str] = set()
        self._compiled = []
        for p in self.patterns:
            try:
                self._compiled.append(re.compile(p))
            except re.error as e:
                raise AitcError(
                    Diagnostic("P01", f"--keep-fp32 {p!r} is no regular expression: {e}"), Exit.USAGE
                ) from e

    def __call__(self, node: Node) -> bool:
        names = {node.op.name, *(loc.name for loc in node.locs), *(loc.op_type for loc in node.locs)} - {""}
        for pattern, compiled in zip(self.patterns, self._compiled):
            if pattern in names or any(compiled.fullmatch(n) for n in names):
                self.used.add(pattern)
                return True
        return False


def reason_to_keep(
    node: Node, narrow: DType, source: DType, kept: Collection[Value], exact: Collection[Value], keeper: Keeper
) -> str:
    """Why ``node`` stays in ``source``, or "". ``kept`` are values that stayed, ``exact`` those computed from integers alone."""
    if keeper(node):
        return "asked for"
    if node.op.kind in _KINDS or node.bodies:
        return _KINDS.get(node.op.kind, "control flow")
    if node.op.name in _OPS:
        return _OPS[node.op.name]
    if node.op.name == "Reduce" and node.attrs.function in _SUMS:
        return "adds up along an axis"
    if node.op.name == "Mul" and node.inputs[0] is node.inputs[1]:
        return "may overflow"
    if node.op.name == "Cast" and not node.input.type.dtype.is_float:
        return "converts integers" if node.attrs.to is source else ""
    floats = [v for v in node.inputs if v is not None and v.type.dtype.is_float]
    if any(v.const is not None and _unfit(v.const, narrow) for v in floats):
        return f"has a constant that {narrow} cannot hold"
    computed = [v for v in floats if v.const is None]
    if not computed:
        return ""
    if node.op.name == "Div" and node.inputs[1] in kept:
        return "divides by what is kept"
    if node.op.name == "Mul" and any(
        v in kept and v.producer is not None and v.producer.op.name in _LARGE for v in computed
    ):
        return "multiplies by what may be large"
    follows = node.op.kind in _FOLLOWS or _outer_product(node)
    if follows and all(v in exact for v in computed):
        return "computed from integers"
    if node.op.kind in _FOLLOWS and all(v in kept or v.producer is None for v in computed):
        return "follows what is kept" if any(v in kept for v in computed) else "computed from inputs"
    return ""


def reaches_too_far(node: Node, narrow: DType, ranges: Ranges, exact: Collection[Value]) -> str:
    """Why ``node`` stays wide: a value that it reads or makes is larger than a quarter of what ``narrow`` holds, as was measured
    or estimated, or belongs to a residual stream that nobody measured (infinity); else "".

    Masks (computed from integers, or near the end of float32) do not count: they are brought into range when they are narrowed.
    """
    if not ranges.largest:
        return ""
    limit = float(ml_dtypes.finfo(narrow.numpy).max) / 4
    values = [v for v in (*node.inputs, *node.outputs) if v is not None and v.const is None]
    sizes = [_largest(v, ranges) for v in values if v not in exact]
    if math.inf in sizes:
        return "a residual stream, not measured"
    worst = max((r for r in sizes if r < _EXCLUDES), default=0.0)
    return f"{'reaches' if ranges.measured else 'may reach'} {worst:.1e}" if worst > limit else ""


def _largest(v: Value, ranges: Ranges) -> float:
    """The magnitude of ``v``. A view that the passes made has no name that was measured: it is as large as what it views."""
    while v.name not in ranges.largest and v.producer is not None and v.producer.op.kind is Kind.VIEW:
        v = v.producer.input
    return ranges.largest.get(v.name, 0.0)


def is_exact(node: Node, exact: Collection[Value]) -> bool:
    """Whether a kept node's floats are computed from integers and constants alone."""
    if node.op.name == "Cast":
        return not node.input.type.dtype.is_float or node.input in exact
    if node.op.name == "Range":
        return True
    computed = [v for v in node.inputs if v is not None and v.type.dtype.is_float and v.const is None]
    return bool(computed) and all(v in exact for v in computed)


def _outer_product(node: Node) -> bool:
    """A MatMul that adds up nothing: positions times frequencies."""
    return node.op.name == "MatMul" and node.input.shape[-1] == 1


def _unfit(array: np.ndarray, narrow: DType) -> bool:
    """Whether narrowing loses what a constant is for: it overflows, or a single number vanishes (an epsilon)."""
    if array.size == 0 or array.dtype == object or narrow.name != "f16" or array.dtype.itemsize <= narrow.bytes:
        return False
    least, greatest = _extremes(array)
    if greatest > 65504 and np.isfinite(greatest):
        return True
    if -np.inf < least < -65504 and (array.size == 1 or bool(np.any(array[array < -65504] > _MASK * 10))):
        return True
    return array.size == 1 and 0 < abs(greatest) < 6.2e-5


def _extremes(array: np.ndarray) -> tuple[float, float]:
    """The least and the greatest finite element; of a single number, and where none is finite, itself."""
    least, greatest = float(array.min()), float(array.max())
    if array.size > 1 and not (np.isfinite(least) and np.isfinite(greatest)):
        finite = array[np.isfinite(array)]
        return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    return least, greatest


def overflows(array: np.ndarray | None, narrow: DType) -> bool:
    """Whether a constant has finite elements beyond the narrow type's range."""
    if array is None or array.dtype == object or array.size == 0 or array.dtype.itemsize <= narrow.bytes:
        return False
    limit = float(ml_dtypes.finfo(narrow.numpy).max)
    least, greatest = _extremes(array)
    return any(np.isfinite(x) and abs(x) > limit for x in (least, greatest))
