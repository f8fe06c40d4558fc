"""What the attributes of ONNX's operators may be, as types for the keywords of importer functions.

    def max_pool(b: Scope, x: Value, *, kernel_shape: Positives, auto_pad: AutoPad = "NOTSET") -> Value: ...

The importer checks each attribute against its type before it calls the function: the words of a ``Literal``, the bounds
of a ``Range``. A string that may be any text is a ``Text``, with the reason why it needs no list.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import numpy as np

FLT_MAX = float(np.finfo(np.float32).max)
LARGEST = 2**31 - 1  # of sizes that generated code keeps in an int


@dataclass(frozen=True, slots=True)
class Range:
    """Bounds of a number, or of each of several; a float within them is finite."""

    lo: float
    hi: float = LARGEST


@dataclass(frozen=True, slots=True)
class Text:
    """A string that is not one of a list, and why: who reads it checks it, or nothing depends on what it says."""

    reason: str


Positive = Annotated[int, Range(1)]
Count = Annotated[int, Range(0)]
Positives = Annotated[tuple[int, ...], Range(1)]
Counts = Annotated[tuple[int, ...], Range(0)]
Pads = Annotated[tuple[int, ...], Range(-LARGEST)]  # negative ones cut
Finite = Annotated[float, Range(-FLT_MAX, FLT_MAX)]
Finites = Annotated[tuple[float, ...], Range(-FLT_MAX, FLT_MAX)]
Window = Annotated[int, Range(-1)]  # -1: all
Scales = Annotated[tuple[float, ...], Range(2**-149, FLT_MAX)]

AutoPad = Literal["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", ""]
Direction = Literal["forward", "reverse", "bidirectional"]
PostTransform = Literal["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]
NodeModes = tuple[Literal["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "LEAF"], ...]
Reduction = Literal["none", "add", "mul", "max", "min"]
BitDirection = Literal["LEFT", "RIGHT"]
BlockMode = Literal["DCR", "CRD"]
PadMode = Literal["constant", "reflect", "edge", "wrap"]
PoolMode = Literal["avg", "max"]
GeluForm = Literal["none", "tanh"]
ResizeMode = Literal["nearest", "linear", "cubic"]
UpsampleMode = Literal["nearest", "linear", "bilinear"]
ResizeCoordinates = Literal[
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize", "tf_half_pixel_for_nn"
]
ResizeNearest = Literal["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
AspectPolicy = Literal["stretch", "not_larger", "not_smaller"]
SampleMode = Literal["linear", "nearest", "cubic", "bilinear", "bicubic"]
SamplePadding = Literal["zeros", "border", "reflection"]
RoundMode = Literal["up", "down", "nearest"]
Activations = Annotated[tuple[str, ...], Text("looked up without regard to case in ACTIVATIONS of ops/recurrent.py")]
Labels = Annotated[tuple[str, ...], Text("names of classes: how many there are is all that is compiled")]
FusedActivation = Annotated[str, Text("looked up by activated of ops/contrib.py, which refuses what it does not know")]
Equation = Annotated[str, Text("read by parse of ops/einsum.py")]
TypeName = Annotated[str, Text("looked up among the element types")]
Datum = Annotated[str, Text("a string as data")]
Words = Annotated[tuple[str, ...], Text("strings as data")]


@dataclass(frozen=True, slots=True)
class Contract:
    """What one attribute may be: a Python type (None: anything), words of a list, bounds."""

    kind: type | None
    choices: tuple[str, ...] = ()
    range: Range | None = None
    text: Text | None = None

    def fitting(self, name: str, value: Any) -> Any:
        """``value`` as the operator's function gets it. Raises ValueError if it may not be that."""
        if self.kind is float and isinstance(value, int):
            value = float(value)
        if self.kind is not None and not isinstance(value, self.kind):
            raise ValueError(f"attribute {name} must be {self.kind.__name__}, got {type(value).__name__}")
        if self.choices:
            for word in (value,) if isinstance(value, str) else value:
                if word not in self.choices:
                    raise ValueError(f"attribute {name} is {word!r}, and must be one of {', '.join(map(repr, self.choices))}")
        if self.range is not None:
            for number in value if isinstance(value, tuple) else (value,):
                if not self.range.lo <= number <= self.range.hi:
                    raise ValueError(f"attribute {name} is {_shown(value)}: {number} is outside of {_bounds(self.range)}")
        return value


def _shown(value: Any) -> str:
    return str(list(value)[:8]) if isinstance(value, tuple) else str(value)


def _bounds(range: Range) -> str:
    return f"{range.lo:g} or more" if range.hi == LARGEST else f"{range.lo:g} to {range.hi:g}"


def contract(annotation: Any) -> Contract:
    """What an evaluated annotation says."""
    ranges, texts = [], []
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            ranges += [m for m in annotation.__metadata__ if isinstance(m, Range)]
            texts += [m for m in annotation.__metadata__ if isinstance(m, Text)]
            annotation = get_args(annotation)[0]
        elif origin in (Union, types.UnionType):
            (annotation,) = (a for a in get_args(annotation) if a is not type(None))
        else:
            break
    choices: tuple[str, ...] = ()
    kind: type | None = annotation if isinstance(annotation, type) and annotation is not Any else None
    if origin is Literal:
        kind, choices = str, get_args(annotation)
    elif origin is tuple:
        kind = tuple
        item = get_args(annotation)[0]
        if get_origin(item) is Literal:
            choices = get_args(item)
    return Contract(kind, choices, ranges[0] if ranges else None, texts[0] if texts else None)


# Operators that ONNX defines by a body of others, whose attributes no function here receives.
OF_BODIES: Mapping[tuple[str, str], Mapping[str, Contract]] = {
    ("", "NegativeLogLikelihoodLoss"): {"reduction": Contract(str, ("none", "sum", "mean"))},
    ("", "LinearAttention"): {
        "update_rule": Contract(str, ("linear", "gated", "delta", "gated_delta")),
        "chunk_size": Contract(int, range=Range(1)),
        "q_num_heads": Contract(int, range=Range(1)),
        "kv_num_heads": Contract(int, range=Range(1)),
    },
    ("", "RotaryEmbedding"): {"num_heads": Contract(int, range=Range(0)), "rotary_embedding_dim": Contract(int, range=Range(0))},
    ("", "SoftmaxCrossEntropyLoss"): {"reduction": Contract(str, ("none", "sum", "mean"))},
}
