"""``aitc bench``: measure a binary's latency."""

from __future__ import annotations

import json
from pathlib import Path

import click

from aitc.errors import AitcError, Diagnostic, Exit
from aitc.settings import Settings

from .. import interrupt
from .. import options as flags


@click.command("bench", short_help="measure a binary's latency")
@click.argument("output", type=click.Path(path_type=Path), default=Path("out"))
@click.option("--name", default="", help="Which model, where OUTPUT holds several.")
@click.option("--iters", type=click.IntRange(min=1), default=100, show_default=True, help="Timed runs.")
@click.option("--warmup", type=click.IntRange(min=0), default=10, show_default=True, help="Runs before, not timed.")
@flags.dim_flag
@click.option("--profile", is_flag=True, help="Also each launch: time, rates, share of floor, gap, ONNX nodes.")
@click.option("--trace", type=click.Path(path_type=Path), help="Write a profile that Perfetto opens into this file.")
@click.option("--device", type=int, help="Number of the GPU. Default: AITC_DEVICE, else 0.")
@flags.json_flag
def command(
    output: Path,
    name: str,
    iters: int,
    warmup: int,
    dims: tuple[tuple[str, int | tuple[int, int]], ...],
    profile: bool,
    trace: Path | None,
    device: int | None,
    as_json: bool,
) -> int:
    """Time the model in OUTPUT (the -o of compile) on random inputs: percentiles of the latency, and what each launch
    takes of it.

    The floor of a launch is the larger of its operations at the target's peak rate and its operands, each moved once,
    at the target's bandwidth (aitc/targets/*.toml).
    """
    from aitc import profile as profiles
    from aitc.report import find_report
    from aitc.verify.run import run_executable

    _, report = find_report(output, name)
    number = Settings.read().device_index if device is None else device
    call = [str(output.absolute() / report["name"]), "--bench", "--json", "--device", str(number)]
    call += ["--iters", str(iters), "--warmup", str(warmup)]
    known = {d["model_name"] for d in report["dims"]} | {d["name"] for d in report["dims"]}
    for dim, size in dims:
        if dim not in known or not isinstance(size, int):
            what = f"{dim}={size}: bench needs one size" if dim in known else f"the model has no symbolic dim {dim!r}"
            raise AitcError(Diagnostic("C02", what, help=f"dims: {', '.join(sorted(known)) or 'none'}"), Exit.USAGE)
        call += ["--dim", f"{dim}={size}"]
    if profile or trace:
        call.append("--profile")
    with interrupt.unwinding():
        answer = json.loads(run_executable(call))
    found = profiles.profile_of(answer, report) if profile or trace else None
    if found is not None:
        if trace is not None:
            trace.write_text(json.dumps(profiles.chrome_trace(found)) + "\n", encoding="utf-8")
        del answer["launches"], answer["timeline"]
        if profile and as_json:
            answer["profile"] = found.to_json()
    if as_json:
        print(json.dumps({"ok": True, "exit": 0, **answer}, indent=2))
        return int(Exit.OK)
    for key, value in answer.items():
        if isinstance(value, dict):
            print(f"{key}: " + ", ".join(f"{k} {v}" for k, v in value.items()))
        elif isinstance(value, list):
            print(f"{key}:")
            for row in value:
                print("  " + (", ".join(f"{k} {v}" for k, v in row.items()) if isinstance(row, dict) else str(row)))
        else:
            print(f"{key}: {value}")
    if profile and found is not None:
        print(profiles.table(found), end="")
    return int(Exit.OK)
