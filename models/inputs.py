"""What a model is fed with: one `Input` per graph input, and the arrays made from it.

A random float is no valid token id, mask or sampling rate, so each model says how each of its inputs is made. The same
seed and dims give the same arrays on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

KINDS = ("normal", "uniform", "image", "text", "ids", "mask", "constant", "dim")


@dataclass(frozen=True, slots=True)
class Input:
    """One graph input and how to make it.

    name    the name in the ONNX graph
    shape   ints, or names bound by the `dims` given to `make`
    dtype   numpy's name of the element type
    kind    normal    mean 0, standard deviation 1
            uniform   low <= x < high
            image     smooth colour blobs, scaled to [low, high]: neighbours are alike as in a photograph
            text      rows of dark digits on a light ground (N, C, H, W), scaled to [low, high]: what a reader or a
                      detector of text answers to
            ids       whole numbers, low <= x < high
            mask      ones, with a tail of zeros in each row but the first (padding); never a row of zeros alone
            constant  `low` everywhere
            dim       the value of the dimension called `of` everywhere (a length)
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str = "float32"
    kind: str = "normal"
    low: float = 0.0
    high: float = 1.0
    of: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"input {self.name!r}: unknown kind {self.kind!r}, one of {', '.join(KINDS)}")

    def resolve(self, dims: Mapping[str, int]) -> tuple[int, ...]:
        """The shape with every named dimension bound; KeyError names one that is not."""
        return tuple(dims[d] if isinstance(d, str) else d for d in self.shape)

    def make(self, dims: Mapping[str, int], rng: np.random.Generator) -> Array:
        """An array of the resolved shape and of `dtype`."""
        shape = self.resolve(dims)
        dtype = np.dtype(self.dtype)
        if self.kind == "normal":
            return np.asarray(rng.standard_normal(shape, dtype=np.float32)).astype(dtype)
        if self.kind == "uniform":
            return rng.uniform(self.low, self.high, shape).astype(dtype)
        if self.kind == "image":
            return (self.low + (self.high - self.low) * _blobs(shape, rng)).astype(dtype)
        if self.kind == "text":
            return (self.low + (self.high - self.low) * _digits(shape, rng)).astype(dtype)
        if self.kind == "ids":
            return rng.integers(int(self.low), int(self.high), shape).astype(dtype)
        if self.kind == "mask":
            return _padding_mask(shape, rng).astype(dtype)
        if self.kind == "dim":
            return np.full(shape, dims[self.of], dtype)
        return np.full(shape, self.low, dtype)


def make_inputs(inputs: Iterable[Input], dims: Mapping[str, int], seed: int = 0) -> dict[str, Array]:
    """Arrays for all inputs by name, in the order given (the graph's)."""
    rng = np.random.default_rng(seed)
    return {i.name: i.make(dims, rng) for i in inputs}


def _blobs(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Sums of a few cosine waves over the two largest axes, with a little noise, in 0..1; any rank."""
    axes = sorted(sorted(range(len(shape)), key=lambda a: shape[a])[-2:])
    total = np.zeros(shape, np.float64)
    rest = tuple(1 if a in axes else n for a, n in enumerate(shape))
    for _ in range(4):
        phase = rng.uniform(0, 2 * np.pi, rest)
        for a in axes:
            steps = np.linspace(0, 2 * np.pi, shape[a]).reshape([-1 if b == a else 1 for b in range(len(shape))])
            phase = phase + rng.uniform(0.5, 4, rest) * steps
        total += np.cos(phase)
    total = 0.5 + total / 8 + rng.normal(0, 0.02, shape)
    return np.asarray(np.clip(total, 0, 1))


# The ten digits, 5 wide and 7 high: a row of a digit is five bits, the highest on the left.
_FONT = np.array(
    [
        [0x0E, 0x11, 0x13, 0x15, 0x19, 0x11, 0x0E],
        [0x04, 0x0C, 0x04, 0x04, 0x04, 0x04, 0x0E],
        [0x0E, 0x11, 0x01, 0x06, 0x08, 0x10, 0x1F],
        [0x1F, 0x02, 0x04, 0x02, 0x01, 0x11, 0x0E],
        [0x02, 0x06, 0x0A, 0x12, 0x1F, 0x02, 0x02],
        [0x1F, 0x10, 0x1E, 0x01, 0x01, 0x11, 0x0E],
        [0x06, 0x08, 0x10, 0x1E, 0x11, 0x11, 0x0E],
        [0x1F, 0x01, 0x02, 0x04, 0x08, 0x08, 0x08],
        [0x0E, 0x11, 0x11, 0x0E, 0x11, 0x11, 0x0E],
        [0x0E, 0x11, 0x11, 0x0F, 0x01, 0x02, 0x0C],
    ]
)


def _digits(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """(N, C, H, W) in 0..1: lines of random digits about a tenth of the height high, or one line where H < 100."""
    n, c, height, width = shape
    scale = max(1, height // (80 if height >= 100 else 10))
    line, step = (20 * scale if height >= 100 else height), 6 * scale
    page = np.full((n, 1, height, width), 0.95)
    for image in page[:, 0]:
        for top in range(0, height - line + 1, line):
            for left in range(step, width - 2 * step, step):
                bits = (_FONT[rng.integers(10)][:, None] >> np.arange(4, -1, -1)) & 1
                y = top + (line - 7 * scale) // 2
                image[y : y + 7 * scale, left : left + 5 * scale] -= 0.85 * np.kron(bits, np.ones((scale, scale)))
    page = np.repeat(page, c, axis=1) + rng.normal(0, 0.02, shape)
    return np.asarray(np.clip(page, 0, 1))


def _padding_mask(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """1 for the first `length` positions of the last axis, `length` drawn per row, the first row whole."""
    rows, width = int(np.prod(shape[:-1])), shape[-1]
    lengths = rng.integers((width + 1) // 2, width + 1, rows)
    lengths[:1] = width
    return (np.arange(width)[None, :] < lengths[:, None]).astype(np.int64).reshape(shape)


def to_json(item: Input) -> dict[str, object]:
    """The fields that differ from the defaults, for a manifest."""
    out: dict[str, object] = {"name": item.name, "shape": list(item.shape), "dtype": item.dtype, "kind": item.kind}
    if (item.low, item.high) != (0.0, 1.0):
        out |= {"low": item.low, "high": item.high}
    if item.of:
        out["of"] = item.of
    return out


def from_json(data: Mapping[str, Any]) -> Input:
    """The inverse of `to_json`."""
    return Input(**{**data, "shape": tuple(data["shape"])})
