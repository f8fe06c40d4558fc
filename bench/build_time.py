"""How long a build takes, and how much memory: from nothing (an empty object cache), and again; stage by stage."""

from __future__ import annotations

import resource
import tempfile
from pathlib import Path
from typing import Any

import click

from bench import record
from bench.product import Compiled, compile_model, full_model
from bench.suite import HALF_EXPORTS

LIMITS_S = {"first": 90.0, "again": 5.0}  # on two cores
LARGE_AGAIN_S = 15.0  # of a model with a gigabyte of weights or more: they are packed and written again


def bench_one(name: str, target: str, precision: str, jobs: int) -> dict[str, object]:
    """One row: the seconds of both builds, each also by stage."""
    model = full_model(name, "float16" if name in HALF_EXPORTS and precision == "fp16" else "float32")
    flags = ("--precision", precision, "--jobs", str(jobs))
    with tempfile.TemporaryDirectory(prefix="aitc-build-") as tmp:
        cache = {"AITC_CACHE_DIR": str(Path(tmp) / "cache")}
        folder = Path(tmp) / "out"
        first = compile_model(model, folder, target, "--no-verify", *flags, environment=cache)
        again = compile_model(model, folder, target, "--no-verify", *flags, environment=cache)
        size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    weights = first.report["bytes"]["weights"]
    return {
        "model": name,
        "target": target,
        "flags": list(flags),
        "first": _times(first),
        "again": _times(again),
        "limits": {**LIMITS_S, **({"again": LARGE_AGAIN_S} if weights >= 1 << 30 else {})},
        "largest_process_bytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10,  # of this row and those before it
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
@click.option("--models", default="resnet50,bert_base,sd15_unet", show_default=True, help="Names of the catalog.")
@click.option("--target", default="h200", show_default=True)
@click.option("--precision", default="fp16", show_default=True)
@click.option("--jobs", default=2, show_default=True)
@click.option("--results", type=click.Path(path_type=Path), help="Folder of the result; bench/results by default.")
def main(models: str, target: str, precision: str, jobs: int, results: Path | None) -> None:
    """Build time from nothing and again."""
    rows = []
    for name in models.split(","):
        row = bench_one(name, target, precision, jobs)
        rows.append(row)
        first, again, limits, largest = row["first"], row["again"], row["limits"], row["largest_process_bytes"]
        assert isinstance(first, dict) and isinstance(again, dict) and isinstance(limits, dict) and isinstance(largest, int)
        click.echo(
            f"{name} for {target}: {first['seconds']} s from nothing (limit {limits['first']:g}; "
            f"{first['cpu_seconds']} processor seconds), {again['seconds']} s again (limit {limits['again']:g}; {again['cpu_seconds']}), "
            f"{largest / 2**30:.2f} GiB at the most"
        )
    click.echo(record.write("build_time", rows, f"{record.cpu_name()}, {jobs} jobs", results), err=True)


if __name__ == "__main__":
    main()
