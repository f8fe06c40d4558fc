"""The door to jinja2."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jinja2
import pytest
from hand_plans import scale_then_shift

from aitc.emit.render import c_string, comment, has_template, read_template_file, render, variables


def test_an_undefined_name_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError, match="functions"):
        render("project/exports.map.j2", {"name": "m"})


def test_contexts_are_dataclasses_or_mappings() -> None:
    assert variables({"a": 1}) == {"a": 1}
    assert variables(scale_then_shift())["api"] == "cpu"
    with pytest.raises(TypeError, match="list"):
        variables([1])


def test_missing_templates_and_files() -> None:
    assert has_template("project/main.cpp.j2") and not has_template("project/none.j2")
    with pytest.raises(FileNotFoundError):
        read_template_file("include/aitc/none.h")


@pytest.mark.parametrize(
    "text", ["plain", 'quote " and \\ backslash', "tab\tnewline\n", "ümlaut 模型", "a?" + "?/b", "\x001", "%d %s"]
)
def test_c_strings_mean_their_text(text: str, tmp_path: Path) -> None:
    source = tmp_path / "s.cpp"
    size = len(text.encode())
    source.write_text(
        f"#include <cstdio>\nint main() {{ const char s[] = {c_string(text)}; fwrite(s, 1, sizeof(s) - 1, stdout);\n"
        f"return sizeof(s) - 1 == {size} ? 0 : 1; }}\n"
    )
    subprocess.run(["g++", "-std=c++17", "-trigraphs", "-o", tmp_path / "s", source], check=True)
    assert subprocess.run([tmp_path / "s"], check=True, capture_output=True).stdout == text.encode()


@pytest.mark.parametrize("text", ["*/ int x;", "a\nb", "ends in \\", "/* open", "\r\x0b\x7f"])
def test_comments_stay_comments(text: str) -> None:
    safe = comment(text)
    assert "*/" not in safe and "/*" not in safe and "\n" not in safe and "\r" not in safe and not safe.endswith("\\")
