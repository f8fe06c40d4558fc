"""Builds the example models for targets whose GPUs need not be here, and records what the compilers made of each: nothing is run, nothing timed.

    python -m bench.builds --target mi250 --target mi300x --name builds_amd
    python -m bench.builds --target a100 --target mi250 --no-small --full resnet50,bert_base --name builds_full

The models are the small exports (models/tiny, one of each architecture first), those real files of the development set that are on this machine, and with
``--full`` architectures of the catalog in full size (which need the extra ``[models]``). Rows are written as they come; ``--append`` goes on where a run
ended, also at another commit: each row names its own.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import click

from aitc.errors import AitcError
from aitc.pipeline import Options, compile
from bench import record

Shapes = tuple[tuple[str, tuple[int | str, ...]], ...]


def models_here(small: bool, full: str) -> list[tuple[str, str, Shapes]]:
    """(name, path, input shapes) of every model."""
    from models import devset
    from models.tiny import FOLDER, one_of_each

    found: list[tuple[str, str, Shapes]] = []
    if small:
        first = one_of_each()
        found += [(p.stem, str(p), ()) for p in first]
        found += [(m.name, str(m.fetch()), m.input_shapes()) for m in devset.here()]
        found += [(p.stem, str(p), ()) for p in sorted(FOLDER.glob("*.onnx")) if p not in first]
    if full:
        from bench.product import full_model

        found += [(f"{name} (full size)", str(full_model(name)), ()) for name in full.split(",")]
    return found


def build_one(name: str, path: str, shapes: Shapes, target: str, precision: str, jobs: int) -> dict[str, object]:
    """One row: what was built, or why it was not."""
    row: dict[str, object] = {"model": name, "target": target, "precision": precision, "commit": record.commit()}
    with tempfile.TemporaryDirectory(prefix="aitc-builds-") as folder:
        options = Options(targets=(target,), output=Path(folder) / "out", precision=precision, jobs=jobs, verify="skip", input_shapes=shapes)
        try:
            result = compile(path, options)
        except AitcError as error:
            return {**row, "status": error.diagnostics[0].code, "detail": str(error)}
        found = result.report["resources"]
        return {
            **row,
            "status": "built",
            "launches": len(result.report["launches"]),
            "kernel_files": result.report["kernels"]["files"],
            "by_kernel": dict(Counter(u["kernel"] for u in found).most_common()),
            "spills": sum(u["spills"] for u in found),
            "claims_missed": [u["entry"] for u in found if u["blocks"] < max(1, u.get("claimed_blocks", 1))],
            "library_bytes": next(size for file, size in result.report["files"].items() if file.endswith(".so")),
        }


@click.command()
@click.option("--target", "targets", multiple=True, default=("mi250", "mi300x"), show_default=True)
@click.option("--precision", default="fp16", show_default=True)
@click.option("--full", default="", help="Names of the catalog, to build in full size besides.")
@click.option("--small/--no-small", default=True, show_default=True, help="The small and real files; without them only --full.")
@click.option("--append", is_flag=True, help="Keep rows of the same targets, and build what they lack.")
@click.option("--name", default="builds", show_default=True, help="Of the result.")
@click.option("--jobs", default=2, show_default=True, help="Compilers of one model.")
@click.option("--workers", default=1, show_default=True, help="Models at once.")
@click.option("--results", type=click.Path(path_type=Path), help="Folder of the result; bench/results by default.")
def main(
    targets: tuple[str, ...], precision: str, full: str, small: bool, append: bool, name: str, jobs: int, workers: int, results: Path | None
) -> None:
    """Build all example models for each target."""
    device = ", ".join(targets) + " (not run)"
    rows = record.rows_of(name, device, results) if append else []
    there = {(row["model"], row["target"], row["precision"]) for row in rows}
    wanted = [(*m, target) for m in models_here(small, full) for target in targets if (m[0], target, precision) not in there]
    with ProcessPoolExecutor(workers) as pool:
        for done in as_completed([pool.submit(build_one, *one, precision, jobs) for one in wanted]):
            row = done.result()
            rows.append(row)
            click.echo(f"{row['model']:44} {row['target']:8} {row['status']} {row.get('kernel_files', '')} {row.get('detail', '')}")
            record.write(name, rows, device, results)


if __name__ == "__main__":
    main()
