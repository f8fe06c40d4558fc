"""How well the cost model predicts: `score_us` beside measured times, of the configurations it chooses and of all candidates.

`python -m bench.score` measures on this machine's processor; `--target h200 --precision fp16` on a GPU. Times come from `aitc tune`,
which measures every candidate in the model; nothing is put into a table but that of `--table`. Needs the extra [models] to export the networks
once, or `--file`.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click

from aitc.pipeline import Options, load_all
from aitc.schedule.choose.table import merge_into
from aitc.tune import Problem, TuneOptions, tune
from bench import record
from bench.product import full_model
from bench.suite import HALF_EXPORTS, SUITE, parse_row

DEFAULT = ("resnet50", "bert_base", "mobilenet_v3")
NEAR = 0.15  # the goal: no further from what is measured


def share(hits: Sequence[bool]) -> float:
    """The part that is true; 0 of nothing."""
    return round(sum(hits) / len(hits), 4) if hits else 0.0


def near(predicted: float, measured: float) -> bool:
    return abs(predicted - measured) <= NEAR * measured


def judge(problems: Sequence[Problem], others: Sequence[Problem]) -> dict[str, object]:
    """The figures of a model. `others` have one configuration: predicted, but not chosen."""
    chosen = [(p.scores[p.default], p.times[p.default]) for p in (*problems, *others)]
    every = [(p.scores[c], us) for p in (*problems, *others) for c, us in p.times.items() if c in p.scores]
    ratios = sorted(score / us for score, us in every if us)
    best = [min(p.times.values()) for p in problems]
    default = sum(p.times[p.default] * p.launches for p in problems)
    fixed = sum(p.times[p.default] * p.launches for p in others)
    fastest = sum(us * p.launches for p, us in zip(problems, best, strict=True))
    return {
        "problems": len(problems) + len(others),
        "with_a_choice": len(problems),
        "candidates": len(every),
        "chosen_predicted_within_15_percent": share([near(*pair) for pair in chosen]),
        "candidates_predicted_within_15_percent": share([near(*pair) for pair in every]),
        "predicted_over_measured": {
            "p10": round(ratios[len(ratios) // 10], 3),
            "median": round(statistics.median(ratios), 3),
            "p90": round(ratios[len(ratios) * 9 // 10], 3),
        }
        if ratios
        else {},
        "choices_within_15_percent_of_fastest": share(
            [p.times[p.default] <= (1 + NEAR) * us for p, us in zip(problems, best, strict=True)]
        ),
        "choices_us": round(default, 2),  # all launches of problems with a choice, as the model chooses
        "fastest_us": round(fastest, 2),
        "without_a_choice_us": round(fixed, 2),
        "latency_over_tuned": round((default + fixed) / (fastest + fixed), 4) if fastest + fixed else 1.0,
    }


def _exported(row: str, precision: str) -> Path:
    """The ONNX file of a row of the catalog; in half precision where it is published so and half is asked for."""
    name, dims = parse_row(row)
    half = name in HALF_EXPORTS and precision == "fp16"
    return full_model(name, "float16" if half else "float32", **dims)


def threads() -> int:
    """How many threads cpu kernels run in, as thread_pool.h decides it."""
    return int(os.environ.get("AITC_NUM_THREADS") or len(os.sched_getaffinity(0)))


@click.command()
@click.option("--models", default=",".join(DEFAULT), show_default=True, help="Names of the catalog, comma-separated.")
@click.option("--row", "rows_asked", multiple=True, metavar="MODEL,DIM=N,...", help="A model with its dims instead; repeatable.")
@click.option("--suite", is_flag=True, help="All rows of bench.gpu instead.")
@click.option("--file", "files", multiple=True, type=click.Path(path_type=Path), help="An ONNX file instead; repeatable.")
@click.option("--target", default="cpu", show_default=True)
@click.option("--precision", default="model", show_default=True)
@click.option("--seconds", default=30.0, show_default=True, help="Of measuring, for each model.")
@click.option("--candidates", default=24, show_default=True, help="Of each problem at most.")
@click.option("--table", type=click.Path(path_type=Path), help="Merge what was measured into this tuning table, too.")
@click.option("--budget", default=0.0, help="Seconds in all: no model is begun after them. 0: no end.")
@click.option("--jobs", default=0, help="Compilers at once. Default: processors, bounded by memory.")
@click.option("--results", type=click.Path(path_type=Path), help="Folder of the result; bench/results by default.")
def main(
    models: str,
    rows_asked: tuple[str, ...],
    suite: bool,
    files: tuple[Path, ...],
    target: str,
    precision: str,
    seconds: float,
    candidates: int,
    table: Path | None,
    budget: float,
    jobs: int,
    results: Path | None,
) -> None:
    """Predicted beside measured times of kernels."""
    load_all(verifying=False)
    rows: list[dict[str, object]] = []
    device = record.cpu_name()
    begun = time.monotonic()
    asked = SUITE if suite else rows_asked or tuple(models.split(","))
    for what in files or asked:
        if budget and time.monotonic() - begun > budget:
            click.echo(f"{what}: not begun, the budget is used up")
            continue
        path = what if isinstance(what, Path) else _exported(what, precision)
        with tempfile.TemporaryDirectory(prefix="aitc-score-") as folder:
            how = TuneOptions(seconds, candidates, again=True, table=Path(folder) / "table.json", use_table=False)
            tuned = tune(path, Options(targets=(target,), precision=precision, jobs=jobs), how)
        if table is not None:
            merge_into(table, [p.entry() for p in tuned.problems])
        found = judge(tuned.problems, tuned.others)
        device = tuned.device if target != "cpu" else device
        rows.append(
            {
                "model": path.stem,
                "target": tuned.target.name,
                "precision": precision,
                **({"threads": threads()} if target == "cpu" else {}),
                "passes": tuned.passes,
                **found,
                **({"runs_us": [round(us, 2) for us in tuned.runs_us]} if tuned.runs_us else {}),
                "details": [detail(p) for p in (*tuned.problems, *tuned.others)],
            }
        )
        click.echo(f"{path.stem}: " + ", ".join(f"{k} {v}" for k, v in found.items()))
        if tuned.runs_us:
            click.echo(f"{path.stem}: a run {tuned.runs_us[0]:.1f} us as chosen without a table, {tuned.runs_us[1]:.1f} us tuned")
    click.echo(record.write(f"score_{target}", rows, device, results), err=True)


def detail(p: Problem) -> dict[str, object]:
    """Predicted and measured time of each configuration of a problem, in us."""
    return {
        "problem": p.key,
        "launches": p.launches,
        "chosen": p.default,
        **({"settled": p.settled, "saved_us": round(p.saved_us, 2)} if p.settled is not None else {}),
        "us": {c: [round(p.scores.get(c, 0.0), 2), round(us, 2)] for c, us in p.times.items()},
    }


if __name__ == "__main__":
    main()
