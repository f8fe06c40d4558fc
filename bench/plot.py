"""One picture of bench/results/gpu.json (or another): a panel for each model and batch, a bar for each contender, the
floor marked. Needs matplotlib (extra [bench])."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import click

from bench.record import RESULTS

COLOURS = {"aitc": "#d1495b", "aitc_untuned": "#e39aa4"}
OTHERS = "#8d99ae"
LABELS = {
    "aitc_untuned": "aitc without its table",
    "eager": "PyTorch eager",
    "eager_graph": "eager, CUDA graph",
    "compile": "torch.compile",
    "compile_graph": "torch.compile, CUDA graph",
    "onnxruntime": "ONNX Runtime",
}


def draw(result: dict[str, Any], path: Path) -> None:
    """Write the picture of a result file's content to `path` (its suffix says the format)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [r for r in result["rows"] if r.get("latency")]
    columns = min(2, len(rows))
    lines = -(-len(rows) // columns)
    figure, axes = pyplot.subplots(lines, columns, figsize=(5.2 * columns, 2.2 * lines + 0.8), squeeze=False)
    for panel, row in zip(axes.flat, rows):
        _panel(panel, row)
    for panel in list(axes.flat)[len(rows) :]:
        panel.axis("off")
    about = result["about"]
    heading = f"{about['device']}, commit {about['commit']}, {about['date'][:10]}"
    if about.get("note"):
        heading += "\n" + "\n".join(textwrap.wrap(about["note"], 120))
    figure.suptitle(heading, fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=130, metadata={"Software": None} if path.suffix == ".png" else None)
    pyplot.close(figure)


def _panel(panel: Any, row: dict[str, Any]) -> None:
    entries = sorted(row["latency"].items(), key=lambda item: -item[1]["median_ms"])
    medians = [f["median_ms"] for _, f in entries]
    spread = [
        [max(0.0, f["median_ms"] - f["p10_ms"]) for _, f in entries],
        [max(0.0, f["p90_ms"] - f["median_ms"]) for _, f in entries],
    ]
    colours = [COLOURS.get(name, OTHERS) for name, _ in entries]
    panel.barh([LABELS.get(name, name) for name, _ in entries], medians, color=colours, xerr=spread, ecolor="#333333")
    for place, (value, above) in enumerate(zip(medians, spread[1])):
        panel.text(value + above, place, f"  {value:.3g}", va="center", fontsize=8)
    if row.get("floor_ms"):
        panel.axvline(row["floor_ms"], color="black", linestyle="--", linewidth=1)
        panel.text(row["floor_ms"], len(entries) - 0.45, " floor", fontsize=7, va="bottom")
    panel.set_xlim(0, max(m + above for m, above in zip(medians, spread[1])) * 1.18)
    dims = row.get("dims") or {"batch": row.get("batch", 1)}
    title = ", ".join([row["model"], *(f"{name} {size}" for name, size in dims.items()), row.get("precision", "fp32")])
    panel.set_title(title, fontsize=9, loc="left", pad=16)
    panel.tick_params(labelsize=8)
    panel.set_xlabel("ms", fontsize=8)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)


@click.command()
@click.argument("name", default="gpu")
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, help="Folder of the results.")
def main(name: str, results: Path) -> None:
    """Draw NAME.json as NAME.png."""
    source = results / f"{name}.json"
    if not source.exists():
        raise click.ClickException(f"{source} is not there: run `python -m bench.{name}` first")
    draw(json.loads(source.read_text()), results / f"{name}.png")
    click.echo(results / f"{name}.png")


if __name__ == "__main__":
    main()
