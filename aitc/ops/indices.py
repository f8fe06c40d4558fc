"""Indices that are known at compile time, against the axes that they are for: a model that names an element which is not
there is not valid. Indices in the data are brought inside when the model runs (``wrap_index`` of aitc/generic/element.h).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aitc.ir import content
from aitc.ir.dim import Dim
from aitc.ir.graph import Value


def _array(v: Value) -> np.ndarray | None:
    if v.const is not None:
        return v.const
    if v.content is not None and content.is_numeric(v.content):
        return content.as_numpy(v.content, v.type.dtype)
    return None


def check_bounds(indices: np.ndarray, size: Dim, what: str, least: int | None = None) -> None:
    """Raises ValueError for an index outside of [-size, size), or [least, size), where the size is known."""
    if not isinstance(size, int) or not indices.size:
        return
    low = -size if least is None else least
    for index in (int(indices.min()), int(indices.max())):
        if not low <= index < size:
            raise ValueError(f"index {index} is outside of {what}, which has {size} elements")


def check(name: str, inputs: Sequence[Value | None], attrs: Any) -> None:
    """Raises ValueError if a core node would read or write an element that is not there, as far as that is known."""
    if name not in _AXES or len(inputs) < 2:
        return
    data, indices = inputs[:2]
    found = None if indices is None else _array(indices)
    if data is None or found is None or not found.size:
        return
    if name in ("GatherND", "ScatterND"):
        first = getattr(attrs, "batch_dims", 0)
        for at in range(found.shape[-1]):
            check_bounds(found[..., at], data.shape[first + at], f"axis {first + at} of {data.type}")
    else:
        check_bounds(found, data.shape[attrs.axis], f"axis {attrs.axis} of {data.type}")


_AXES = frozenset({"Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"})
