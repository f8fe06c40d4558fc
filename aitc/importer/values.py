"""Inputs that --value makes constants: a sampling rate, a flag that decides which branch of an If there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, prod
from typing import Union

import numpy as np
import onnx

from aitc.ir import dtype as dt
from aitc.ir.dtype import DType

Number = Union[bool, int, float]
Value = Union[Number, Sequence[Number]]  # a list is a tensor of one axis, or of others that hold as many


@dataclass(frozen=True, slots=True)
class Bound:
    """An input that is a constant of the compiled model. ``index`` is its place among the model's inputs."""

    name: str
    index: int
    array: np.ndarray

    def json(self) -> dict[str, object]:
        """As ``<name>.json`` has it."""
        a = self.array
        return {"name": self.name, "index": self.index, "dtype": dt.of(a).name, "shape": list(a.shape), "value": a.tolist()}

    @staticmethod
    def of_json(raw: dict[str, object]) -> Bound:
        array = np.asarray(raw["value"]).astype(dt.BY_NAME[str(raw["dtype"])].numpy).reshape(raw["shape"])  # type: ignore[call-overload]
        return Bound(str(raw["name"]), int(str(raw["index"])), array)


def fitting(proto: onnx.ValueInfoProto, value: Value) -> np.ndarray:
    """``value`` as the tensor that an input takes. Raises ValueError where its type or its shape is another."""
    dtype = dt.BY_ONNX.get(proto.type.tensor_type.elem_type)
    if dtype is None or dtype.kind not in ("bool", "int", "uint", "float"):
        raise ValueError(f"its element type is {dtype or 'none'}; numbers and bools alone can be given")
    items = [value] if isinstance(value, (bool, int, float)) else list(value)
    flat = np.array([_element(v, dtype) for v in items], dtype.numpy)
    tensor = proto.type.tensor_type
    if not tensor.HasField("shape"):
        return flat.reshape(() if isinstance(value, (bool, int, float)) else -1)
    sizes = [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]
    if None in sizes and prod(s for s in sizes if s is not None) > 0:  # one open axis takes what there is, others are 1
        rest, last = len(items) // prod(s for s in sizes if s is not None), len(sizes) - 1 - sizes[::-1].index(None)
        sizes = [s if s is not None else rest if i == last else 1 for i, s in enumerate(sizes)]
    shape = tuple(s or 0 for s in sizes)
    if prod(shape) != len(items):
        declared = ", ".join(str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim)
        raise ValueError(f"it takes {dtype}[{declared}], and {len(items)} element{'s are' if len(items) != 1 else ' is'} given")
    return flat.reshape(shape)


def _element(value: Number, dtype: DType) -> Number:
    if dtype.kind == "bool":
        if value not in (0, 1):
            raise ValueError(f"it is bool, and {value} is neither true nor false")
        return bool(value)
    if isinstance(value, bool):
        raise ValueError(f"it is {dtype}, and {str(value).lower()} is no number")
    if dtype.is_integer:
        if not isinstance(value, int):
            raise ValueError(f"it is {dtype}, and {value} is no integer")
        low, high = (0, 2**dtype.bits - 1) if dtype.kind == "uint" else (-(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1)
        if not low <= value <= high:
            raise ValueError(f"it is {dtype}, which holds {low} to {high}, and not {value}")
        return value
    try:
        with np.errstate(over="ignore"):
            kept = float(np.array(float(value)).astype(dtype.numpy))
    except OverflowError:  # of an integer
        kept = inf
    if abs(value) < inf and not isfinite(kept):
        raise ValueError(f"{value} is more than {dtype} holds")
    return value
