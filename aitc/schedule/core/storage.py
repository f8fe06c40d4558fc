"""Where values lie in memory."""

from __future__ import annotations

from aitc.ir.graph import Node, Value
from aitc.kernels.core.functor import Storage


class Storages:
    """Where values lie. Most are dense in their own memory; ``alias`` puts one inside another (memory fusion)."""

    def __init__(self) -> None:
        self._alias: dict[int, Storage] = {}
        self._joined: set[Node] = set()
        self._wholes: set[int] = set()

    def alias(self, v: Value, storage: Storage) -> None:
        self._alias[id(v)] = storage

    def aliased(self, v: Value) -> bool:
        return id(v) in self._alias

    def join(self, node: Node) -> None:
        """Marks a Concat whose inputs lie in its output's memory already: nothing is left to run."""
        self._joined.add(node)
        self._wholes.add(id(self(node.output).root))

    def joined(self, node: Node) -> bool:
        return node in self._joined

    def whole(self, root: int) -> bool:
        """Whether the root of that id is what Concats join, so that who writes it writes a part that nobody else does."""
        return root in self._wholes

    def __call__(self, v: Value) -> Storage:
        found = self._alias.get(id(v))
        return found if found is not None else Storage(v, 0, v.type.strides())
