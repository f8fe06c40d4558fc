"""Makes the table of operators, aitc/ops/operators.json, and its page, docs/operators.md (``make operators``).

    python tests/conformance/table.py                    from the registry, ONNX's schemas and the recorded runs
    python tests/conformance/table.py --types            asks also again which element types are compiled (probe.py; a few minutes)
    python tests/conformance/table.py --add RUN.json     with a run that ``on_device.py --json`` wrote, of whichever suite, in the place of an older one like it

The page is stale when it is not what this makes of the data, or the data not what the registry and the schemas say: test_table.py fails then.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import onnx
from conformance import page, probe
from conformance.coverage import Operator, own_tests
from conformance.lists import reasons
from conformance.node_tests import cases
from conformance.suites import SUITES

from aitc import registry
from aitc.ops import support, unsupported
from aitc.ops.declare import IMPORTERS, find_importer
from aitc.targets.target import find_target

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "aitc" / "ops" / support.FILE
PAGE = ROOT / "docs" / "operators.md"
PROBED = "h200"  # what is compiled is decided by the importer and the kernels that all targets have
KEPT = ("target", "how", "commit", "date", "device", "command", "onnx", "tests", "others")
NOT_RUN = "no time was left"
DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training")


def schemas() -> dict[Operator, list[Any]]:
    """All forms of ONNX's operators but deprecated ones, oldest first."""
    found: dict[Operator, list[Any]] = defaultdict(list)
    for s in sorted(onnx.defs.get_all_schemas_with_history(), key=lambda s: s.since_version):
        if s.domain in DOMAINS and not s.deprecated:
            found[s.domain, s.name].append(s)
    return found


def facts() -> dict[Operator, dict[str, Any]]:
    """What the registry, the schemas and the tests say of each operator, without types."""
    registry.load("aitc.ops")
    known = schemas()
    rows: dict[Operator, dict[str, Any]] = {}
    for domain, name in sorted({*known, *IMPORTERS}):
        forms = known.get((domain, name), [])
        missing = {
            str(s.since_version): unsupported.reason(domain, name)
            for s in forms
            if find_importer(domain, name, s.since_version) is None and not (s.has_function or s.has_context_dependent_function)
        }
        tests = own_tests().get((domain, name), ())
        tested = {probe.schema_of(t).since_version for t in tests if "_expanded" not in t}
        versions = [s.since_version for s in forms] or [i.since for i in IMPORTERS[domain, name]]
        rows[domain, name] = {"versions": versions, "missing": missing, "tested": sorted(tested), "tests": list(tests)}
    return rows


def types_of(operator: Operator, refused: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Type variable -> types of the tests, types that are compiled beside these, and reasons why others are not."""
    tests = [t for t in own_tests().get(operator, ()) if "_expanded" not in t]
    if not tests:
        return {}
    newest = max((probe.schema_of(t) for t in tests), key=lambda s: int(s.since_version))
    seen: dict[str, set[str]] = defaultdict(set)
    for test in tests:
        if test not in refused:
            for variable, dtype in probe.types_in(test).items():
                seen[variable].add(dtype)
    answer: dict[str, dict[str, Any]] = {}
    for v in probe.variables(newest):
        of: dict[str, Any] = {"tested": [t for t in v.types if t in seen[v.name]], "compiled": [], "refused": {}}
        for dtype in v.types:
            if dtype in of["tested"] or dtype == "string":
                continue
            said = probe.ask(operator, v.name, dtype, PROBED, refused)
            if said:
                of["refused"][dtype] = said
            elif said is not None:
                of["compiled"].append(dtype)
        answer[v.name] = of
    return answer


def read() -> dict[str, Any]:
    return json.loads(DATA.read_text(encoding="utf-8")) if DATA.exists() else {"runs": [], "operators": {}}


def refreshed(old: Mapping[str, Any], types: bool) -> dict[str, Any]:
    """The data anew; ``types`` of operators that were there are kept unless they are asked for again."""
    refused = reasons("refused")
    operators: dict[str, dict[str, Any]] = defaultdict(dict)
    for (domain, name), row in facts().items():
        before = old["operators"].get(domain or "ai.onnx", {}).get(name)
        row["types"] = types_of((domain, name), refused) if types or before is None else before["types"]
        operators[domain or "ai.onnx"][name] = row
    return {"onnx": onnx.__version__, "runs": old["runs"], "forms": old.get("forms", []), "operators": dict(operators)}


def with_run(data: dict[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    """The data with a run in the place of one of the same kind. A run of some tests replaces what that one says of these; without one, or where a run was
    cut off, the other tests are ``not run``. Other suites than the node tests (suites.py) stand under ``forms``; a run of them is kept whole or not at all."""
    kind = find_target(run["target"]).name, run["how"]
    suite = run.get("suite", "node")
    if suite != "node":
        if run["only"]:
            raise ValueError(f"this is a run of {run['tests']} tests of the suite {suite}, not of all")
        rest = [f for f in data.get("forms", ()) if (f["suite"], find_target(f["target"]).name, f["how"]) != (suite, *kind)]
        forms = [*rest, {"suite": suite, **{k: run[k] for k in KEPT}}]
        return {**data, "forms": sorted(forms, key=lambda f: (SUITES.index(f["suite"]), f["target"], support.STRENGTH.index(f["how"])))}
    same = [r for r in data["runs"] if (find_target(r["target"]).name, r["how"]) == kind]
    if run["only"]:
        none = {**run, "tests": len(cases()), "others": {"not run": dict.fromkeys(sorted(cases()), NOT_RUN)}, "commit": ""}
        run = _mended(same[0] if same else none, run)
    order = {"cpu": 0, "cuda": 1, "hip": 2}
    runs = [*(r for r in data["runs"] if r not in same), {k: run[k] for k in KEPT}]
    runs.sort(key=lambda r: (order[find_target(r["target"]).api], r["target"], support.STRENGTH.index(r["how"])))
    return {**data, "runs": runs}


def _mended(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The old run with what the new one says of its tests."""
    again = set(new["only"])
    others: dict[str, dict[str, str]] = defaultdict(dict)
    for run, mine in ((old, lambda t: t not in again), (new, lambda t: t in again)):
        for status, named in run["others"].items():
            others[status] |= {t: said for t, said in named.items() if mine(t)}
    commit = f"{old['commit']}, {len(again)} again at {new['commit']}" if old["commit"] else new["commit"]
    return {**old, "commit": commit, "others": {s: dict(sorted(named.items())) for s, named in sorted(others.items()) if named}}


def text_of(data: Mapping[str, Any]) -> str:
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", action="store_true")
    parser.add_argument("--add", type=Path, action="append", default=[])
    given = parser.parse_args()
    data = refreshed(read(), given.types)
    for file in given.add:
        data = with_run(data, json.loads(file.read_text(encoding="utf-8")))
    DATA.write_text(text_of(data), encoding="utf-8")
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page.render(support.parse(text_of(data))), encoding="utf-8")


if __name__ == "__main__":
    main()
