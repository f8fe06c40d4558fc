"""``aitc bench``: measure a binary's latency."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from aitc.errors import Exit
from aitc.settings import Settings

from .. import interrupt
from .. import options as flags
from ..render import tell

TRACE_KEYS, REPORT_KEYS = {"traceEvents", "aitc"}, {"format", "aitc", "models"}  # an older file that has them may be replaced
Files = tuple[tuple[str, Path], ...]


@click.command("bench", short_help="measure a binary's latency")
@click.argument("outputs", metavar="[OUTPUT]...", type=click.Path(path_type=Path), nargs=-1)
@click.option("--name", default="", help="The model to use, if OUTPUT holds several.")
@click.option("--iters", type=click.IntRange(min=1), default=100, show_default=True, help="Timed runs.")
@click.option("--warmup", type=click.IntRange(min=0), default=10, show_default=True, help="Runs before the timed ones.")
@flags.dim_flag
@flags.files_flag
@flags.data_flag
@click.option("--profile", is_flag=True, help="Also print each launch: time, rates, share of floor, gap and ONNX nodes.")
@click.option("--trace", type=click.Path(path_type=Path), help="Write a profile for Perfetto to this file.")
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    help="Write a report to send us: versions, device, verification and times, but nothing of the models.",
)
@click.option("--device", type=int, help="Number of the GPU. Default: AITC_DEVICE, else 0.")
@flags.json_flag
def command(
    outputs: tuple[Path, ...],
    name: str,
    iters: int,
    warmup: int,
    dims: flags.Dims,
    input_files: Files,
    data: Path | None,
    profile: bool,
    trace: Path | None,
    report: Path | None,
    device: int | None,
    as_json: bool,
) -> int:
    """Time the model in OUTPUT (the -o of compile; default: out) on random inputs, or on those of --input and --data.
    Print percentiles of the latency, and with --profile the time of each launch.

    The floor of a launch is the least time it can take: its operations at the target's peak rate, or its operands,
    each moved once, at the target's bandwidth, whichever takes longer (rates: aitc/targets/*.toml).
    """
    from aitc import profile as profiles
    from aitc.build.output import replace_json, require_json_place

    folders = outputs or (Path("out"),)
    load, busy = _load()
    number = Settings.read().device_index if device is None else device
    flags_of_runs = ("--device", str(number), "--iters", str(iters), "--warmup", str(warmup))
    if report is not None:
        if profile:
            raise click.UsageError("--report needs no --profile: it holds the times of launches")
        if trace is not None and len(folders) > 1:
            raise click.UsageError("--trace is of one OUTPUT")
        return _report(folders, name, dims, flags_of_runs, report, trace, as_json)
    if len(folders) > 1:
        raise click.UsageError("several OUTPUTs go with --report alone")
    if trace is not None:
        require_json_place(trace, TRACE_KEYS)
    about, answer = _run(folders[0], name, dims, [*flags_of_runs, *(["--profile"] if profile or trace else [])], True, input_files, data)
    found = profiles.profile_of(answer, about) if profile or trace else None
    if found is not None:
        if trace is not None:
            replace_json(trace, profiles.chrome_trace(found), TRACE_KEYS)
        del answer["launches"], answer["timeline"]
        if profile and as_json:
            answer["profile"] = found.to_json()
    print(busy, end="", file=sys.stderr)
    if as_json:
        print(json.dumps({"ok": True, "exit": 0, **answer, "load": load}, indent=2))
        return int(Exit.OK)
    for key, value in answer.items():
        if isinstance(value, dict):
            tell(f"{key}: " + ", ".join(f"{k} {v}" for k, v in value.items()))
        elif isinstance(value, list):
            tell(f"{key}:")
            for row in value:
                tell("  " + (", ".join(f"{k} {v}" for k, v in row.items()) if isinstance(row, dict) else str(row)))
        else:
            tell(f"{key}: {value}")
    if profile and found is not None:
        tell(profiles.table(found), end="")
    return int(Exit.OK)


def _run(
    folder: Path, name: str, dims: flags.Dims, more: Sequence[str], strict: bool = True, files: Files = (), data: Path | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The report of the model in ``folder``, and what its binary says of its times, on the data given or on made-up ones of sizes that
    fit each other. Unless ``strict``, dims that it has not are left out."""
    from aitc.report import find_report, subject_of
    from aitc.schedule.plan.dims import consistent, typical_sizes
    from aitc.verify.data import asked_sizes, read_given
    from aitc.verify.run import run_executable, save

    _, report = find_report(folder, name)
    subject = subject_of(folder, report)
    if not strict:
        known = {n for d in subject.dims for n in (d.name, d.model_name)}
        dims = tuple((n, v) for n, v in dims if n in known)
    asked, rules = asked_sizes(dims, subject.dims)
    given = next(iter(read_given(files, data, subject.inputs, [p.name for p in subject.outputs], subject.dims)), None)
    shown = dict(given.sizes) if given else {}
    typical = typical_sizes(subject.dims, subject.inputs, subject.requires)
    fixed = {**asked, **shown}
    sizes = consistent({**typical, **fixed}, subject.dims, (*subject.requires, *rules), fixed) or {**typical, **fixed}
    call = [str(folder.absolute() / report["name"]), "--bench", "--json", *more]
    for d in subject.dims:
        if d.name in asked or (d.name not in shown and sizes[d.name] != typical[d.name]):
            call += ["--dim", f"{d.name}={sizes[d.name]}"]
    with interrupt.unwinding(), tempfile.TemporaryDirectory(prefix="aitc-bench-") as place:
        for i, (port, array) in enumerate(given.inputs.items() if given else ()):
            save(Path(place) / f"{i}.npy", array)
            call += ["--input", f"{port}={Path(place) / f'{i}.npy'}"]
        return report, json.loads(run_executable(call))


BUSY = 0.3  # processes waiting for or using a processor, for each processor, before anything is timed


def _load() -> tuple[float | None, str]:
    """The machine's load average of the last minute, None where it is not known, and what is to be said of it."""
    try:
        load, processors = os.getloadavg()[0], os.cpu_count() or 1
    except OSError:
        return None, ""
    if load <= BUSY * processors:
        return round(load, 2), ""
    said = f"note: this machine is busy (load {load:.1f} on {processors} processors): times may be longer than on a quiet one\n"
    return round(load, 2), said


def _report(
    folders: Sequence[Path], name: str, dims: flags.Dims, runs: Sequence[str], file: Path, trace: Path | None, as_json: bool
) -> int:
    """Measures each model and writes the file for us."""
    from aitc.build.output import replace_json, require_json_place
    from aitc.field_report import field_report, line, model_report
    from aitc.profile import chrome_trace, profile_of

    require_json_place(file, REPORT_KEYS)
    if trace is not None:
        require_json_place(trace, TRACE_KEYS)
    models = []
    for folder in folders:
        about, answer = _run(folder, name, dims, [*runs, "--profile"], strict=False)
        found = profile_of(answer, about)
        models.append(model_report(about, answer, found))
        if trace is not None:
            replace_json(trace, chrome_trace(found), TRACE_KEYS)
        if not as_json:
            tell(line(models[-1]), flush=True)
    content = field_report(models)
    replace_json(file, content, REPORT_KEYS)
    if as_json:
        print(json.dumps({"ok": True, "exit": 0, **content}, indent=2))
    else:
        tell(f"{file}: {len(models)} models; look through it, and attach it to an issue")
    return int(Exit.OK)
