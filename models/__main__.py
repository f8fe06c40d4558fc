"""`python -m models`: list, export and fetch example models. Run it from the repository's root."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from models import catalog, devset, tiny
from models.demo import demo

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
@click.option("--size", type=click.Choice(["full", "small"]), default="full", show_default=True)
@click.option("--exporter", type=click.Choice(["dynamo", "torchscript"]), default="dynamo", show_default=True)
@click.option("--dynamic", is_flag=True, help="Keep batch (and seq) symbolic.")
@click.option("--dim", "dims", multiple=True, metavar="NAME=N", help="Size of a dimension, e.g. batch=8.")
@click.option("--dtype", type=click.Choice(["float32", "float16", "bfloat16"]), default="float32", show_default=True)
@click.option("--opset", type=int, help="20 for dynamo and 17 for torchscript unless given.")
def export(
    names: tuple[str, ...],
    out: Path,
    size: catalog.Size,
    exporter: str,
    dynamic: bool,
    dims: tuple[str, ...],
    dtype: str,
    opset: int | None,
) -> None:
    """Export catalog models (`all` for each) and print the paths."""
    from models import export as exporting

    bound = {name: int(value) for name, _, value in (d.partition("=") for d in dims)}
    out.mkdir(parents=True, exist_ok=True)
    chosen = catalog.CATALOG if names == ("all",) else tuple(_find(catalog.find, n) for n in names)
    for architecture in chosen:
        path = out / f"{architecture.name}.onnx"
        which: exporting.Exporter = "dynamo" if exporter == "dynamo" else "torchscript"
        exporting.export(architecture, path, size, which, dynamic, bound, opset, dtype)
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
