"""The table of operators as ``aitc check`` reads it."""

from __future__ import annotations

import json

import onnx.parser
import pytest

from aitc.errors import AitcError
from aitc.importer.onnx import import_model
from aitc.importer.used import Used, used_operators
from aitc.ops.support import Table, parse

RUN = {"commit": "c", "date": "d", "device": "x", "command": "y", "tests": 4}
TABLE: Table = parse(
    json.dumps(
        {
            "onnx": "1",
            "runs": [
                {**RUN, "target": "h200", "how": "compiled", "others": {}},
                {**RUN, "target": "h200", "how": "emulated", "others": {"refused": {"test_b": "I05: no"}, "random": {"test_c": "differs"}}},
                {**RUN, "target": "mi250", "how": "compiled", "others": {"failed": {"test_a": "error"}}},
            ],
            "operators": {
                "ai.onnx": {
                    "Op": {
                        "versions": [1, 7, 13],
                        "missing": {"1": "too old"},
                        "tested": [13],
                        "tests": ["test_a", "test_b", "test_c"],
                        "types": {"T": {"tested": ["f32"], "compiled": ["f16"], "refused": {"c64": "complex"}}},
                    },
                    "Not": {"versions": [1], "missing": {"1": "strings"}, "tested": [], "tests": [], "types": {}},
                }
            },
        }
    )
)
OP, NOT = TABLE.operators["", "Op"], TABLE.operators["", "Not"]


def test_the_most_telling_run_counts() -> None:
    verdict = TABLE.verdict(OP, "h100")  # sm_90, as h200
    assert (verdict.how, verdict.good, verdict.tests) == ("emulated", 2, 3)
    assert verdict.gaps == ("opset 1: too old", "1 of 3 node tests refused: I05: no")
    assert TABLE.verdict(OP, "mi250").good == 2
    assert TABLE.verdict(OP, "a100").how == ""


def test_why_not() -> None:
    assert TABLE.why_not("", "Op", 6) == "too old"
    assert TABLE.why_not("", "Op", 7) == ""
    assert TABLE.why_not("", "Op", 21, ["f32", "c64"]) == "T = c64: complex"
    assert TABLE.why_not("", "Not", 20) == "strings"
    assert TABLE.why_not("elsewhere", "Op", 1) == ""
    assert NOT.unsupported == "strings" and OP.unsupported == ""


def test_used_operators() -> None:
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["": 18, "own": 1]>
        main (float[2] x, bool c) => (float[2] y) {
          a = own.twice(x)
          y = If(c) <then_branch = g () => (float[2] t) { t = Relu(a) }, else_branch = h () => (float[2] e) { e = Abs(a) }>
        }
        <domain: "own", opset_import: ["": 18]> twice (x) => (y) { y = Add(x, x) }""")
    assert used_operators(model) == [
        Used("", "Abs", 18, ("e",)),
        Used("", "Add", 18, ("y",)),
        Used("", "If", 18, ("y",)),
        Used("", "Relu", 18, ("t",)),
    ]


def test_the_error_of_an_operator_says_the_known_reason() -> None:
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["": 20]>
        main (float[2] x) => (float[2] y) { y = ImageDecoder(x) }""")
    with pytest.raises(AitcError) as refusal:
        import_model(model)
    assert refusal.value.diagnostics[0].help == "a known gap: files of JPEG, PNG and other formats"
