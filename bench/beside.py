"""This tree beside another checkout of aitc: both compile the same models, the binaries take turns in one process. What a change is worth, in one run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click

from bench import measure, record
from bench.product import ROOT


def compile_with(tree: Path, model: Path, folder: Path, *flags: str) -> Path:
    """The binary that the checkout `tree` makes of `model`; RuntimeError with its stderr when it fails."""
    command = [sys.executable, "-m", "cli", "compile", str(model.resolve()), "-o", str(folder.resolve()), *flags]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)})
    if done.returncode:
        raise RuntimeError(f"{tree}: {' '.join(command[3:])} exited with {done.returncode}:\n{done.stderr[-2000:]}")
    return folder


@click.command(context_settings={"show_default": True})
@click.argument("other", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("models", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--target", help="Default: the GPU of this machine, else cpu.")
@click.option("--precision", default="fp16")
@click.option("--calls", default=200, help="Timed calls of each binary.")
@click.option("--name", default="beside", help="Of the result file.")
@click.option("-o", "--out", type=click.Path(path_type=Path), default=Path("out/bench/beside"))
@click.option("--results", type=click.Path(path_type=Path), help="Folder of the result; bench/results by default.")
def main(
    other: Path, models: tuple[Path, ...], target: str | None, precision: str, calls: int, name: str, out: Path, results: Path | None
) -> None:
    """Latencies of MODELS compiled by this tree, and by the checkout OTHER."""
    import aitc
    from aitc.targets.machine import default_target

    target = target or default_target()
    flags = "--target", target, "--precision", precision, "--no-verify"
    rows: list[dict[str, object]] = []
    for model in models:
        folders = {who: compile_with(tree, model, out / f"{model.stem}-{who}", *flags) for who, tree in (("this", ROOT), ("other", other.resolve()))}
        networks = {who: aitc.load(folder) for who, folder in folders.items()}
        latency = measure.in_turns({who: lambda n, net=net: net.bench(iters=n) for who, net in networks.items()}, calls)  # type: ignore[misc]
        rows.append({"model": model.stem, "precision": precision, "latency": latency})
        click.echo(f"{model.stem}: " + ", ".join(f"{who} {figures['median_ms']:.4f} ms" for who, figures in latency.items()))
        record.write(name, rows, target, results)


if __name__ == "__main__":
    main()
