"""``aitc tune``: measure configurations of a model's kernels and remember the fastest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aitc.errors import Diagnostic, Exit
from aitc.settings import Settings

from .. import options as flags
from ..render import Display, diagnostic_json, print_diagnostics, tell

if TYPE_CHECKING:
    from aitc.tune import Problem, Tuned


@click.command("tune", short_help="measure configurations and remember the fastest")
@click.argument("model", type=flags.MODEL)
@flags.model_flags
@flags.compiler_flags
@click.option(
    "--seconds",
    type=click.FloatRange(min=0),
    default=120.0,
    show_default=True,
    help="Time for measuring. Building the candidates comes before that; an estimate is printed first.",
)
@click.option(
    "--candidates",
    type=click.IntRange(min=2),
    default=12,
    show_default=True,
    help="Most configurations to measure for each problem; the cost model picks them.",
)
@click.option("--again", is_flag=True, help="Measure problems again that are in the table.")
@click.option(
    "--table",
    type=click.Path(path_type=Path),
    help="File to merge the results into. Default: tuning/<target>.json in the cache folder, which compile reads.",
)
@click.option("--promote", is_flag=True, help="Also merge the results into the shipped table, aitc/tuning/<target>.json.")
@click.option("--emulate", is_flag=True, help="Run on the emulator. The times mean nothing; only --table receives them.")
@flags.jobs_flag
@flags.json_flag
@flags.talk
def command(
    model: Path,
    seconds: float,
    candidates: int,
    again: bool,
    table: Path | None,
    promote: bool,
    as_json: bool,
    verbose: bool,
    quiet: bool,
    **given: Any,
) -> int:
    """Measure configurations of MODEL's kernels on this machine's device, in the model, and remember the fastest.

    \b
    aitc tune model.onnx --target h200 --precision fp16 --seconds 120

    Later compiles choose by the results. A result holds for a kernel, its types and sizes and what is fused into it, so
    other models use it too. On a GPU, tune compares the fastest configurations again in whole runs of the model.

    Ctrl-C ends the measuring early and keeps the results so far. The next run measures the rest; --again repeats
    everything.
    """
    from aitc.pipeline import Options, load_all
    from aitc.tune import TuneOptions, tune
    from aitc.tune import promote as put_into_aitc

    if promote and given["emulate"]:
        raise click.UsageError("--promote and --emulate exclude each other: emulated times mean nothing")
    settings = Settings.read()
    flags.split_inputs(given)
    given["jobs"] = given["jobs"] or settings.job_count
    given["tuning"] = given["tuning"] or (Path(settings.tuning) if settings.tuning else None)
    load_all(verifying=False)
    with Display(quiet or (as_json and not verbose), verbose) as display:
        tuned = tune(model, Options(**given), TuneOptions(seconds, candidates, again, table), display)
    promoted = put_into_aitc(tuned) if promote else None
    code = Exit.INTERRUPTED if tuned.interrupted else Exit.OK
    errors: tuple[Diagnostic, ...] = ()
    if tuned.interrupted:
        kept = f"{len(tuned.problems)} problems are kept in {tuned.table}" if tuned.table and tuned.problems else "nothing is kept"
        way_on = "run it again to go on" if tuned.missing or not tuned.table else "all were measured once; --again compares them anew"
        errors = (Diagnostic("C01", f"interrupted; {kept}", help=way_on),)
    if as_json:
        told = [diagnostic_json(e) for e in errors]
        print(json.dumps({"ok": not errors, "exit": int(code), "errors": told, **summary(tuned, promoted)}, indent=2))
    else:
        tell("\n".join(lines(tuned, promoted)))
    print_diagnostics(errors)
    return int(code)


def summary(tuned: Tuned, promoted: Path | None) -> dict[str, Any]:
    """What --json prints."""
    return {
        "target": tuned.target.name,
        "device": tuned.device,
        "table": str(tuned.table) if tuned.table else None,
        "promoted": str(promoted) if promoted else None,
        "measured_before": tuned.before,
        "passes": tuned.passes,
        "seconds": round(tuned.seconds, 2),
        "default_us": round(tuned.default_us, 3),
        "gained_us": round(tuned.gained_us, 3),
        "runs_us": [round(us, 3) for us in tuned.runs_us] if tuned.runs_us else None,
        "problems": [_problem(p) for p in tuned.problems],
    }


def _problem(p: Problem) -> dict[str, Any]:
    return {
        "problem": p.key,
        "kernel": p.kernel,
        "launches": p.launches,
        "default": p.default,
        "best": p.best,
        "gained_us": round(p.gained_us, 3),
        "us": {c: round(us, 3) for c, us in sorted(p.times.items(), key=lambda e: e[1])},
        "predicted_us": {c: round(us, 3) for c, us in p.scores.items()},
    }


def lines(tuned: Tuned, promoted: Path | None) -> list[str]:
    """The result on stdout: each problem, what was gained, where it is kept."""
    rows = []
    for p in tuned.problems:
        before, after = p.times[p.default], p.times[p.best]
        change = f"{p.default} {before:.2f} us" + (f" -> {p.best} {after:.2f} us" if p.best != p.default else " stays")
        saved = f": {p.gained_us:.2f} us less" if p.gained_us else ""
        judged = f"the fastest of {len(p.times)}" if p.settled is None else f"of {len(p.times)}, in whole runs{saved}"
        rows.append(f"{p.launches} x {p.key}: {change}, {judged}")
    if tuned.problems:
        gained = tuned.gained_us / tuned.default_us if tuned.default_us else 0.0
        rows.append(
            f"{len(tuned.problems)} problems on {tuned.device} in {tuned.passes} passes: "
            f"gained {tuned.gained_us:.1f} of {tuned.default_us:.1f} us ({gained:.1%})"
        )
        if tuned.runs_us:
            before, after = tuned.runs_us
            chosen = f", with what whole runs chose in the measured places {after:.1f} us" if after != before else ""
            rows.append(f"a run, launch after launch, took {before:.1f} us{chosen}")
        rows.append(f"kept in {tuned.table}" if tuned.table else "emulated: kept nowhere")
    elif tuned.interrupted:
        rows.append("nothing measured")
    elif tuned.passes:
        rows.append("nothing measured: of what can be chosen nothing runs with these inputs")
    else:
        rows.append("nothing to measure" + (f": {tuned.before} problems were measured before (--again)" if tuned.before else ""))
    return rows + ([f"promoted to {promoted}"] if promoted else [])
