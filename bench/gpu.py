"""aitc, with the tuning table and without, beside PyTorch on this machine's GPU: eager, its CUDA graph, torch.compile and its CUDA graph, in one run.

`python -m bench.gpu --budget 540` measures the rows of `SUITE`, `--row bert_base,batch=8,seq=128` others. Models are
exported here (extra [models]) and nothing is downloaded. Figures are written after every row, and aitc's before the slow
contenders are made ready, so that a run that is cut short keeps them; `--append` goes on where such a run ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click
import numpy as np
import torch

from bench import measure, record
from bench.product import Compiled, compile_model, full_model
from bench.suite import HALF_EXPORTS, SUITE, has_all, key_of, parse_row
from bench.torch_side import CONTENDERS, TorchSide, events
from models import catalog
from models.inputs import make_inputs

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass(slots=True)
class Budget:
    """Wall-clock seconds for the whole run."""

    seconds: float
    start: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        return self.seconds - (time.monotonic() - self.start)


@dataclass(frozen=True, slots=True)
class Job:
    """One row to measure."""

    model: str
    dims: Mapping[str, int]
    precision: str
    target: str
    contenders: tuple[str, ...]
    calls: int
    flags: tuple[str, ...]
    out: Path

    @property
    def key(self) -> tuple[object, ...]:
        """What tells rows apart."""
        return self.model, self.precision, *sorted(self.dims.items())

    @property
    def export(self) -> str:
        """The type of the exported model's weights, inputs and outputs."""
        return "float16" if self.model in HALF_EXPORTS and self.precision == "fp16" else "float32"


def bench_one(job: Job, budget: Budget, keep: Callable[[Mapping[str, object]], object]) -> dict[str, object]:
    """A row: latencies by contender, the floor, differences from float32 results, and what failed or was skipped.

    `keep` is called with the row before PyTorch's contenders are made ready, with aitc's figures alone.
    """
    architecture = catalog.find(job.model)
    dims = dict(job.dims)
    feed = make_inputs(architecture.inputs("full"), dims, seed=1)
    module = architecture.module("full")
    start = time.monotonic()
    path = full_model(job.model, job.export, module, **dims)
    click.echo(f"  exported after {time.monotonic() - start:.0f} s", err=True)
    module = module.float()
    tensors = {k: torch.from_numpy(v) for k, v in feed.items()}
    if job.export == "float16":
        feed = {k: v.astype(np.float16) if v.dtype == np.float32 else v for k, v in feed.items()}
    samplers: dict[str, measure.Sampler] = {}
    notes: dict[str, str] = {}
    differences: dict[str, float] = {}
    row: dict[str, object] = {"model": job.model, "batch": dims["batch"], "dims": dims, "precision": job.precision}

    torch.backends.cudnn.allow_tf32 = False
    exact = [v.numpy() for v in TorchSide(module, tensors, torch.float32).outputs()]
    side = TorchSide(module, tensors, DTYPES[job.precision])
    differences["eager"] = _difference([v.numpy() for v in side.outputs()], exact)
    row |= _floor(side, job)

    def attempt(name: str, what: Callable[[], measure.Sampler]) -> None:
        if budget.left <= 0:
            notes[name] = "skipped: no time left"
            return
        start = time.monotonic()
        try:
            samplers[name] = what()
        except Exception as error:  # a contender that fails is a figure too
            notes[name] = f"{type(error).__name__}: {error}"[:500]
        click.echo(f"  {name}: {notes.get(name, 'ready')} after {time.monotonic() - start:.0f} s", err=True)

    def compiled_to(name: str, *flags: str) -> Compiled:
        folder = job.out / "-".join(map(str, (job.model, *dims.values(), job.precision, *([name] if name else []))))
        flags = "--precision", job.precision, "--no-verify", *job.flags, *flags
        return compile_model(path, folder, job.target, *flags, timeout=max(30.0, budget.left))

    def untuned() -> measure.Sampler:
        import aitc

        network, arrays = aitc.load(compiled_to("untuned", "--tuning", "none").folder), list(feed.values())
        return lambda calls: network.bench(iters=calls, inputs=arrays)

    def ours() -> measure.Sampler:
        import aitc

        compiled = compiled_to("")
        row["compile_s"] = round(compiled.seconds, 1)
        row.update(compiled.sizes())
        network = aitc.load(compiled.folder)
        differences["aitc"] = _difference([np.asarray(v, np.float32) for v in network(**feed)], exact)
        arrays = list(feed.values())
        return lambda calls: network.bench(iters=calls, inputs=arrays)

    row |= {"notes": notes, "difference": differences}
    attempt("aitc", ours)
    attempt("aitc_untuned", untuned)
    keep(row | {"latency": measure.in_turns(samplers, job.calls)})
    for name in job.contenders:
        attempt(name, lambda name=name: events(side.call(name)))  # type: ignore[misc]
    row |= {"latency": measure.in_turns(samplers, job.calls)}
    return row


def _floor(side: TorchSide, job: Job) -> dict[str, object]:
    """What the machine allows at best: all operations at the target's rate, or all weights read once."""
    from aitc.targets.target import find_target

    target = find_target(job.target)
    rate = target.tflops[job.precision] * 1e12
    operations, weight_bytes = side.operations(), side.weight_bytes()
    floor = max(operations / rate, weight_bytes / (target.gbps * 1e9))
    return {
        "gflop": round(operations / 1e9, 2),
        "weight_mb": round(weight_bytes / 1e6, 1),
        "floor_ms": round(floor * 1e3, 5),
    }


def _difference(values: list[np.ndarray], exact: list[np.ndarray]) -> float:
    """The largest difference over the largest value, over all outputs."""
    return max(
        float(np.abs(a - b).max() / max(1e-6, float(np.abs(b).max()))) for a, b in zip(values, exact, strict=True)
    )


@click.command()
@click.option("--row", "texts", multiple=True, metavar="MODEL,DIM=N,...", help="A row to measure; SUITE's without any.")
@click.option("--append", is_flag=True, help="Keep rows of the same commit and device, and measure what they lack.")
@click.option("--precision", type=click.Choice(list(DTYPES)), default="fp16", show_default=True)
@click.option("--target", help="Default: the GPU of this machine.")
@click.option("--contenders", default=",".join(CONTENDERS), show_default=True, help="PyTorch's, comma-separated.")
@click.option("--calls", default=200, show_default=True, help="Timed calls of each contender.")
@click.option("--budget", default=540.0, show_default=True, help="Seconds; what does not fit is noted as skipped.")
@click.option("--flag", "flags", multiple=True, help="More flags for `aitc compile`, e.g. --flag=--jobs --flag=16.")
@click.option("--name", default="gpu", show_default=True, help="Of the result file.")
@click.option("-o", "--out", type=click.Path(path_type=Path), default=Path("out/bench/gpu"), show_default=True)
@click.option("--results", type=click.Path(path_type=Path), help="Folder of the result; bench/results by default.")
def main(
    texts: tuple[str, ...],
    append: bool,
    precision: str,
    target: str | None,
    contenders: str,
    calls: int,
    budget: float,
    flags: tuple[str, ...],
    name: str,
    out: Path,
    results: Path | None,
) -> None:
    """Latency of aitc and PyTorch on the GPU, side by side, by device events."""
    from aitc.targets.machine import default_target

    if not torch.cuda.is_available():
        raise click.ClickException("there is no GPU that PyTorch sees")
    clock = Budget(budget)
    chosen = tuple(c for c in contenders.split(",") if c)
    device = torch.cuda.get_device_name()
    rows = {key_of(row): row for row in (record.earlier(name, device, results) if append else ())}

    def keep(row: Mapping[str, object]) -> Path:
        rows[key_of(row)] = dict(row)
        return record.write(name, list(rows.values()), device, results)

    for text in texts or SUITE:
        model, dims = parse_row(text)
        job = Job(model, dims, precision, target or default_target(), chosen, calls, flags, out)
        if has_all(rows.get(job.key), chosen):
            continue
        if clock.left <= 0:
            click.echo(f"{text}: skipped, no time left", err=True)
            continue
        click.echo(f"{text} {precision} ({clock.left:.0f} s left)", err=True)
        row = bench_one(job, clock, keep)
        _say(row)
        click.echo(keep(row), err=True)
        torch.cuda.empty_cache()


def _say(row: dict[str, object]) -> None:
    latency, differences = row["latency"], row["difference"]
    assert isinstance(latency, dict) and isinstance(differences, dict)
    for who, figures in sorted(latency.items(), key=lambda item: float(item[1]["median_ms"])):
        spread = f"({figures['p10_ms']:.4f} to {figures['p90_ms']:.4f})"
        click.echo(f"  {who:14} {figures['median_ms']:9.4f} ms {spread}")
    click.echo(f"  floor          {row['floor_ms']:9.4f} ms; differences from float32: {differences}")


if __name__ == "__main__":
    main()
