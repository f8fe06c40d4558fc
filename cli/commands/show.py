"""``aitc show``: any stage as text, with statistics."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aitc.errors import Exit
from aitc.settings import Settings

from .. import options as flags
from ..render import Display, tell

if TYPE_CHECKING:
    from aitc.pipeline import Result


@click.command("show", short_help="print any stage as text, with statistics")
@click.argument("model", type=flags.MODEL)
@click.option("--stage", type=click.Choice(flags.STAGES[:7]), default="fuse", show_default=True, help="Stage to print.")
@click.option("--statistics", is_flag=True, help="Print only counts: nodes by op and kind, launches, memory.")
@click.option("--why", is_flag=True, help="With --stage schedule: print the launches after each fusion, and why pairs stay separate.")
@click.option("--file", "wanted", default="", help="With --stage emit: print only this generated file.")
@click.option(
    "--resources",
    is_flag=True,
    help="With --stage schedule: compile the GPU kernels and print the registers, shared memory, spills and occupancy of each.",
)
@flags.model_flags
@flags.json_flag
@flags.talk
def command(
    model: Path,
    stage: str,
    statistics: bool,
    why: bool,
    wanted: str,
    resources: bool,
    as_json: bool,
    verbose: bool,
    quiet: bool,
    **given: Any,
) -> int:
    """Print MODEL as it is after a stage. The text of import to layout parses back; plan is JSON; emit is the
    generated code."""
    from aitc import describe
    from aitc.build.resources import resources_json, usage
    from aitc.pipeline import Options, choose_targets, compile
    from aitc.schedule.core.why import text as fusion_text

    if (resources or why) and stage != "schedule":
        raise click.UsageError(f"--{'why' if why else 'resources'} goes with --stage schedule")
    if resources and not choose_targets(given["targets"])[0].gpu:
        raise click.UsageError("--resources is about GPU kernels, and this is for cpu: name a GPU, for example -t h200")
    flags.split_inputs(given)
    tuning = given["tuning"] or Settings.read().tuning
    options = Options(stop_after="build" if resources else stage, **{**given, "tuning": Path(tuning) if tuning else None})
    with Display(quiet or not verbose, verbose) as display:
        result = compile(model, options, display)
    assert result.graph is not None
    counts: dict[str, Any] = {"stage": stage, **describe.graph_statistics(result.graph)}
    if stage == "fuse":
        counts["rules"] = result.context.log.counts()
    if result.plan is not None:
        counts["plan"] = describe.plan_statistics(result.plan)
        used = usage(result.plan, result.resources)
        if resources:
            counts["resources"] = [resources_json(u) for u in used]
    if why:
        counts["fusion"] = _fusion(result)
    if as_json:
        print(json.dumps(counts, indent=2))
        return int(Exit.OK)
    if why:
        tell(fusion_text(result.fusions, _merged(result), result.context.apart), end="")
        return int(Exit.OK)
    if statistics:
        _print_counts(counts)
        return int(Exit.OK)
    if stage == "emit":
        assert result.sources is not None
        names = [n for n in result.sources if not wanted or n == wanted]
        if wanted and not names:
            raise click.UsageError(f"there is no generated file {wanted!r}; there are {', '.join(result.sources)}")
        for name in names:
            if not wanted:
                tell(f"==> {name} <==")
            sys.stdout.write(result.sources[name])
    elif stage == "plan":
        assert result.plan is not None
        sys.stdout.write(describe.plan_said(result.plan).texts()["json"])
    elif stage == "schedule":
        assert result.plan is not None
        tell(describe.launches_text(result.plan, used), end="")
    else:
        tell(describe.graph_said(result.graph).texts()["txt"], end="")
    return int(Exit.OK)


def _merged(result: Result) -> int:
    """Products that became part of another."""
    return sum(ran.changes for ran in result.context.ran if ran.name == "merge_matmuls")


def _fusion(result: Result) -> dict[str, Any]:
    """What --json says of --why."""
    from aitc.schedule.core.why import counts

    apart = [*result.context.apart, *result.fusions.apart]
    return {
        "launches": [{"after": what, "launches": n, "what": more} for what, n, more in counts(result.fusions, _merged(result))],
        "apart": [asdict(a) for a in apart],
    }


def _print_counts(counts: dict[str, Any], indent: str = "") -> None:
    for key, value in counts.items():
        if isinstance(value, dict):
            tell(f"{indent}{key}:")
            _print_counts(value, indent + "  ")
        elif isinstance(value, list):
            tell(f"{indent}{key}:")
            for item in value:
                tell(f"{indent}  {item}")
        else:
            tell(f"{indent}{key}: {value}")
