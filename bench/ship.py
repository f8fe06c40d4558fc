"""The tuning table that ships, from what `bench.score` measured: `python -m bench.ship` writes aitc/tuning/<target>.json from results/score_<target>.json.

An entry is what whole runs chose, or kept against others; where whole runs did not come to the problem, or took longer than `QUIET_US`, so that the clock fell
while they were compared, what is clearly the fastest by itself. Needs no device.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from aitc.schedule.choose.table import Entry, shipped_table, to_text
from aitc.targets.target import find_target
from bench import record

QUIET_US = 800.0
CLEAR = 0.96  # of the default's time
SURE = 0.01  # of a run: what whole runs have to save where they are long, or where the candidate is no faster by itself
SAVED = 0.003  # of a run, otherwise


def decide(run_us: float | None, detail: Mapping[str, Any]) -> Entry | None:
    """What is known of a problem for sure; `run_us`: a whole run of its model, where there were such."""
    us = {config: measured for config, (_, measured) in detail["us"].items()}
    chosen, settled = detail["chosen"], detail.get("settled")
    fastest = min(us, key=lambda c: us[c])
    if settled is not None and run_us is not None:
        part = detail["saved_us"] / run_us
        agreed, quiet = us[settled] <= us[chosen], run_us < QUIET_US
        if settled != chosen and part > (SAVED if agreed and quiet else SURE) and (agreed or quiet):
            return Entry(detail["problem"], settled, us[settled])
        if settled == chosen and quiet:
            return Entry(detail["problem"], chosen, us[chosen])
    if us[fastest] < CLEAR * us[chosen]:
        return Entry(detail["problem"], fastest, us[fastest])
    return None


def entries(result: Mapping[str, Any]) -> list[Entry]:
    """The entries of a result of bench.score, by problem; of a problem of several models the first."""
    found: dict[str, Entry] = {}
    for row in result["rows"]:
        run_us = row["runs_us"][0] if row.get("runs_us") else None
        for detail in row["details"]:
            entry = decide(run_us, detail) if len(detail["us"]) > 1 else None
            if entry is not None:
                found.setdefault(entry.problem, entry)
    return list(found.values())


@click.command()
@click.option("--target", default="h200", show_default=True)
@click.option("--results", type=click.Path(path_type=Path), default=record.RESULTS, help="Folder of the result; bench/results by default.")
def main(target: str, results: Path) -> None:
    """Write the table that ships."""
    result = json.loads((results / f"score_{target}.json").read_text(encoding="utf-8"))
    path = shipped_table(find_target(target))
    path.parent.mkdir(exist_ok=True)
    path.write_text(to_text(entries(result)), encoding="utf-8")
    click.echo(f"{path}: {len(path.read_text(encoding='utf-8').splitlines())} entries")


if __name__ == "__main__":
    main()
