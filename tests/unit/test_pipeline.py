from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aitc.errors import AitcError, Exit
from aitc.pipeline import choose_targets
from aitc.progress import Said, Silent, Stages, Stopped


def names(*asked: str) -> tuple[str, ...]:
    return tuple(t.name for t in choose_targets(asked))


def test_targets_by_alias_without_doubles() -> None:
    assert names("h200", "h100", "sm90") == ("sm90",)
    assert names("cpu") == names("HOST") == ("cpu",)


def test_the_least_capable_target_decides_the_kernels() -> None:
    first, *rest = choose_targets(("h100", "a100"))
    assert first.name == "sm80" and [t.name for t in rest] == ["sm90"]
    assert "tma" not in first.features and "mma_sm80" in first.features
    assert first.smem_bytes <= rest[0].smem_bytes


@pytest.mark.parametrize("asked", [("cpu", "a100"), ("a100", "mi250"), ("nonsense",)])
def test_targets_that_do_not_go_together(asked: tuple[str, ...]) -> None:
    with pytest.raises(AitcError) as e:
        choose_targets(asked)
    assert e.value.exit_code == Exit.USAGE and e.value.diagnostics[0].help


def test_the_default_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AITC_TARGET", "mi250")
    assert names() == ("gfx90a",)
    monkeypatch.delenv("AITC_TARGET")
    monkeypatch.setattr("aitc.pipeline.default_target", lambda: "sm90")
    assert names() == ("sm90",)


class Recorder(Silent):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def begin(self, stage: str) -> None:
        self.seen.append(f"begin {stage}")

    def end(self, stage: str, elapsed: float, result: str) -> None:
        self.seen.append(f"end {stage}: {result}")


def said(n: int) -> Said:
    return Said(f"{n} things", lambda: {"txt": f"{n}\n", "/sub/a.cpp": "int a;\n"}, (("things", n),))


def test_stages_report_time_dump_and_count(tmp_path: Path) -> None:
    progress = Recorder()
    stages = Stages(("one", "two"), "two", tmp_path / "d", progress)
    assert stages.run("one", lambda: 1, said) + stages.run("two", lambda: 2, said) == 3
    assert progress.seen == ["begin one", "end one: 1 things", "begin two", "end two: 2 things"]
    assert list(stages.seconds) == ["one", "two"]
    assert stages.statistics == (("things after one", 1), ("things after two", 2))
    assert (tmp_path / "d" / "01-one.txt").read_text() == "1\n"
    assert (tmp_path / "d" / "02-two" / "sub" / "a.cpp").read_text() == "int a;\n"


def test_stages_stop_behind_the_one_asked_for() -> None:
    stages = Stages(("one", "two"), "one", None, Silent())
    done = [stages.run("one", lambda: 1, said)]
    with pytest.raises(Stopped):
        stages.run("two", lambda: done.append(2) or 2, said)
    assert done == [1] and list(stages.seconds) == ["one"]


def test_a_dump_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "d").write_text("")
    with pytest.raises(AitcError) as e:
        Stages(("one",), "one", tmp_path / "d", Silent()).run("one", lambda: 1, said)
    assert e.value.exit_code == Exit.IO


def test_a_dump_replaces_earlier_dumps_alone(tmp_path: Path) -> None:
    folder = tmp_path / "d"

    def dump(n: int) -> None:
        Stages(("one", "two"), "two", folder, Silent()).run("one", lambda: n, said)

    dump(1)
    (folder / "mine.txt").write_text("mine")
    dump(2)
    assert (folder / "01-one.txt").read_text() == "2\n" and (folder / "mine.txt").read_text() == "mine"
    (tmp_path / "precious").write_text("mine")
    users: list[tuple[Path, Callable[[Path], object]]] = [
        (folder / "01-one" / "mine.txt", lambda p: p.write_text("mine")),
        (folder / "02-two.txt", lambda p: p.write_text("mine")),
        (folder / "02-two", lambda p: p.symlink_to(tmp_path)),
        (folder / "01-one.txt", lambda p: (p.unlink(), p.symlink_to(tmp_path / "precious"))),
    ]
    for path, make in users:
        make(path)
        with pytest.raises(AitcError, match=path.relative_to(folder).as_posix()) as e:
            dump(3)
        assert e.value.exit_code == Exit.IO and (tmp_path / "precious").read_text() == "mine"
        path.unlink()


def test_texts_are_made_only_for_a_dump() -> None:
    def broken() -> dict[str, str]:
        raise AssertionError("nobody asked")

    Stages(("one",), "one", None, Silent()).run("one", lambda: 1, lambda n: Said("", broken))
