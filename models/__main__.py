"""`python -m models`: list, export and fetch example models. Run it from the repository's root."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from models import catalog, detectors, devset, tiny
from models.demo import demo

if TYPE_CHECKING:
    from models import export as exporting

T = TypeVar("T")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Example models of aitc: a catalog, a development set, small committed files, a demo."""


@main.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_models(as_json: bool) -> None:
    """Names of the catalog, the development set and the committed models."""
    names = {
        "catalog": [a.name for a in catalog.CATALOG],
        "detectors": [d.name for d in detectors.DETECTORS],
        "devset": [m.name for m in devset.MODELS],
        "tiny": [m.name for m in tiny.load()],
    }
    if as_json:
        click.echo(json.dumps(names, indent=1))
        return
    for group, members in names.items():
        click.echo(f"{group}: {' '.join(members)}")


@main.command()
@click.argument("names", nargs=-1, required=True)
@click.option("-o", "--out", type=click.Path(path_type=Path), default=Path("out/models"), show_default=True)
@click.option(
    "--size",
    type=click.Choice(["full", "half", "small"]),
    default="full",
    show_default=True,
    help="half: detectors alone.",
)
@click.option(
    "--exporter",
    type=click.Choice(["dynamo", "torchscript"]),
    help="dynamo for the catalog, torchscript for detectors unless given.",
)
@click.option("--dynamic", is_flag=True, help="Keep batch (and seq) symbolic.")
@click.option("--dim", "dims", multiple=True, metavar="NAME=N", help="Size of a dimension, e.g. batch=8.")
@click.option("--dtype", type=click.Choice(["float32", "float16", "bfloat16"]), default="float32", show_default=True)
@click.option("--opset", type=int, help="20 for dynamo and 17 for torchscript unless given.")
def export(
    names: tuple[str, ...],
    out: Path,
    size: detectors.Size,
    exporter: exporting.Exporter | None,
    dynamic: bool,
    dims: tuple[str, ...],
    dtype: str,
    opset: int | None,
) -> None:
    """Export catalog models (`all` for each), or detectors by name, and print the paths.

    A detector is static; --dim height=H and --dim width=W are its image's, 800 and 1344 unless given. Its default is the old exporter.
    """
    from models import export as exporting

    bound = {name: int(value) for name, _, value in (d.partition("=") for d in dims)}
    found = [d for d in detectors.DETECTORS if d.name in names]
    others = tuple(n for n in names if n not in {d.name for d in found})
    chosen = catalog.CATALOG if others == ("all",) else tuple(_find(catalog.find, n) for n in others)
    if chosen and size == "half":
        raise click.UsageError("only detectors have a half size")
    if found and (dynamic or dtype != "float32" or bound.keys() - {"height", "width"}):
        raise click.UsageError("a detector is static float32, and its dims are height and width")
    out.mkdir(parents=True, exist_ok=True)
    for detector in found:
        path = out / f"{detector.name}.onnx"
        detectors.export(
            detector, path, size, bound.get("height", 800), bound.get("width", 1344), exporter or "torchscript", opset
        )
        click.echo(path)
    for architecture in chosen:
        path = out / f"{architecture.name}.onnx"
        exporting.export(
            architecture,
            path,
            "small" if size == "small" else "full",
            exporter or "dynamo",
            dynamic,
            bound,
            opset,
            dtype,
        )
        click.echo(path)


@main.command()
@click.argument("names", nargs=-1)
def fetch(names: tuple[str, ...]) -> None:
    """Download models of the development set (all without NAMES) and print the paths."""
    for model in [_find(devset.find, n) for n in names] or devset.MODELS:
        click.echo(f"{model.name}\t{model.fetch()}")


@main.command("tiny")
@click.argument("names", nargs=-1)
def build_tiny(names: tuple[str, ...]) -> None:
    """Export the committed small models again (all, or those whose name holds one of NAMES)."""
    for model in tiny.build(names):
        click.echo(f"{model.path.stat().st_size:>8} bytes  {model.nodes:>5} nodes  {model.name}")


@main.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def describe(files: tuple[Path, ...]) -> None:
    """Operators, opset and inputs of ONNX files as a Markdown table (the development set's without FILES)."""
    from models.describe import table

    rows = [(f.stem, f) for f in files] or [(m.name, m.fetch()) for m in devset.MODELS]
    click.echo(table(rows), nl=False)


def _find(find: Callable[[str], T], name: str) -> T:
    """`find(name)`, its KeyError turned into a usage error."""
    try:
        return find(name)
    except KeyError as error:
        raise click.UsageError(str(error.args[0])) from None


main.add_command(demo)

if __name__ == "__main__":
    main()
