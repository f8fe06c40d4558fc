"""tests/replay.py says what differs between two sets of generated sources, each difference once."""

from __future__ import annotations

from pathlib import Path

import pytest
import replay


def index(texts: Path, sources: dict[str, dict[str, str]]) -> replay.Index:
    found: replay.Index = {}
    for case, files in sources.items():
        for path, text in files.items():
            digest = text.replace("\n", "_").replace("/", "_")
            (texts / digest).write_text(text)
            found.setdefault(case, {})[path] = digest
    return found


def test_a_difference_of_many_models_is_said_once(tmp_path: Path) -> None:
    before = index(tmp_path, {"a cpu": {"x.h": "one\ntwo\n"}, "b cpu": {"x.h": "one\ntwo\n", "gone.cpp": "old\n"}, "c cpu": {"y.h": "same\n"}})
    after = index(tmp_path, {"a cpu": {"x.h": "one\n2\n"}, "b cpu": {"x.h": "one\n2\n"}, "c cpu": {"y.h": "same\n"}, "d cpu": {"z.h": "new\n"}})
    found = replay.differences(before, after, tmp_path)
    assert {path: cases for (path, _), cases in found.items()} == {"x.h": ["a cpu", "b cpu"], "gone.cpp": ["b cpu"], "z.h": ["d cpu"]}
    text = replay.report(found, whole=False)
    assert text.count("x.h") == 1 and "x.h  +1 -1  in a cpu, b cpu" in text and "    -two\n    +2" in text
    assert "gone.cpp  +0 -1" in text and "z.h  +1 -0  in d cpu" in text
    assert replay.report({}, whole=False) == ""
    assert not replay.differences(after, after, tmp_path)


def test_a_model_is_emitted_for_each_target(tmp_path: Path) -> None:
    model = replay.ROOT / "models" / "tiny" / "resnet50-dynamo-static.onnx"
    sources = replay.emit_model(model, tmp_path)
    assert list(sources) == [f"{model.stem} {target}" for target in replay.TARGETS]
    for files in sources.values():
        assert "model.cpp" in files and len(files) > 10
        assert all((tmp_path / digest).exists() for digest in files.values())


def test_a_commit_that_is_not_there_is_no_failure(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["replay.py", "--base", "no-such-commit"])
    assert replay.main() == 0
    assert "there is no commit no-such-commit" in capsys.readouterr().out
