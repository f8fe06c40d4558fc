"""What ``on_device.py`` runs: ONNX's tests of nodes (of former releases, too: old_nodes.py) and of small models, nodes in other forms
(variants.py), and our own cases (``cases/``)."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from conformance import cases as families
from conformance.lists import reasons
from conformance.node_tests import cases, node_names, small_models
from conformance.old_nodes import old_cases, old_reasons
from conformance.variants import VARIANTS

SUITES = ("node", "models", "cases", "old", *VARIANTS)
FAMILIES = tuple(sorted(m.name for m in pkgutil.iter_modules(families.__path__) if m.name != "case"))
# a form with symbols may be refused: an operator needs to know a size, and says so
UNKNOWN_SIZE = ("I04", "I05", "I09", "S01", "S02")
# with symbols, a size that is 1 is beside another: it has to be a 1 in the model (aitc/schedule/plan/requirements.py), and the run says so
UNEQUAL = ("test_linear_attention_gated_per_head_decay",)


@dataclass(frozen=True, slots=True)
class Member:
    """A test as ONNX's ``TestCase`` (``case.name`` is unique in its suite), and how it is compiled."""

    case: Any
    dims: Mapping[str, tuple[int, int]]
    precision: str


@lru_cache(maxsize=1)
def _own() -> dict[str, Member]:
    found = {}
    for family in FAMILIES:
        module = importlib.import_module(f"conformance.cases.{family}")
        for c in module.CASES:
            name = f"{family}.{c.name}"
            assert name not in found, f"two cases are called {name}"
            found[name] = Member(replace(c, name=name), c.dims, getattr(module, "PRECISION", "model"))
    return found


def names(suite: str) -> list[str]:
    """The tests of a suite. Forms of node tests leave out what is refused or random, and functions that are already spelled out."""
    if suite == "node":
        return list(node_names())
    if suite == "models":
        return sorted(small_models())
    if suite == "old":
        return list(old_cases())
    if suite == "cases":
        return list(_own())
    left_out = {*reasons("refused"), *reasons("random")}
    return [n for n in node_names() if n not in left_out and not n.endswith("_expanded")]


def member(suite: str, name: str) -> Member:
    """One test; KeyError if the suite has none of that name."""
    if suite == "cases":
        return _own()[name]
    if suite in ("models", "old"):
        return Member((small_models() if suite == "models" else old_cases())[name], {}, "model")
    case = cases()[name]
    return Member(case if suite == "node" else VARIANTS[suite](case), {}, "model")


def refusal_is_right(suite: str, name: str, said: str) -> bool:
    """Whether a test may be refused with these words, which begin with the error's code."""
    if suite == "node":
        return name in reasons("refused")
    if suite == "old":
        return name in old_reasons("refused")
    if suite == "models":
        return name in reasons("refused", "models.toml")
    return suite == "symbolic" and (said.startswith(UNKNOWN_SIZE) or (name in UNEQUAL and said.startswith("R02")))
