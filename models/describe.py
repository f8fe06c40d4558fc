"""What an ONNX file holds: opset, nodes, operators, inputs and outputs. Reads the graph alone, never external data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx


@dataclass(frozen=True, slots=True)
class Description:
    """`opset` of the default domain; `operators` counts nodes, those inside If and Loop bodies too, and each name of
    another domain carries it; `inputs` and `outputs` as text, initializers left out; `bytes` of the .onnx file."""

    opset: int
    producer: str
    operators: Counter[str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    bytes: int


def describe(path: Path) -> Description:
    """Read `path`; whatever onnx raises for a file that is none."""
    model = onnx.load(path, load_external_data=False)
    initial = {i.name for i in model.graph.initializer}
    return Description(
        opset=next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx")),
        producer=f"{model.producer_name} {model.producer_version}".strip(),
        operators=Counter(_operators(model.graph)),
        inputs=tuple(_value(v) for v in model.graph.input if v.name not in initial),
        outputs=tuple(_value(v) for v in model.graph.output),
        bytes=path.stat().st_size,
    )


def _operators(graph: onnx.GraphProto) -> Iterator[str]:
    for node in graph.node:
        yield f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        for attribute in node.attribute:
            for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _operators(body)


def _value(value: onnx.ValueInfoProto) -> str:
    tensor = value.type.tensor_type
    dims = (d.dim_param or (str(d.dim_value) if d.HasField("dim_value") else "?") for d in tensor.shape.dim)
    return f"{value.name} {onnx.TensorProto.DataType.Name(tensor.elem_type).lower()}[{', '.join(dims)}]"


def table(files: list[tuple[str, Path]]) -> str:
    """A Markdown table, a row for each (name, path)."""
    rows = ["| model | opset | nodes | inputs | operators |", "| --- | --- | --- | --- | --- |"]
    for name, path in files:
        d = describe(path)
        operators = " ".join(f"{op}·{n}" if n > 1 else op for op, n in d.operators.most_common())
        inputs = "; ".join(f"`{i}`" for i in d.inputs)
        rows.append(f"| {name} | {d.opset} | {d.operators.total()} | {inputs} | {operators} |")
    return "\n".join(rows) + "\n"
