"""Which operators the node tests are of."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache

from conformance.node_tests import Operator, operator_of, operators


@lru_cache(maxsize=1)
def own_tests() -> dict[Operator, tuple[str, ...]]:
    """Each operator's own tests, by name."""
    own: dict[Operator, list[str]] = defaultdict(list)
    for name, operator in operators().items():
        own[operator].append(name)
    return {operator: tuple(sorted(names)) for operator, names in sorted(own.items())}


def selection(which: int) -> list[str]:
    """A test of each operator that has one with this number (0: the first, 1: the second, …), by name."""
    return sorted(names[which] for names in own_tests().values() if len(names) > which)


__all__ = ["Operator", "operator_of", "own_tests", "selection"]
