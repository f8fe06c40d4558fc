"""The small committed exports: what each is (`load`), and how they are made again (`build`, which needs torch)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from models.inputs import Array, Input, from_json, make_inputs, to_json

if TYPE_CHECKING:
    import onnx

    from models.catalog import Architecture
    from models.export import Exporter

FOLDER = Path(__file__).resolve().parent / "tiny"
MANIFEST = FOLDER / "manifest.json"
MAX_BYTES = 200_000  # of one file
SHORTEN_ABOVE_BYTES = 140_000


@dataclass(frozen=True, slots=True)
class TinyModel:
    """One committed file.

    exporter  "dynamo" or "torchscript"
    variant   "" or what sets it apart ("opset23": Attention nodes; "unfolded": BatchNormalization kept; "float16")
    inputs    in graph order
    dims      a typical value for each dynamic dimension; empty for a static file
    others    further values worth running: each overrides some of `dims`
    torch     the version that exported it
    command   makes the file again
    """

    name: str
    architecture: str
    exporter: str
    variant: str
    opset: int
    nodes: int
    inputs: tuple[Input, ...]
    dims: Mapping[str, int]
    others: tuple[Mapping[str, int], ...]
    outputs: tuple[str, ...]
    torch: str
    command: str

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.onnx"

    @property
    def dynamic(self) -> bool:
        return bool(self.dims)

    def make_inputs(self, dims: Mapping[str, int] | None = None, seed: int = 0) -> dict[str, Array]:
        """Arrays by input name, in graph order; `dims` overrides the typical ones."""
        return make_inputs(self.inputs, {**self.dims, **(dims or {})}, seed)


def load() -> tuple[TinyModel, ...]:
    """All committed models, by name."""
    rows = json.loads(MANIFEST.read_text())["models"]
    return tuple(
        TinyModel(
            **{
                **row,
                "inputs": tuple(from_json(i) for i in row["inputs"]),
                "others": tuple(row["others"]),
                "outputs": tuple(row["outputs"]),
            }
        )
        for row in rows
    )


def build(names: Iterable[str] = ()) -> list[TinyModel]:
    """Export all (or those whose name holds one of `names`) into FOLDER and bring the manifest up to date."""
    from models.catalog import CATALOG

    wanted = tuple(names)
    kept = {m.name: m for m in load()} if MANIFEST.exists() and wanted else {}
    made: list[TinyModel] = []
    for architecture in CATALOG:
        for exporter, dynamic, variant in _variants(architecture.name):
            name = "-".join(filter(None, (architecture.name, exporter, variant, "dynamic" if dynamic else "static")))
            if not wanted or any(w in name for w in wanted):
                made.append(_export(architecture, name, exporter, dynamic, variant))
    rows = sorted({**kept, **{m.name: m for m in made}}.values(), key=lambda m: m.name)
    text = json.dumps({"about": _ABOUT, "models": [_row(m) for m in rows]}, indent=1)
    MANIFEST.write_text(text + "\n")
    return made


_ABOUT = "Written by `python -m models tiny`. Small exports of the catalog with random weights; metadata_props removed."


def _variants(name: str) -> list[tuple[Exporter, bool, str]]:
    rows: list[tuple[Exporter, bool, str]] = [
        ("dynamo", False, ""),
        ("dynamo", True, ""),
        ("torchscript", False, ""),
        ("torchscript", True, ""),
    ]
    if name == "resnet50":
        rows.append(("torchscript", False, "unfolded"))
    if name in ("resnet50", "bert_base"):
        rows.append(("dynamo", False, "float16"))
    if name in ("vit_b16", "gpt2"):
        rows.append(("dynamo", True, "opset23"))
    return rows


def _export(architecture: Architecture, name: str, exporter: Exporter, dynamic: bool, variant: str) -> TinyModel:
    import torch

    from models.describe import describe
    from models.export import OPSETS, export

    path = FOLDER / f"{name}.onnx"
    dtype = "float16" if variant == "float16" else "float32"
    opset = 23 if variant == "opset23" else OPSETS[exporter]
    export(architecture, path, "small", exporter, dynamic, opset=opset, dtype=dtype, fold_norms=variant != "unfolded")
    strip(path)
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path}: {path.stat().st_size} bytes, at most {MAX_BYTES}: make the small size smaller")
    typical = architecture.dims("small")
    inputs = tuple(
        replace(i, shape=i.shape if dynamic else i.resolve(typical), dtype=dtype if i.dtype == "float32" else i.dtype)
        for i in architecture.inputs("small")
    )
    return TinyModel(
        name=name,
        architecture=architecture.name,
        exporter=exporter,
        variant=variant,
        opset=opset,
        nodes=describe(path).operators.total(),
        inputs=inputs,
        dims=typical if dynamic else {},
        others=(({"batch": 3, "seq": 29} if "seq" in typical else {"batch": 3}),) if dynamic else (),
        outputs=architecture.outputs,
        torch=torch.__version__,
        command=f"python -m models tiny {name}",
    )


def strip(path: Path) -> None:
    """Drop what compilers ignore and a repository should not hold: stack traces with paths of the machine."""
    import onnx

    model = onnx.load(path)
    del model.metadata_props[:]
    graph = model.graph
    _bare(graph)
    for function in model.functions:
        del function.metadata_props[:]
    if model.ByteSize() > SHORTEN_ABOVE_BYTES:  # the long names of a thousand nodes
        _shorten(graph)
    onnx.save(model, path)


def _bare(graph: onnx.GraphProto) -> None:
    del graph.metadata_props[:]
    for item in (*graph.node, *graph.initializer, *graph.input, *graph.output, *graph.value_info):
        del item.metadata_props[:]
        item.doc_string = ""
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _bare(attribute.g)


def _shorten(graph: onnx.GraphProto) -> None:
    """Number the nodes and the values between them, those of bodies too; names of the graph's inputs, outputs and initializers stay."""
    kept = {v.name for v in (*graph.input, *graph.output, *graph.initializer)}
    _number(graph, {"": "", **{name: name for name in kept}}, "/")


def _number(graph: onnx.GraphProto, outer: Mapping[str, str], prefix: str) -> None:
    """``outer`` maps old names to new ones; a body sees those of the graph around it, and its own are under ``prefix``."""
    names = dict(outer)
    for n, value in enumerate((*graph.input, *graph.initializer)):
        names.setdefault(value.name, f"{prefix}in{n}")
        value.name = names[value.name]
    for index, node in enumerate(graph.node):
        node.name = f"{prefix}{node.op_type}_{index}"
        node.input[:] = [names[i] for i in node.input]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _number(attribute.g, names, f"{prefix}{index}/")
        for slot, output in enumerate(node.output):
            names.setdefault(output, f"{prefix}{index}.{slot}")
        node.output[:] = [names[o] for o in node.output]
    for value in graph.output:
        value.name = names[value.name]
    for value in graph.value_info:
        value.name = names.get(value.name, value.name)


def _row(model: TinyModel) -> dict[str, object]:
    return {
        "name": model.name,
        "architecture": model.architecture,
        "exporter": model.exporter,
        "variant": model.variant,
        "opset": model.opset,
        "nodes": model.nodes,
        "inputs": [to_json(i) for i in model.inputs],
        "dims": dict(model.dims),
        "others": [dict(o) for o in model.others],
        "outputs": list(model.outputs),
        "torch": model.torch,
        "command": model.command,
    }


def one_of_each() -> list[Path]:
    """One committed file of every architecture, so that both exporters, static and dynamic files are among them."""
    stems = sorted({p.stem.split("-")[0] for p in FOLDER.glob("*.onnx")})
    variants = ("dynamo-static", "torchscript-dynamic", "dynamo-dynamic", "torchscript-static")
    found = []
    for n, stem in enumerate(stems):
        order = variants[n % 4 :] + variants[: n % 4]
        found += [p for v in order if (p := FOLDER / f"{stem}-{v}.onnx").exists()][:1]
    return found
