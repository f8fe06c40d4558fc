"""Output folders are complete or untouched."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest

from aitc.build.output import staged
from aitc.errors import AitcError, Exit


def names(folder: Path) -> list[str]:
    return sorted(e.name for e in folder.iterdir())


def test_a_new_folder_appears_whole(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    with staged(out) as stage:
        (stage / "a").write_text("1")
        assert not out.exists()
    assert (out / "a").read_text() == "1" and names(out.parent) == ["out"]


def test_an_old_folder_keeps_what_is_not_ours(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "src" / "old").mkdir(parents=True)
    (out / "mine.txt").write_text("mine")
    (out / "libm.so").write_text("old")
    with staged(out) as stage:
        (stage / "src").mkdir()
        (stage / "src" / "new").write_text("")
        (stage / "libm.so").write_text("new")
    assert names(out) == ["libm.so", "mine.txt", "src"] and names(out / "src") == ["new"]
    assert (out / "libm.so").read_text() == "new" and names(tmp_path) == ["out"]


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_a_failure_leaves_nothing(tmp_path: Path, failure: type[BaseException]) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "libm.so").write_text("old")
    with pytest.raises(failure), staged(out) as stage:
        (stage / "libm.so").write_text("half")
        raise failure
    assert (out / "libm.so").read_text() == "old" and names(tmp_path) == ["out"]


def test_no_space(tmp_path: Path) -> None:
    with pytest.raises(AitcError, match=r"No space left.*\n.*\n.*free some space") as e, staged(tmp_path / "out"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert e.value.exit_code is Exit.IO and names(tmp_path) == []


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    for path in (tmp_path / "out", tmp_path / "out" / "below"):
        with pytest.raises(AitcError) as e, staged(path):
            pass
        assert e.value.exit_code is Exit.IO
    assert names(tmp_path) == ["out"]


def test_an_interruption_waits_until_all_is_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from aitc.build import output

    out = tmp_path / "out"
    (out / "src").mkdir(parents=True)
    replace = os.replace

    def interrupted(a: object, b: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        replace(a, b)  # type: ignore[type-var]

    monkeypatch.setattr(output.os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt), staged(out) as stage:
        (stage / "src").mkdir()
        for name in ("src/a.cpp", "m.h", "libm.so"):
            (stage / name).write_text("new")
    assert {p.name for p in out.iterdir()} == {"src", "m.h", "libm.so"}
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
