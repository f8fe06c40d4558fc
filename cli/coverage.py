"""What ``aitc check`` says of a model's operators: what the table of operators (docs/operators.md) knows of each on the target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

HOW = {"run": "", "emulated": ", emulated", "compiled": ", compiled and not run"}


def operators_of(model: Path, target: str, compiles: bool = False) -> list[dict[str, Any]]:
    """An entry for each operator of a model: its nodes, how ONNX's node tests of it came out on ``target``, known gaps and their reasons.

    Where the model ``compiles``, what aitc refuses of an operator (types, forms) is nothing that the model has: such gaps are left out.
    """
    from aitc.importer.used import used_operators
    from aitc.ops.support import table

    known = table()
    entries = []
    for used in used_operators(model):
        operator = known.operators.get((used.domain, used.name))
        entry: dict[str, Any] = {"operator": used.name, "domain": used.domain, "opset": used.opset, "nodes": list(used.nodes)}
        if operator is None:
            entries.append({**entry, "verified": "", "tests": 0, "good": 0, "gaps": ["aitc does not know this operator"]})
            continue
        verdict = known.verdict(operator, target)
        missing = known.why_not(used.domain, used.name, used.opset)
        gaps = [missing] if missing else [g for g in verdict.gaps if not g.startswith("opset ")]
        gaps = [g for g in gaps if not (compiles and " node tests refused: " in g)]
        how = verdict.how if verdict.good else ""
        entries.append({**entry, "verified": how, "tests": verdict.tests, "good": verdict.good, "gaps": gaps})
    return entries


def summary(entries: Sequence[dict[str, Any]], target: str) -> Iterable[str]:
    """Lines for people: how many operators node tests vouch for, which have none, and gaps with the nodes they may concern."""
    from aitc.ops.support import table

    if not entries:
        return
    if table().run_for(target) is None:
        others = ", ".join(dict.fromkeys(r.target for r in table().runs))
        yield f"  ONNX's node tests have not been run for {target}, but for {others}"
        return
    verified = [e for e in entries if e["verified"]]
    how = HOW.get(verified[0]["verified"], "") if verified else ""
    rest = [_name(e) for e in entries if not e["verified"]]
    yield f"  {len(verified)} of {len(entries)} operators have passed ONNX's node tests on {target}{how}" + (
        f"; no such test of {', '.join(rest[:8])}{' …' if len(rest) > 8 else ''}" if rest else ""
    )
    for e in entries:
        for gap in e["gaps"]:
            nodes = ", ".join(e["nodes"][:3]) + (" …" if len(e["nodes"]) > 3 else "")
            yield f"  known gap: {_name(e)} ({nodes}): {gap}"


def _name(entry: dict[str, Any]) -> str:
    return f"{entry['domain']}.{entry['operator']}" if entry["domain"] else entry["operator"]
