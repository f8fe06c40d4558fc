"""The page of the kernels' races, results/kernels_h200.md, from results/kernels_h200.json, which
`tests/kernels/gpu/run_on_device.py --time --json` writes: each kernel beside cuBLAS, cuDNN or SDPA on the same buffers."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from bench.record import RESULTS

SLOW = 0.95  # of the library's speed: what is below is listed first
HOW = """Each call alone in a replayed CUDA graph of many, hot inputs, device events, the median of five replays. Ours includes the epilogue that torch
runs too: `addmm`, `conv2d` + `relu` (rows of Hopper: cuDNN's call that does both), `scaled_dot_product_attention` with its best back end,
`layer_norm` and so on. The fastest of the configurations tried is named; the error is the norm of the difference from torch's result over the norm of
that. `sm80` rows use mma.sync, which Hopper runs well below the rate of wgmma (`sm90` rows; torch's libraries use it too): they are what code for an
A100 does here. `simt` rows are float32 without TF32.
"""


def page(found: Mapping[str, Any], name: str) -> str:
    """The page as Markdown. ``found``: the file's content; ``name``: the file's."""
    about, races = found["about"], found["races"]
    own = [r for r in races if "sm80" not in r["race"] and "simt" not in r["race"]]
    slow = [r for r in own if _ratio(r) < SLOW]
    lines = [
        f"# Kernels beside torch on one {about['device']}",
        "",
        f"From `{name}`: commit {about['commit']}, {about['date'][:10]}, torch {about['versions']['torch']}. `{about['command']}`",
        "",
        HOW,
        *_correctness(found["problems"]),
        f"## Below {SLOW} of the library: {len(slow)} of {len(own)} races that are not of `sm80` or `simt`",
        "",
        *_table(sorted(slow, key=_ratio)),
        "",
        "## All",
        "",
        *_table(races),
        "",
    ]
    return "\n".join(lines)


def _correctness(problems: Iterable[Mapping[str, Any]]) -> list[str]:
    kernels: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for p in problems:
        kernels[p["name"].split()[0]].append(p)
    if not kernels:
        return []
    lines = [
        "## Beside float64",
        "",
        "Odd sizes, fresh data, poisoned outputs, strides and broadcasts; instruction: single instructions beside the emulator's, bit for bit.",
        "",
        "| kernel | problems | right | largest error, of its limit |",
        "| --- | --- | --- | --- |",
    ]
    for kernel, own in kernels.items():
        worst = max((p["error"] / p["limit"] for p in own if p["limit"]), default=0.0)
        lines.append(f"| {kernel} | {len(own)} | {sum(p['good'] for p in own)} | {worst:.2f} |")
    return [*lines, ""]


def _best(race: Mapping[str, Any]) -> Mapping[str, Any]:
    best: Mapping[str, Any] = min(race["candidates"], key=lambda c: float(c["us"]))
    return best


def _ratio(race: Mapping[str, Any]) -> float:
    return float(race["rival_us"]) / float(_best(race)["us"])


def _table(races: Iterable[Mapping[str, Any]]) -> list[str]:
    lines = ["| problem | torch us | ours us | torch / ours | rate | configuration | error |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for r in races:
        best = _best(r)
        us = float(best["us"])
        rate = f"{r['flops'] / us / 1e6:.1f} TFLOP/s" if r["flops"] else f"{r['bytes'] / us / 1e3:.0f} GB/s"
        lines.append(f"| {r['race']} | {r['rival_us']:.2f} | {us:.2f} | {_ratio(r):.2f} | {rate} | {best['name']} | {best['error']:.1e} |")
    return lines


@click.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path), default=RESULTS / "kernels_h200.json")
def main(path: Path) -> None:
    """Write the page beside its data."""
    path.with_suffix(".md").write_text(page(json.loads(path.read_text()), path.name), encoding="utf-8")


if __name__ == "__main__":
    main()
