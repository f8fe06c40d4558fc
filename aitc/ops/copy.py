"""Copy: the same elements at another place, in a chosen storage order. Scheduling inserts it where a kernel cannot read a view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aitc.ir.op import OPS, Kind, Op
from aitc.ir.types import TensorType


@dataclass(frozen=True, slots=True)
class CopyAttrs:
    order: tuple[int, ...] | None = None


def _infer(types: Sequence[TensorType | None], attrs: CopyAttrs) -> tuple[TensorType, ...]:
    (x,) = types
    assert x is not None
    return (TensorType(x.dtype, x.shape, attrs.order),)


def _reference(x: np.ndarray, attrs: CopyAttrs) -> np.ndarray:
    return np.array(x)


COPY = OPS.add(
    "Copy",
    Op(
        "Copy",
        Kind.POINTWISE,
        _infer,
        _reference,
        CopyAttrs,
        expr="{0}",
        doc="its input, stored anew in the given order",
    ),
)
