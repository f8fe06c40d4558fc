"""The rows that bench.gpu measures: models with their dims, told apart by them; needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from models import catalog

SUITE = (
    *("resnet50,batch=1", "resnet50,batch=8", "resnet50,batch=32", "resnet50,batch=256"),
    *("bert_base,batch=1,seq=128", "bert_base,batch=1,seq=384", "bert_base,batch=8,seq=128"),
    *("bert_base,batch=32,seq=128", "bert_base,batch=32,seq=384", "vit_b16,batch=1", "vit_b16,batch=32"),
    *("sd15_vae,batch=1", "sd15_unet,batch=2"),
)
HALF_EXPORTS = ("sd15_unet", "sd15_vae")  # exported in half precision, as they are published: inputs and outputs too


def parse_row(text: str) -> tuple[str, dict[str, int]]:
    """`model,dim=n,...` -> the model and all its dims; click.BadParameter where one is not the model's."""
    name, *pairs = text.split(",")
    try:
        dims = dict(catalog.find(name).dims("full"))
    except KeyError as error:
        raise click.BadParameter(str(error.args[0])) from None
    for pair in pairs:
        dim, _, size = pair.partition("=")
        if dim not in dims or not size.isdigit():
            raise click.BadParameter(f"{pair!r} in {text!r}: the dims of {name} are {', '.join(dims)}, e.g. batch=8")
        dims[dim] = int(size)
    return name, dims


def key_of(row: Mapping[str, object]) -> tuple[object, ...]:
    """`Job.key` of a finished row."""
    dims = row["dims"]
    assert isinstance(dims, dict)
    return row["model"], row["precision"], *sorted(dims.items())


def has_all(row: Mapping[str, object] | None, contenders: Sequence[str]) -> bool:
    """Whether a row that is there already has a figure or a failure, not for want of time, of each contender."""
    if row is None:
        return False
    latency, notes = row["latency"], row["notes"]
    assert isinstance(latency, dict) and isinstance(notes, dict)
    return all(c in latency or not notes.get(c, "skipped").startswith("skipped") for c in ("aitc", *contenders))
