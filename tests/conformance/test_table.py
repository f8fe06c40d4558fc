"""The table of operators is what the registry, ONNX's schemas, the lists and the recorded runs say, and its page is what the table says."""

from __future__ import annotations

import json
from typing import Any

import onnx
import pytest
from conformance import page, probe, suites, table
from conformance.lists import reasons
from conformance.node_tests import cases

from aitc.ops import support
from aitc.targets.target import find_target

DATA: dict[str, Any] = table.read()
OTHER_ONNX = pytest.mark.skipif(DATA["onnx"] != onnx.__version__, reason=f"the table is of onnx {DATA['onnx']}, another one is installed")
STALE = "`make operators` makes it anew"


def test_page() -> None:
    assert table.PAGE.read_text(encoding="utf-8") == page.render(support.parse(table.text_of(DATA))), STALE


@OTHER_ONNX
def test_registry_schemas_and_tests() -> None:
    told = {
        (domain if domain != "ai.onnx" else "", name): {k: v for k, v in row.items() if k != "types"}
        for domain, named in DATA["operators"].items()
        for name, row in named.items()
    }
    assert told == table.facts(), STALE


@OTHER_ONNX
def test_what_is_not_compiled_has_a_reason() -> None:
    for row in (row for named in DATA["operators"].values() for row in named.values()):
        assert all(row["missing"].values())


@OTHER_ONNX
@pytest.mark.parametrize("run", DATA["runs"], ids=[f"{r['target']}-{r['how']}" for r in DATA["runs"]])
def test_runs_agree_with_the_lists(run: dict[str, Any]) -> None:
    """A test that is refused in a run of cpu is in the list and the other way round; other targets take longer to run again."""
    refused, random = set(run["others"].get("refused", ())), set(run["others"].get("random", ()))
    left = set(run["others"].get("not run", ()))
    assert run["tests"] == len(cases()) and not set(run["others"]) - {"refused", "random", "not run"}
    assert random <= set(reasons("random"))
    assert refused | left >= set(reasons("refused"))
    if run["target"] == "cpu":
        assert not left and refused == set(reasons("refused")), "`make node-tests` runs them"


def test_there_is_a_run_of_cpu_cuda_and_hip() -> None:
    assert {find_target(r["target"]).api for r in DATA["runs"] if r["how"] != "compiled"} == {"cpu", "cuda", "hip"}


def _answers(kind: str) -> list[tuple[str, str, str, str, str]]:
    """(domain, operator, variable, type, what the table says) of types that are compiled beside those of tests, or refused."""
    found = []
    for domain, named in DATA["operators"].items():
        for name, row in named.items():
            for variable, of in row["types"].items():
                said = dict.fromkeys(of["compiled"], "") if kind == "compiled" else of["refused"]
                found += [(domain if domain != "ai.onnx" else "", name, variable, t, why) for t, why in said.items()]
    return found


@OTHER_ONNX
@pytest.mark.parametrize(("kind", "every"), [("compiled", 24), ("refused", 12)])
def test_types(kind: str, every: int) -> None:
    """Some of the answers, asked again; ``table.py --types`` asks all."""
    some = _answers(kind)[::every]
    assert some
    for domain, name, variable, dtype, said in some:
        assert probe.ask((domain, name), variable, dtype, table.PROBED, reasons("refused")) == said, (name, variable, dtype)


RUN: dict[str, Any] = {
    "target": "h100", "how": "run", "commit": "b", "date": "d", "device": "H100", "command": "c", "onnx": "o", "tests": len(cases()), "only": [],
    "others": {"refused": {"test_x": "why"}},
}  # fmt: skip


def test_a_run_replaces_one_of_its_kind() -> None:
    once = table.with_run({"runs": []}, {**RUN, "commit": "a"})
    again = table.with_run(once, {**RUN, "target": "h200"})
    assert [(r["target"], r["commit"]) for r in again["runs"]] == [("h200", "b")]
    both = table.with_run(again, {**RUN, "how": "emulated"})
    assert [r["how"] for r in both["runs"]] == ["emulated", "run"]


def test_a_run_of_some_tests_mends_one_of_all() -> None:
    before = table.with_run({"runs": []}, {**RUN, "commit": "a", "others": {"failed": {"test_abs": "wrong", "test_neg": "wrong"}}})
    some = {**RUN, "tests": 2, "only": ["test_abs", "test_add"], "others": {"random": {"test_add": "differs"}}}
    (run,) = table.with_run(before, some)["runs"]
    assert run["others"] == {"failed": {"test_neg": "wrong"}, "random": {"test_add": "differs"}}
    assert run["commit"] == "a, 2 again at b" and run["tests"] == len(cases())


def test_of_a_run_of_some_tests_the_others_are_not_run() -> None:
    some = {**RUN, "tests": 2, "only": ["test_abs", "test_add"], "others": {"failed": {"test_add": "wrong"}}}
    (run,) = table.with_run({"runs": []}, some)["runs"]
    assert run["tests"] == len(cases()) and run["commit"] == "b"
    assert run["others"]["failed"] == {"test_add": "wrong"}
    assert set(run["others"]["not run"]) == set(cases()) - {"test_abs", "test_add"}


def test_a_run_of_another_suite_stands_apart() -> None:
    form = {**RUN, "suite": "symbolic", "tests": 3, "others": {"refused": {"test_x": "I04: how large?"}}}
    data = {**table.with_run({"onnx": "o", "runs": []}, RUN), "operators": {}}
    once = table.with_run(table.with_run(data, {**form, "commit": "a"}), {**form, "suite": "cases", "others": {}})
    again = table.with_run(once, {**form, "target": "h100", "commit": "c"})
    assert again["runs"] == data["runs"]
    assert [(f["suite"], f["commit"]) for f in again["forms"]] == [("cases", "b"), ("symbolic", "c")]
    read = support.parse(table.text_of(again))
    assert read.run_for("h100") == read.runs[0]
    assert "| node tests with their sizes as symbols | h100 | run | 2 | 1 | 0 | 0 | 0 | H100 | d | c |" in page.render(read)
    with pytest.raises(ValueError, match="3 tests of the suite cases, not of all"):
        table.with_run(data, {**form, "suite": "cases", "only": ["x"]})


@OTHER_ONNX
def test_other_suites_have_no_failures() -> None:
    for run in DATA["forms"]:
        suite, others = run["suite"], run["others"]
        assert not set(others) - {"refused", "not run"}
        wrong = [name for name, said in others.get("refused", {}).items() if not suites.refusal_is_right(suite, name, said)]
        assert not wrong, (suite, run["target"], wrong)


def test_data_is_written_as_json_is() -> None:
    assert table.DATA.read_text(encoding="utf-8") == table.text_of(json.loads(table.DATA.read_text(encoding="utf-8")))
