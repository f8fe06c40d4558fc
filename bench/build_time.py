"""How long a build takes, and how much memory: from nothing (an empty object cache), and again; stage by stage."""

from __future__ import annotations

import resource
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import click

from aitc.build.toolchain import find_toolchain
from aitc.targets.target import find_target
from bench import record
from bench.product import Compiled, children_seconds, compile_model, full_model
from bench.suite import HALF_EXPORTS

LIMITS_S = {"first": 90.0, "again": 5.0}  # on two cores
KERNEL_LIMIT_S = 5.0  # of one file
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


def kernel_files(name: str, target: str, precision: str) -> dict[str, object]:
    """One row: processor seconds of the compiler for each kernel file of a GPU target, by the commands of the generated project, one by one."""
    chain = find_toolchain(find_target(target).api)
    assert chain.device is not None, "a GPU target"
    model = full_model(name, "float16" if name in HALF_EXPORTS and precision == "fp16" else "float32")
    with tempfile.TemporaryDirectory(prefix="aitc-build-") as tmp:
        folder, tree = Path(tmp) / "out", Path(tmp) / "tree"
        compile_model(model, folder, target, "--no-verify", "--precision", precision)
        compiler = f"-DAITC_{'NVCC' if chain.api == 'cuda' else 'HIPCC'}={chain.device.path}"
        subprocess.run([chain.cmake.path, "-S", folder / "src", "-B", tree, "-G", "Ninja", compiler], check=True, capture_output=True)
        (tree / "images").mkdir(exist_ok=True)
        said = subprocess.run([chain.ninja.path, "-C", tree, "-t", "commands"], check=True, capture_output=True, text=True).stdout
        files: dict[str, float] = {}
        for path in sorted((folder / "src" / "kernels").iterdir()):
            (command,) = (line for line in said.splitlines() if str(path) in line)
            before = children_seconds()
            subprocess.run(command, shell=True, check=True, capture_output=True)
            files[path.name] = round(children_seconds() - before, 2)
    slowest = max(files, key=files.__getitem__)
    return {"model": name, "target": target, "precision": precision, "limit": KERNEL_LIMIT_S, "slowest": slowest, "cpu_seconds": files}


@click.command()
@click.option("--models", default="resnet50,bert_base,sd15_unet", show_default=True, help="Names of the catalog.")
@click.option("--target", default="h200", show_default=True)
@click.option("--precision", default="fp16", show_default=True)
@click.option("--jobs", default=2, show_default=True)
@click.option("--kernels", is_flag=True, help="Of each kernel file alone instead, in processor seconds, which a busy machine does not stretch.")
@click.option("--results", type=click.Path(path_type=Path), help="Folder of the result; bench/results by default.")
def main(models: str, target: str, precision: str, jobs: int, kernels: bool, results: Path | None) -> None:
    """Build time from nothing and again."""
    rows: list[dict[str, object]] = []
    if kernels:
        for name in models.split(","):
            rows.append(row := kernel_files(name, target, precision))
            seconds = row["cpu_seconds"]
            assert isinstance(seconds, dict)
            click.echo(f"{name} for {target}: {len(seconds)} kernel files, the slowest {row['slowest']}: {seconds[row['slowest']]} s")
            record.write("build_time_kernels", rows, record.cpu_name(), results)
        return
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
