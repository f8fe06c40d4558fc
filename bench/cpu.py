"""aitc beside ONNX Runtime on this machine's CPU, batch 1, both with the same number of threads, in turns, each in a
process of its own as a service would run it.

`python -m bench.cpu` needs the extra [models] (torch exports the networks once, into out/bench/models/).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import click
import numpy as np

from bench import measure, record
from bench.product import compile_model, full_model
from models import catalog

DEFAULT = ("resnet50", "bert_base", "mobilenet_v3")
BAR = 1.5  # times ONNX Runtime's latency


def aitc_call(folder: Path, feed: Mapping[str, np.ndarray]) -> Callable[[], list[np.ndarray]]:
    import aitc

    network, arrays = aitc.load(folder), list(feed.values())
    return lambda: network(*arrays)


def onnxruntime_call(path: Path, feed: Mapping[str, np.ndarray], threads: int) -> Callable[[], list[np.ndarray]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, dict(feed))


def bench_one(name: str, calls: int, threads: int, out: Path) -> dict[str, object]:
    """One row: both latencies, their ratio (below 1: aitc is faster), and how far the results are apart."""
    from models.inputs import make_inputs

    path = full_model(name)
    architecture = catalog.find(name)
    feed = make_inputs(architecture.inputs("full"), architecture.dims("full"), seed=1)
    compiled = compile_model(path, out / name, "cpu", "--no-verify")
    feed = {i: feed[i] for i in compiled.inputs()}
    with (
        measure.own_process(aitc_call, compiled.folder, feed) as (ours, aitc_sampler),
        measure.own_process(onnxruntime_call, path, feed, threads) as (theirs, onnxruntime_sampler),
    ):
        figures = measure.in_turns({"aitc": aitc_sampler, "onnxruntime": onnxruntime_sampler}, calls, rounds=10, rest=0.1)
    difference = max(float(np.abs(a - b).max() / max(1e-6, float(np.abs(b).max()))) for a, b in zip(ours, theirs))
    ratio, least = (figures["aitc"][key] / figures["onnxruntime"][key] for key in ("median_ms", "min_ms"))
    return {
        "model": name,
        "dims": dict(architecture.dims("full")),
        "threads": threads,
        "latency": figures,
        "ratio": round(ratio, 3),
        "ratio_of_minima": round(least, 3),  # on a machine with other work to do, the fairer one
        "max_difference": difference,  # of the largest value of each output
        "compile_s": round(compiled.seconds, 2),
        **compiled.sizes(),
    }


@click.command()
@click.option("--models", default=",".join(DEFAULT), show_default=True, help="Names of the catalog, comma-separated.")
@click.option("--calls", default=50, show_default=True, help="Timed calls of each.")
@click.option("--threads", type=int, help="Default: the cores this process may use.")
@click.option("-o", "--out", type=click.Path(path_type=Path), default=Path("out/bench/cpu"), show_default=True)
@click.option("--results", type=click.Path(path_type=Path), help="Folder of the result; bench/results by default.")
def main(models: str, calls: int, threads: int | None, out: Path, results: Path | None) -> None:
    """Latency of aitc and ONNX Runtime on the CPU, side by side."""
    used = threads or len(os.sched_getaffinity(0))
    os.environ["AITC_NUM_THREADS"] = str(used)
    rows = []
    for name in models.split(","):
        row = bench_one(name, calls, used, out)
        rows.append(row)
        latency = row["latency"]
        assert isinstance(latency, dict)
        line = ", ".join(
            f"{who} {f['median_ms']:.2f} ms ({f['p10_ms']:.2f} to {f['p90_ms']:.2f})" for who, f in latency.items()
        )
        click.echo(
            f"{name}: {line}; ratio {row['ratio']} (of minima {row['ratio_of_minima']}; bar {BAR}), difference {row['max_difference']:.1e}"
        )
    click.echo(record.write("cpu", rows, record.cpu_name(), results), err=True)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
