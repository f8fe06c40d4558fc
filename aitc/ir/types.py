"""Tensor types: element type, shape of Dims, storage order."""

from __future__ import annotations

from dataclasses import dataclass, replace

from aitc.ir.dim import Dim, product
from aitc.ir.dtype import DType

Shape = tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class TensorType:
    """``shape`` keeps ONNX's axis meaning. ``order`` lists axes from outermost to innermost in memory; None is row-major.

    A convolution's NHWC activation is shape (N, C, H, W) with order (0, 2, 3, 1): no transpose node is needed.
    """

    dtype: DType
    shape: Shape
    order: tuple[int, ...] | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elems(self) -> Dim:
        return product(self.shape)

    @property
    def is_static(self) -> bool:
        return all(isinstance(d, int) for d in self.shape)

    def strides(self) -> tuple[Dim, ...]:
        """Elements between neighbours along each axis, when stored densely in ``order``."""
        strides: list[Dim] = [0] * self.rank
        step: Dim = 1
        for axis in reversed(self.order or range(self.rank)):
            strides[axis] = step
            step = step * self.shape[axis]
        return tuple(strides)

    def with_dtype(self, dtype: DType) -> "TensorType":
        return replace(self, dtype=dtype)

    def with_shape(self, shape: Shape) -> "TensorType":
        """The same element type, row-major, with another shape."""
        return TensorType(self.dtype, tuple(shape))

    def __str__(self) -> str:
        order = "" if self.order is None else f" order({','.join(map(str, self.order))})"
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]{order}"


def broadcast(*shapes: Shape) -> Shape:
    """The numpy broadcast of shapes. A symbolic dim wins over 1. Raises ValueError when two dims certainly differ."""
    rank = max((len(s) for s in shapes), default=0)
    result: list[Dim] = []
    for axis in range(rank):
        dim: Dim = 1
        for s in shapes:
            at = axis - rank + len(s)
            if at < 0 or s[at] == 1 or s[at] == dim:
                continue
            if dim == 1:
                dim = s[at]
            elif isinstance(dim, int) and isinstance(s[at], int):
                raise ValueError(f"shapes {' and '.join(map(str, shapes))} do not broadcast")
            elif isinstance(s[at], int):
                dim = s[at]  # a symbol beside an integer above 1 must equal it
        result.append(dim)
    return tuple(result)
