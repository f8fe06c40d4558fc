"""``aitc verify``: compare a binary with the reference again, on other inputs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aitc.errors import Diagnostic, Exit
from aitc.settings import Settings

from .. import interrupt
from .. import options as flags
from ..render import print_diagnostics, tell
from .compile import mismatch

if TYPE_CHECKING:
    from aitc.verify.run import Verification


@click.command("verify", short_help="compare a binary with the reference again")
@click.argument("model", type=flags.MODEL)
@click.argument("output", type=click.Path(path_type=Path), default=Path("out"))
@click.option("--name", default="", help="The model to use, if OUTPUT holds several.")
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the random inputs.")
@click.option(
    "--runs", type=click.IntRange(min=1), default=1, show_default=True, help="Seeds to try, one after another."
)
@flags.dim_flag
@flags.files_flag
@flags.data_flag
@click.option("--device", type=int, help="Number of the GPU. Default: AITC_DEVICE, else 0.")
@flags.timeout_flag
@flags.tolerance_flags
@flags.json_flag
@flags.talk
def command(
    model: Path,
    output: Path,
    name: str,
    seed: int,
    runs: int,
    dims: flags.Dims,
    input_files: tuple[tuple[str, Path], ...],
    data: Path | None,
    device: int | None,
    verify_timeout: float,
    rtol: float | None,
    atol: float | None,
    as_json: bool,
    verbose: bool,
    quiet: bool,
) -> int:
    """Compare the binary in OUTPUT (the -o of compile) with what onnxruntime computes for MODEL, on fresh random
    inputs, or on those of --input and --data."""
    from aitc.report import digest, find_report, subject_of, verification_json
    from aitc.verify.compare import asked_tolerance
    from aitc.verify.data import asked_sizes, read_given
    from aitc.verify.reference import load_oracle
    from aitc.verify.run import verify

    asked = asked_tolerance(rtol, atol)
    _, report = find_report(output, name)
    subject = subject_of(output, report, Settings.read().device_index if device is None else device)
    sizes, rules = asked_sizes(dims, subject.dims)
    subject = replace(subject, limit_s=verify_timeout, asked=asked, sizes=sizes, requires=(*subject.requires, *rules))
    given = read_given(input_files, data, subject.inputs, [p.name for p in subject.outputs], subject.dims, subject.bound)
    load_oracle()
    with interrupt.unwinding():
        answers = [verify(subject, model, seed + 2 * i, given) for i in range(runs)]
    failed = [v for v in answers if v.status == "failed"]
    absent = [v for v in answers if v.status == "not run"]
    code = Exit.VERIFY if failed or absent else Exit.OK
    if as_json:
        print(
            json.dumps(
                {"ok": code is Exit.OK, "exit": int(code), "runs": [verification_json(v) for v in answers]}, indent=2
            )
        )
    else:
        for v in answers:
            tell(f"seed {v.seed}: {v}")
    if failed or absent:
        problem = mismatch(subject.name, failed[0]) if failed else unverifiable(subject.name, absent[0])
        if report["digests"]["model"] != digest(model):
            problem = replace(problem, detail=(*problem.detail, f"{output} was compiled from another file than {model}"))
        print_diagnostics((problem,))
    return int(code)


def unverifiable(name: str, v: Verification) -> Diagnostic:
    return Diagnostic("V02", f"{name} could not be verified: {v.reason}", stage="verify", help=v.help)

