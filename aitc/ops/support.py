"""The table of operators: how ONNX's node tests of each came out on each target, and which types are compiled.

``operators.json`` is that table. tests/conformance/table.py makes it from verified runs and the registry (``make operators``); docs/operators.md is
the same for people, ``aitc check`` and ``aitc list ops`` read it here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from aitc.targets.target import find_target

FILE = "operators.json"
STRENGTH = ("run", "emulated", "compiled")  # how a run of the tests was made, the most telling first
GOOD = ("passed", "compiled", "random")  # random: right but for the numbers drawn


@dataclass(frozen=True, slots=True)
class Run:
    """A suite of tests on one target: ``how`` is run (on such a machine), emulated (on the CPU) or compiled (by its compiler, not run).

    ``others`` has the tests that did not pass: status (random, refused, failed, not run) -> test -> what was said.
    """

    target: str
    how: str
    commit: str
    date: str
    device: str
    command: str
    tests: int
    others: Mapping[str, Mapping[str, str]]
    suite: str = "node"  # ONNX's node tests; or a form of them, or other cases (tests/conformance/suites.py)

    def status(self, test: str) -> tuple[str, str]:
        """(status, what was said) of a test."""
        for status, named in self.others.items():
            if test in named:
                return status, named[test]
        return ("compiled" if self.how == "compiled" else "passed"), ""


@dataclass(frozen=True, slots=True)
class Types:
    """One type variable of an operator: types of its node tests, types that are compiled beside these, and why others are not."""

    tested: tuple[str, ...]
    compiled: tuple[str, ...]
    refused: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Operator:
    """``versions`` are ONNX's forms by the opset they came with; ``missing`` those that are not compiled, with the reason; ``tested`` those of node tests."""

    domain: str  # "" is ai.onnx
    name: str
    versions: tuple[int, ...]
    missing: Mapping[int, str]
    tested: tuple[int, ...]
    tests: tuple[str, ...]
    types: Mapping[str, Types]

    def form(self, opset: int) -> int:
        """The form that a model of this opset uses; 0 if there is none yet."""
        return max((v for v in self.versions if v <= opset), default=0)

    @property
    def unsupported(self) -> str:
        """Why no form is compiled; "" if one is."""
        return next(iter(self.missing.values())) if set(self.missing) >= set(self.versions) else ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What runs on a target say of an operator: how they were made ("" if there was none), how many of its tests are good, and gaps with their reasons."""

    how: str
    good: int
    tests: int
    gaps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    onnx: str  # the version whose tests and schemas these are
    runs: tuple[Run, ...]  # of the node tests
    forms: tuple[Run, ...]  # of other suites
    operators: Mapping[tuple[str, str], Operator]

    def run_for(self, target: str) -> Run | None:
        """The most telling run on a target or on an alias of it."""
        same = [r for r in self.runs if find_target(r.target).name == find_target(target).name]
        return min(same, key=lambda r: STRENGTH.index(r.how), default=None)

    def verdict(self, operator: Operator, target: str) -> Verdict:
        """What is known of an operator on a target."""
        run = self.run_for(target)
        gaps = [f"opset {v}: {why}" for v, why in operator.missing.items()]
        if run is None:
            return Verdict("", 0, len(operator.tests), tuple(gaps))
        statuses = [run.status(test) for test in operator.tests]
        bad: dict[str, int] = {}
        for status, said in statuses:
            if status not in GOOD:
                bad[f"{status}: {said}"] = bad.get(f"{status}: {said}", 0) + 1
        gaps += [f"{n} of {len(statuses)} node tests {what}" for what, n in bad.items()]
        return Verdict(run.how, len(statuses) - sum(bad.values()), len(statuses), tuple(gaps))

    def why_not(self, domain: str, name: str, opset: int, types: Sequence[str] = ()) -> str:
        """The known reason why an operator is not compiled in the form of this opset, with inputs of these types; "" if none is known."""
        operator = self.operators.get((domain, name))
        if operator is None:
            return ""
        missing = operator.missing.get(operator.form(opset), "")
        refused = [f"{v} = {t}: {why}" for v, of in operator.types.items() for t, why in of.refused.items() if t in types]
        return missing or "; ".join(refused)


@lru_cache(maxsize=1)
def table() -> Table:
    """The table that comes with aitc."""
    return parse(files("aitc.ops").joinpath(FILE).read_text(encoding="utf-8"))


def parse(text: str) -> Table:
    """A table from its JSON."""
    raw = json.loads(text)
    runs, forms = (tuple(_run(r) for r in raw.get(key, ())) for key in ("runs", "forms"))
    operators = {}
    for domain, named in raw["operators"].items():
        key = "" if domain == "ai.onnx" else domain
        for name, o in named.items():
            types = {v: Types(tuple(t["tested"]), tuple(t["compiled"]), t["refused"]) for v, t in o["types"].items()}
            missing = {int(v): why for v, why in o["missing"].items()}
            operators[key, name] = Operator(
                key, name, tuple(o["versions"]), missing, tuple(o["tested"]), tuple(o["tests"]), types
            )
    return Table(raw["onnx"], runs, forms, operators)


def _run(r: Mapping[str, Any]) -> Run:
    return Run(
        r["target"], r["how"], r["commit"], r["date"], r["device"], r["command"], r["tests"], r["others"], r.get("suite", "node")
    )
