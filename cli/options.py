"""Flags that several commands share, and the parsing of their values."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Dims = tuple[tuple[str, "int | tuple[int, int] | str"], ...]  # of --dim
F = TypeVar("F", bound=Callable[..., Any])

STAGES = (
    "import",
    "simplify",
    "fuse",
    "layout",
    "schedule",
    "plan",
    "emit",
    "build",
    "verify",
)  # a copy: --help imports nothing heavy
PRECISIONS = ("model", "fp32", "tf32", "fp16", "bf16")
MODEL = click.Path(path_type=Path)  # whether it exists is the importer's to say, with the exit code of a bad model


def parse_dim(text: str) -> tuple[str, int | tuple[int, int] | str]:
    """``batch=8``, ``batch=1..32`` or ``total=past+seq``; names may hold ``=`` and dots."""
    name, _, value = text.rpartition("=")
    value = value.strip()
    low, dots, high = value.partition("..")
    if name and not dots and re.search("[A-Za-z_]", value):
        return name, value
    try:
        lowest, highest = int(low), int(high) if dots else int(low)
        if not name:
            raise ValueError
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither NAME=SIZE nor NAME=LOW..HIGH nor NAME=EXPRESSION") from None
    if lowest < 0:
        raise click.BadParameter(f"{text!r}: a size is at least 0")
    if lowest > highest:
        raise click.BadParameter(f"{text!r}: the lower bound {lowest} is above the upper bound {highest}")
    return name, (lowest, highest) if dots else lowest


def parse_input(text: str) -> tuple[str, tuple[int | str, ...] | Path]:
    """``x=1,3,224,224``; an axis may be a name: ``x=batch,3,224,224``. ``x=FILE.npy``: data."""
    if text.endswith((".npy", ".pb")):
        name, sign, path = text.partition("=")
        if not sign or not name or not path:
            raise click.BadParameter(f"{text!r} is not NAME=FILE.npy")
        return name, Path(path)
    name, sign, value = text.rpartition("=")
    axes = tuple(a.strip() for a in value.split(",")) if value.strip() else ()
    if not sign or not name or any(not a or a.startswith("-") for a in axes):
        raise click.BadParameter(f"{text!r} is neither NAME=SIZE,SIZE,... nor NAME=FILE.npy")
    return name, tuple(int(a) if a.isdigit() else a for a in axes)


def parse_value(text: str) -> tuple[str, Any]:
    """``sr=16000``, ``use_cache=true``, ``scale=0.5``; with commas a list: ``sizes=1,3``."""
    name, sign, value = text.rpartition("=")
    try:
        items = [_number(v.strip()) for v in value.split(",") if v.strip()]
        if not sign or not name or (not items and value.strip(" ,")):
            raise ValueError
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither NAME=NUMBER nor NAME=true|false nor NAME=NUMBER,NUMBER,...") from None
    return name, items[0] if len(items) == 1 and "," not in value else tuple(items)


def _number(text: str) -> bool | int | float:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return int(text, 0)
    except ValueError:
        return float(text)


def parse_file(text: str) -> tuple[str, Path]:
    """``x=FILE.npy``, where no shape can be given."""
    name, value = parse_input(text)
    if not isinstance(value, Path):
        raise click.BadParameter(f"{text!r} is not NAME=FILE.npy")
    return name, value


def _many(parse: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], tuple[Any, ...]]:
    def callback(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[Any, ...]:
        return tuple(parse(v) for v in values)

    return callback


def split_inputs(given: dict[str, Any]) -> None:
    """Makes --input's files ``input_files`` of their own, beside the shapes."""
    both = given["input_shapes"]
    given["input_shapes"] = tuple((n, v) for n, v in both if not isinstance(v, Path))
    given["input_files"] = tuple((n, v) for n, v in both if isinstance(v, Path))


def _apply(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for d in reversed(decorators):
            function = d(function)
        return function

    return decorate


json_flag = click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object on stdout.")

talk = _apply(
    click.option("-v", "--verbose", is_flag=True, help="Print passes, toolchains and tracebacks."),
    click.option("-q", "--quiet", is_flag=True, help="Print only problems on stderr."),
)

def _target_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """What a shell offers behind --target."""
    from aitc.targets.target import all_targets

    names = (name for target in all_targets() for name in (target.name, *target.aliases))
    return sorted(n for n in names if n.startswith(incomplete))


target_flag = click.option(
    "-t",
    "--target",
    "targets",
    multiple=True,
    metavar="NAME",
    shell_complete=_target_names,
    help="cpu, a100, h200, mi250 ... (`aitc list targets`); repeat it, for GPUs of one API, to make one binary."
    " Default: the GPU of this machine, else cpu.",
)

dim_flag = click.option(
    "--dim",
    "dims",
    multiple=True,
    metavar="NAME=N|LO..HI|EXPR",
    callback=_many(parse_dim),
    help="Set or bound a symbolic dim, or compute it from others: total=past+seq.",
)

model_flags = _apply(
    target_flag,
    dim_flag,
    click.option(
        "--input",
        "input_shapes",
        multiple=True,
        metavar="NAME=N,N,...|FILE.npy",
        callback=_many(parse_input),
        help="Shape of a model input, or a file with the data to verify on.",
    ),
    click.option(
        "--value",
        "values",
        multiple=True,
        metavar="NAME=V[,V...]",
        callback=_many(parse_value),
        help="Make an input a constant of the binary, which then has no such input: sr=16000, use_cache=true.",
    ),
    click.option(
        "--precision",
        type=click.Choice(PRECISIONS),
        default="model",
        show_default=True,
        help="Type to compute in; sums, norms and softmax stay fp32.",
    ),
    click.option(
        "--fp16",
        "precision",
        flag_value="fp16",
        help="Short for --precision fp16.",
    ),
    click.option(
        "--keep-fp32",
        "keep_fp32",
        multiple=True,
        metavar="NAME|OP|REGEX",
        help="Nodes that stay fp32 under --precision fp16 or bf16.",
    ),
    click.option(
        "--lanes",
        type=click.IntRange(1, 8),
        default=4,
        show_default=True,
        help="Branches of the model that a GPU may run in parallel where that is faster; 1 uses the least memory.",
    ),
    click.option(
        "--tuning",
        type=click.Path(path_type=Path),
        help="File of measured configurations, preferred to the shipped ones; none: choose by the cost model alone.",
    ),
)

files_flag = click.option(
    "--input",
    "--feed",  # its older name
    "input_files",
    multiple=True,
    metavar="NAME=FILE.npy",
    callback=_many(parse_file),
    help="File with the data of a model input.",
)
data_flag = click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Folder of NAME.npy, or of input_0.pb and output_0.pb (ONNX's test data), instead of made-up inputs.",
)

compiler_flags = _apply(
    click.option("--nvcc", metavar="PATH", help="Compiler of CUDA kernels. Default: see `aitc list toolchains`."),
    click.option("--hipcc", metavar="PATH", help="Compiler of HIP kernels, hipcc or a clang++."),
)

timeout_flag = click.option(
    "--verify-timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=600,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for each run of the reference and of the binary.",
)

tolerance_flags = _apply(
    click.option(
        "--rtol",
        type=float,
        metavar="NUMBER",
        help="Require |binary - reference| <= atol + rtol*|reference|. Default: a tolerance by types and depth.",
    ),
    click.option("--atol", type=float, metavar="NUMBER", help="The absolute part of --rtol's bound; the part that is not given is 0."),
)

dump_flag = click.option("--dump", type=click.Path(path_type=Path), help="Write every stage's text into this folder.")
jobs_flag = click.option(
    "-j", "--jobs", type=click.IntRange(min=1), help="Compilers at once. Default: processors, bounded by memory."
)
