"""Outputs of which a comparison says little: what any wrong binary might give, too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np


def vacuous(answers: Iterable[Mapping[str, Any]], names: Iterable[str]) -> dict[str, str]:
    """The outputs among ``names`` that say little in each of the reference's ``answers``, and why: without elements, not a number
    throughout, zero throughout, or of two elements and more one and the same value everywhere."""
    answers = list(answers)
    found = {}
    for name in names:
        whys = {_why(a[name]) for a in answers}
        if "" not in whys:
            found[name] = whys.pop() if len(whys) == 1 else "constant"
    return found


def _why(value: Any) -> str:
    if value is None or isinstance(value, list):
        return ""
    array = np.asarray(value)
    if array.size == 0:
        return "without elements"
    if array.dtype == object:
        return ""
    if (array != array).all():
        return "NaN throughout"
    if (array == 0).all():
        return "zero throughout" if array.dtype.kind != "b" and array.size > 1 else ""
    return "constant" if array.size > 1 and (array == array.reshape(-1)[0]).all() else ""
