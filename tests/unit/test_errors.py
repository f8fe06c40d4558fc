from __future__ import annotations

import pytest

from aitc.errors import Diagnostic, Loc, near, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("für 名前 🙂", "für 名前 🙂"),
        ("a\tb\nc", "a\tb\nc"),
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("\u202egnp.exe\x9b\x00\r", "\\u202egnp.exe\\x9b\\x00\\r"),
    ],
)
def test_what_a_terminal_may_show(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_names_of_a_model_neither_rule_the_terminal_nor_begin_a_line() -> None:
    loc = Loc("m.onnx", "main", 3, "n\x1b[31m\nerror[X01]: forged", "Relu")
    text = Diagnostic("I01", "bad \x1b]52;c;x\x07", (loc,), "import", ("a\x08b",), "c\x7f").render()
    assert all(c.isprintable() or c == "\n" for c in text)
    assert [line for line in text.splitlines() if line.startswith("error")] == [text.splitlines()[0]]


def test_near_names() -> None:
    assert near("bacth", ["batch", "time"], "dims") == "did you mean batch?"
    assert near("z", ["batch", "time"], "dims") == "its dims: batch, time"
    assert near("z", [], "dims") == "its dims: none"
