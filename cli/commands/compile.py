"""``aitc compile``: ONNX model to binary, verified."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aitc.errors import Diagnostic, Exit
from aitc.settings import Settings
from aitc.targets.isa import ISAS

from .. import options as flags
from ..render import Display, diagnostic_json, print_diagnostics, tell

if TYPE_CHECKING:
    from aitc.pipeline import Result
    from aitc.verify.run import Verification


@click.command("compile", short_help="ONNX model to binary, verified")
@click.argument("model", type=flags.MODEL)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("out"),
    show_default=True,
    help="Folder for the result.",
)
@click.option("--name", default="", help="Name of library and functions. Default: the model's file name.")
@flags.model_flags
@click.option(
    "--weights",
    type=click.Choice(("embed", "file")),
    default="embed",
    show_default=True,
    help="Weights inside the library, or in NAME.weights next to it, memory-mapped.",
)
@click.option(
    "--isa",
    "isas",
    multiple=True,
    type=click.Choice(ISAS),
    help="Instruction sets of cpu code. Default: avx2 and avx512, chosen at load.",
)
@flags.compiler_flags
@click.option("--emulate", is_flag=True, help="Build the GPU kernels for the CPU emulator: slow, but needs no GPU.")
@click.option(
    "--require-verify", is_flag=True, help="Exit with 6 if the binary cannot be verified: no device, no reference, or only constant, zero or NaN outputs."
)
@click.option("--no-verify", is_flag=True, help="Do not compare with the reference.")
@flags.data_flag
@flags.timeout_flag
@flags.tolerance_flags
@click.option("--bisect", is_flag=True, help="On a mismatch, name the first ONNX node whose value differs.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random inputs for verification.")
@click.option("--dry-run", is_flag=True, help="Print what would be built and write nothing; short for --stop-after emit.")
@click.option(
    "--stop-after",
    type=click.Choice(flags.STAGES),
    default=flags.STAGES[-1],
    help="Stop after this stage and leave --output alone; --dump writes the stages' text.",
)
@flags.dump_flag
@flags.jobs_flag
@flags.json_flag
@flags.talk
def command(
    model: Path, as_json: bool, verbose: bool, quiet: bool, require_verify: bool, no_verify: bool, **given: Any
) -> int:
    """Compile MODEL (an .onnx file) into a self-contained library, executable and C header.

    \b
    aitc compile model.onnx --target h200 -o out/
    aitc compile model.onnx --target a100 --target h100 --precision fp16 --dim batch=1..32
    """
    from aitc.pipeline import Options, compile, load_all

    if require_verify and no_verify:
        raise click.UsageError("--require-verify and --no-verify exclude each other")
    if given.pop("dry_run"):
        given["stop_after"] = flags.STAGES[min(flags.STAGES.index("emit"), flags.STAGES.index(given["stop_after"]))]
    settings = Settings.read()
    how = "require" if require_verify else "skip" if no_verify else "auto"
    given["jobs"] = given["jobs"] or settings.job_count
    if given["isas"]:  # a flag wins over the environment, also where the finished library reads that
        os.environ["AITC_ISA"] = ",".join(given["isas"])
    for name in ("dump", "tuning"):
        given[name] = given[name] or (Path(getattr(settings, name)) if getattr(settings, name) else None)
    flags.split_inputs(given)
    load_all(verifying=not no_verify)
    with Display(quiet or (as_json and not verbose), verbose) as display:
        result = compile(model, Options(verify=how, **given), display)
    errors = (mismatch(result.name, result.verification),) if result.failed and result.verification else ()
    warnings = () if no_verify or errors else unverified(result.name, result.verification)
    code = Exit.VERIFY if errors else Exit.OK
    if as_json:
        told, warned = [diagnostic_json(e) for e in errors], [diagnostic_json(w) for w in warnings]
        print(json.dumps({"ok": not errors, "exit": int(code), "errors": told, "warnings": warned, **summary(result)}, indent=2))
    else:
        tell("\n".join(lines(result, given["emulate"])), flush=True)
    print_diagnostics(errors)
    print_diagnostics(warnings, "warning")
    return int(code)


INPUTS_HELP = "give inputs of the kind that the model is for with --input NAME=FILE.npy or --data FOLDER"


def unverified(name: str, v: Verification | None) -> tuple[Diagnostic, ...]:
    """What is said, last of all, of a binary that was to be verified and was not."""
    if v is not None and v.ok and v.hollow:
        which = ", ".join(f"{n} is {why}" for n, why in v.vacuous.items())
        return (Diagnostic("V03", f"{name} is hardly verified: {which} in the reference", help=INPUTS_HELP),)
    if v is None or v.status != "not run":
        return ()
    why = "Nothing has shown that it computes what the model says. --require-verify makes this exit code 6"
    return (Diagnostic("V03", f"{name} is NOT VERIFIED: {v.reason}", detail=(why,), help=v.help),)


def mismatch(name: str, v: Verification) -> Diagnostic:
    """What differs, and where most."""
    detail = []
    for o in v.outputs:
        if not o.ok:
            worst = f"; worst at {list(o.where)}: {o.got}, the reference's is {o.want}" if o.where else ""
            detail.append(
                f"{o.name} {o.dtype}{list(o.shape)}: {o.note or f'{o.wrong} of {o.elements} elements differ'}{worst}"
            )
    way_out = v.first_difference or "compile with --bisect: it names the first node that differs"
    return Diagnostic("V01", f"{name} does not match the reference ({v.oracle})", (), "verify", tuple(detail), way_out)


def summary(result: Result) -> dict[str, Any]:
    """What --json prints; the report where there is one."""
    if result.report:
        return {"output": str(result.output), **result.report}
    seconds = {k: round(s, 4) for k, s in result.seconds.items()}
    return {"name": result.name, "targets": [t.name for t in result.targets], "seconds": seconds}


def lines(result: Result, emulated: bool = False) -> list[str]:
    """The result on stdout: where the files are, and how the check went."""
    report = result.report
    if not report:
        stopped = [f"{result.name}: stopped after {list(result.seconds)[-1]}"]
        if result.plan is None or result.sources is None:
            return stopped
        plan = result.plan
        made = f"{len(plan.launches)} launches, {len(plan.kernels)} kernel files, {plan.weights_bytes} bytes of weights"
        return [*stopped, f"{', '.join(plan.targets)}, precision {plan.precision}: {made}"]
    files = ", ".join([*report["files"], f"{report['name']}.json", "src/"])
    launches, kernels = len(report["launches"]), report["kernels"]["files"]
    types = Counter(node["dtype"] for node in report["nodes"])
    ran = (
        f" ({', '.join(f'{n} nodes in {t}' for t, n in types.most_common())})" if report["precision"] != "model" else ""
    )
    targets = ", ".join(report["targets"])
    return [
        f"{result.output}: {files}",
        f"{targets}, precision {report['precision']}{ran}: {launches} launches, {kernels} kernel files",
        f"verification {result.verification}" + ("; its kernels were emulated on the CPU, no GPU ran them" if emulated else ""),
    ]
