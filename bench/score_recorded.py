"""The cost model beside times that were measured on an H200 before, the races of results/kernels_h200.json: needs no device.

`python -m bench.score_recorded` says of each product and attention in float16 how far the time predicted for the chosen configuration is from the best that was
measured.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import click

from aitc.ir.text import from_text
from aitc.registry import load
from aitc.schedule.choose.select import Candidates
from aitc.schedule.schedule import PlanOptions, schedule_with
from aitc.targets.target import find_target
from bench import record
from bench.score import near, share

SOURCE = record.RESULTS / "kernels_h200.json"
PRODUCT = re.compile(r"gemm_sm90 (\d+),(\d+),(\d+)$")
ATTENTION = re.compile(r"attention_sm90 \((\d+),(\d+),(\d+)(?:x(\d+))?,(\d+)\)( causal)?$")


@dataclass(frozen=True, slots=True)
class Recorded:
    """A race: its graph, and the best time that was measured in us."""

    name: str
    graph: str
    us: float


def recorded() -> list[Recorded]:
    """The products (with a bias) and attentions that raced, in float16."""
    found = []
    for race in json.loads(SOURCE.read_text(encoding="utf-8"))["races"]:
        best = min(float(c["us"]) for c in race["candidates"])
        if product := PRODUCT.match(race["race"]):
            M, N, K = product.groups()
            body = "%p = MatMul(%x, %w)\n  %y = Add(%p, %b)"
            inputs = f"input %x: f16[{M}, {K}]\n  const %w: f16[{K}, {N}] = random(1)\n  const %b: f16[{N}] = random(2)"
            found.append(Recorded(race["race"], _graph(inputs, body), best))
        elif attention := ATTENTION.match(race["race"]):
            B, H, S, T, D, causal = attention.groups()
            shapes = {"q": S, "k": T or S, "v": T or S}
            inputs = "\n  ".join(f"input %{name}: f16[{B}, {H}, {length}, {D}]" for name, length in shapes.items())
            body = f"%y = Attention(%q, %k, %v) {{scale = {int(D) ** -0.5}, causal = {'true' if causal else 'false'}}}"
            found.append(Recorded(race["race"], _graph(inputs, body), best))
    return found


def _graph(inputs: str, body: str) -> str:
    return f'graph "main" {{\n  {inputs}\n  {body}\n  output "y" = %y\n}}\n'


def rows() -> list[dict[str, object]]:
    """What the cost model chooses and predicts for each problem, beside what was measured."""
    for package in ("aitc.ops", "aitc.kernels"):
        load(package)
    found: list[dict[str, object]] = []
    for problem in recorded():
        select = Candidates(None, 1)
        schedule_with(from_text(problem.graph), find_target("h200"), PlanOptions("score", "score"), select)
        choice = max((s[0] for s in select.slots), key=lambda c: c.score_us)  # the others are copies
        found.append(
            {
                "problem": problem.name,
                "kernel": choice.kernel,
                "config": str(choice.config),
                "predicted_us": round(choice.score_us, 2),
                "measured_us": problem.us,
                "ratio": round(choice.score_us / problem.us, 3),
                "within_15_percent": near(choice.score_us, problem.us),
            }
        )
    return found


@click.command()
def main() -> None:
    """Predicted beside recorded times of Hopper kernels."""
    found = rows()
    for row in found:
        click.echo(", ".join(f"{k} {v}" for k, v in row.items()))
    click.echo(f"within 15 %: {share([bool(row['within_15_percent']) for row in found]):.0%} of {len(found)}")
    click.echo(record.write("score_h200_recorded", found, f"predicted anywhere; measured as {SOURCE.name} says"), err=True)


if __name__ == "__main__":
    main()
