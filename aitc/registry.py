"""Named registries: ops, rules, kernels, passes. A module registers at import; ``load`` imports a package's modules once."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Registry(Generic[T]):
    """Things by name, iterated in order of their names, so that nothing depends on the order of imports."""

    def __init__(self, what: str):
        self.what = what
        self._entries: dict[str, T] = {}

    def add(self, name: str, entry: T) -> T:
        """Registers ``entry``. Raises ValueError if the name is taken."""
        if name in self._entries:
            raise ValueError(f"{self.what} {name!r} is registered twice")
        self._entries[name] = entry
        return entry

    def __getitem__(self, name: str) -> T:
        return self._entries[name]

    def get(self, name: str) -> T | None:
        return self._entries.get(name)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[T]:
        return iter(self._entries[name] for name in sorted(self._entries))

    def names(self) -> list[str]:
        return sorted(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def load(package: str) -> None:
    """Imports every module of ``package`` (recursively), so that all that registers itself has done so."""
    root = importlib.import_module(package)
    for module in sorted(pkgutil.walk_packages(root.__path__, package + "."), key=lambda m: m.name):
        importlib.import_module(module.name)
