"""Where values lie in memory."""

from __future__ import annotations

from aitc.ir.graph import Value
from aitc.kernels.functor import Storage


class Storages:
    """Where values lie. Most are dense in their own memory; ``alias`` puts one inside another (memory fusion)."""

    def __init__(self) -> None:
        self._alias: dict[int, Storage] = {}

    def alias(self, v: Value, storage: Storage) -> None:
        self._alias[id(v)] = storage

    def __call__(self, v: Value) -> Storage:
        found = self._alias.get(id(v))
        return found if found is not None else Storage(v, 0, v.type.strides())
