"""Core operators: what a node means, apart from how it is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from aitc.ir.types import TensorType
from aitc.registry import Registry


class Kind(Enum):
    """All that grouping looks at."""

    POINTWISE = "pointwise"  # one output element from one element of each (broadcast) input; described by ``expr``
    REDUCE = "reduce"
    CONTRACT = "contract"  # MatMul, Conv, ConvTranspose
    NORMALIZE = "normalize"  # Softmax, LayerNormalization
    ATTENTION = "attention"
    WINDOW = "window"  # pools, resize: each output element reads a few input elements
    VIEW = "view"  # an index map alone: Reshape, Transpose, Slice, Expand
    MOVE = "move"  # copies with an index map that a view cannot express: Concat, Pad, Gather, Scatter ...
    SEARCH = "search"  # TopK, NonZero, NonMaxSuppression ...
    RECURRENT = "recurrent"
    CONTROL = "control"  # If, Loop, Scan
    SOURCE = "source"  # no tensor inputs: Dims, Range, Fill, RandomNormal ...


@dataclass(frozen=True, slots=True)
class NoAttrs:
    """Attributes of an op that has none."""


Infer = Callable[[Sequence["TensorType | None"], Any], tuple[TensorType, ...]]
Reference = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Op:
    """A core operator.

    ``attrs`` is a frozen dataclass type; ``infer(input_types, attrs)`` gives the output types (ValueError says what is wrong with
    the inputs); ``reference(*arrays, attrs)`` computes with numpy what onnx.reference would (float16 may be computed in float32);
    ``expr`` is the C++ expression of a pointwise op with ``{0}`` ``{1}`` … for its operands in the compute type; where the expression depends on
    attributes it is a function of them.
    """

    name: str
    kind: Kind
    infer: Infer
    reference: Reference
    attrs: type = NoAttrs
    expr: str | Callable[[Any], str] | None = None
    arity: tuple[int, int] = (1, 1)  # fewest and most inputs
    outputs: int = 1
    tolerance: float = 1.0  # multiplies the tolerance of the element type in checks
    doc: str = ""
    flops: Callable[[Sequence[TensorType], Any], Any] | None = field(default=None, repr=False)

    def expression(self, attrs: Any, operands: Sequence[str]) -> str:
        """The C++ expression on named operands. Only for pointwise ops."""
        text = self.expr(attrs) if callable(self.expr) else self.expr
        assert text is not None, f"{self.name} is not pointwise"
        return text.format(*operands)

    def __repr__(self) -> str:
        return f"Op({self.name})"


OPS: Registry[Op] = Registry("op")


def as_array(x: Any, dtype: np.dtype) -> np.ndarray:
    return np.asarray(x).astype(dtype, copy=False)
