"""How long a build takes: from nothing (an empty object cache), and again; stage by stage."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import click

from bench import record
from bench.product import Compiled, compile_model, full_model

LIMITS_S = {"first": 90.0, "again": 5.0}  # on two cores


def bench_one(name: str, target: str, flags: tuple[str, ...]) -> dict[str, object]:
    """One row: the seconds of both builds, each also by stage."""
    model = full_model(name)
    with tempfile.TemporaryDirectory(prefix="aitc-build-") as tmp:
        cache = {"AITC_CACHE_DIR": str(Path(tmp) / "cache")}
        folder = Path(tmp) / "out"
        first = compile_model(model, folder, target, "--no-verify", *flags, environment=cache)
        again = compile_model(model, folder, target, "--no-verify", *flags, environment=cache)
        size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    return {
        "model": name,
        "target": target,
        "flags": list(flags),
        "first": _times(first),
        "again": _times(again),
        "output_bytes": size,
        **first.sizes(),
    }


def _times(compiled: Compiled) -> dict[str, Any]:
    return {
        "seconds": round(compiled.seconds, 2),
        "cpu_seconds": round(compiled.cpu_seconds, 2),
        "stages": compiled.report["seconds"],
        "objects": compiled.report["objects"],
    }


@click.command()
@click.option("--models", default="resnet50,bert_base", show_default=True, help="Names of the catalog.")
@click.option("--target", default="h200", show_default=True)
@click.option("--precision", default="fp16", show_default=True)
@click.option("--jobs", default=2, show_default=True)
@click.option("--results", type=click.Path(path_type=Path), help="Folder of the result; bench/results by default.")
def main(models: str, target: str, precision: str, jobs: int, results: Path | None) -> None:
    """Build time from nothing and again."""
    rows = []
    for name in models.split(","):
        row = bench_one(name, target, ("--precision", precision, "--jobs", str(jobs)))
        rows.append(row)
        first, again = row["first"], row["again"]
        assert isinstance(first, dict) and isinstance(again, dict)
        click.echo(
            f"{name} for {target}: {first['seconds']} s from nothing (limit {LIMITS_S['first']:g}; "
            f"{first['cpu_seconds']} processor seconds), {again['seconds']} s again (limit {LIMITS_S['again']:g}; {again['cpu_seconds']})"
        )
    click.echo(record.write("build_time", rows, f"{record.cpu_name()}, {jobs} jobs", results), err=True)


if __name__ == "__main__":
    main()
