from __future__ import annotations

from pathlib import Path

import pytest

from aitc.errors import AitcError, Exit
from aitc.schedule.choose.table import (
    Entry,
    load_table,
    merge_into,
    own_table,
    parse,
    read_table,
    require_place,
    shipped_table,
    to_text,
)
from aitc.targets.target import all_targets, find_target

CPU = find_target("cpu")


def test_the_users_file_wins_over_the_cache(tmp_path: Path) -> None:
    (tmp_path / "cache" / "tuning").mkdir(parents=True)
    (tmp_path / "cache" / "tuning" / "cpu.json").write_text(
        to_text([Entry("k a", "one", 1.0), Entry("k b", "two", 2.0)])
    )
    mine = tmp_path / "mine.json"
    mine.write_text(to_text([Entry("k a", "three", 3.0)]))
    assert load_table(CPU, None, tmp_path / "cache")["k a"] == "one"
    table = load_table(CPU, mine, tmp_path / "cache")
    assert table["k a"] == "three" and table["k b"] == "two"
    assert load_table(CPU, Path("none"), tmp_path / "cache") == {}


def test_text_is_sorted_and_keeps_the_fastest() -> None:
    text = to_text([Entry("k b", "x", 2.0), Entry("k a", "slow", 9.0), Entry("k a", "fast", 1.5)])
    assert text.splitlines() == [
        '{"problem": "k a", "config": "fast", "us": 1.5}',
        '{"problem": "k b", "config": "x", "us": 2.0}',
    ]
    assert parse(text, "t") == [Entry("k a", "fast", 1.5), Entry("k b", "x", 2.0)]


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(AitcError) as e:
        load_table(CPU, tmp_path / "nowhere.json", tmp_path)
    assert e.value.exit_code == Exit.IO
    assert "--tuning none" in e.value.diagnostics[0].help
    no_time = [f'{{"problem": "k", "config": "c", "us": {a}, "tried": {{"d": {b}}}}}\n' for a, b in (("NaN", 1), (1, -2), ("1e999", 1))]
    for text in ("not json\n", '{"problem": "k"}\n', '["k"]\n', *no_time):
        (tmp_path / "bad.json").write_text('{"problem": "k", "config": "c", "us": 1}\n' + text)
        with pytest.raises(AitcError, match=r"bad\.json:2") as e:
            load_table(CPU, tmp_path / "bad.json", tmp_path)
        assert e.value.exit_code == Exit.USAGE


def test_what_was_tried_comes_back() -> None:
    entry = Entry("k a", "fast", 1.5, {"slow": 9.0})
    assert parse(to_text([entry]), "t") == [entry] and entry.times == {"fast": 1.5, "slow": 9.0}


def test_new_measurements_replace_old_ones_of_the_same_problem(tmp_path: Path) -> None:
    path = own_table(CPU, tmp_path)
    assert path == tmp_path / "tuning" / "cpu.json"
    merge_into(path, [Entry("k a", "x", 1.0), Entry("k b", "y", 2.0)])
    merge_into(path, [Entry("k a", "z", 3.0)])
    assert read_table(path) == [Entry("k a", "z", 3.0), Entry("k b", "y", 2.0)]
    assert [p.name for p in path.parent.iterdir()] == ["cpu.json"]


def test_a_table_that_is_broken_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text("broken\n")
    with pytest.raises(AitcError, match=r"t\.json:1"):
        merge_into(tmp_path / "t.json", [Entry("k a", "x", 1.0)])
    assert (tmp_path / "t.json").read_text() == "broken\n"


def test_a_table_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AitcError, match="cannot write the tuning table") as e:
        merge_into(tmp_path / "file" / "t.json", [Entry("k a", "x", 1.0)])
    assert e.value.exit_code == Exit.IO


def test_a_place_that_cannot_be_looked_at(tmp_path: Path) -> None:
    """Like a folder of somebody else: no table of the cache, and none can be written."""
    place = tmp_path / ("x" * 300)
    assert load_table(CPU, None, place) == load_table(CPU, None, tmp_path)
    for write in (require_place, lambda path: merge_into(path, [])):
        for path in (place, place / "t.json"):
            with pytest.raises(AitcError, match="cannot write the tuning table") as e:
                write(path)
            assert e.value.exit_code == Exit.IO


def test_what_ships_is_a_table() -> None:
    for target in all_targets():
        path = shipped_table(target)
        assert not path.is_file() or read_table(path)
