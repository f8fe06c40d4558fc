"""Import and passes on graphs of growing size: the time has to grow with the nodes, not with their square.

The graphs are made here: residual blocks as exporters write them (convolution-free, so that nothing but the compiler is
measured), with shape arithmetic, constants to fold, idioms to fuse and long skip connections.
"""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path

import click
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bench import record

SIZES = (2_500, 5_000, 10_000, 20_000)
LIMIT_S = 60.0  # for the largest
WIDTH = 16


class _Writer:
    """Nodes and initializers as they come, with fresh names."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [f"{name}_out"], name=name, **attributes))
        return f"{name}_out"

    def weight(self, *shape: int) -> str:
        seed = len(self.initializers)
        values = np.random.default_rng(seed).normal(0, 1 / math.sqrt(shape[0]), shape).astype(np.float32)
        return self._keep(values)

    def ints(self, *values: int) -> str:
        return self._keep(np.array(values, np.int64))

    def scalar(self, value: float) -> str:
        return self.op("Constant", value=numpy_helper.from_array(np.array(value, np.float32)))

    def _keep(self, values: np.ndarray) -> str:
        name = f"w{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(values, name))
        return name


def make_graph(nodes: int) -> onnx.ModelProto:
    """A model of about `nodes` nodes with input x[batch, 8, 16]; the same number gives the same model."""
    w = _Writer()
    x = skip = "x"
    while len(w.nodes) < nodes:
        x = _block(w, x)
        if len(w.nodes) % 5 == 0:  # a connection over many blocks keeps values alive
            x, skip = w.op("Add", x, skip), x
    w.op("Identity", x)
    w.nodes[-1].output[0] = "y"
    shape: list[int | str] = ["batch", 8, WIDTH]
    graph = helper.make_graph(
        w.nodes,
        "scaling",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        w.initializers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _block(w: _Writer, x: str) -> str:
    """About 30 nodes: a decomposed layer norm, a linear layer, an erf gelu, a reshape by shape arithmetic, a skip."""
    mean = w.op("ReduceMean", x, axes=[-1])
    centred = w.op("Sub", x, mean)
    variance = w.op("ReduceMean", w.op("Pow", centred, w.scalar(2.0)), axes=[-1])
    normed = w.op("Div", centred, w.op("Sqrt", w.op("Add", variance, w.scalar(1e-5))))
    normed = w.op("Add", w.op("Mul", normed, w.weight(WIDTH)), w.weight(WIDTH))
    linear = w.op("Add", w.op("MatMul", normed, w.weight(WIDTH, WIDTH)), w.weight(WIDTH))
    erf = w.op("Erf", w.op("Div", linear, w.scalar(math.sqrt(2))))
    gelu = w.op("Mul", w.op("Mul", linear, w.op("Add", erf, w.scalar(1.0))), w.scalar(0.5))
    batch = w.op("Unsqueeze", w.op("Gather", w.op("Shape", x), w.ints(0), axis=0), w.ints(0))
    shape = w.op("Concat", w.op("Squeeze", batch, w.ints(0)), w.ints(8, WIDTH), axis=0)
    flat = w.op("Reshape", w.op("Transpose", gelu, perm=[0, 2, 1]), shape)
    back = w.op("Reshape", flat, w.ints(0, WIDTH, 8))
    return w.op("Add", x, w.op("Mul", w.op("Transpose", back, perm=[0, 2, 1]), w.scalar(0.1)))


def bench_one(nodes: int, target: str, stop_after: str) -> dict[str, object]:
    """One row: seconds by stage up to `stop_after`, and in all."""
    from aitc import pipeline

    with tempfile.TemporaryDirectory(prefix="aitc-scaling-") as tmp:
        path = Path(tmp) / "scaling.onnx"
        model = make_graph(nodes)
        onnx.save(model, path)
        start = time.perf_counter()
        result = pipeline.compile(path, pipeline.Options(targets=(target,), stop_after=stop_after))
        total = time.perf_counter() - start
    stages = {stage: round(seconds, 3) for stage, seconds in result.seconds.items()}
    return {"nodes": len(model.graph.node), "seconds": round(total, 3), "stages": stages}


def exponent(rows: list[dict[str, object]]) -> float:
    """The slope of log(seconds) over log(nodes) by least squares: 1 is linear, 2 quadratic."""
    x = np.log([float(str(r["nodes"])) for r in rows])
    y = np.log([float(str(r["seconds"])) for r in rows])
    return float(np.polyfit(x, y, 1)[0]) if len(rows) > 1 else math.nan


@click.command()
@click.option("--sizes", default=",".join(map(str, SIZES)), show_default=True, help="Nodes, comma-separated.")
@click.option("--target", default="cpu", show_default=True)
@click.option("--stop-after", default="plan", show_default=True, help="The last stage that runs.")
@click.option("--results", type=click.Path(path_type=Path), help="Folder of the result; bench/results by default.")
def main(sizes: str, target: str, stop_after: str, results: Path | None) -> None:
    """Time of import and passes over the number of nodes."""
    rows: list[dict[str, object]] = []
    for size in map(int, sizes.split(",")):
        rows.append(bench_one(size, target, stop_after))
        click.echo(f"{rows[-1]['nodes']} nodes: {rows[-1]['seconds']} s  {rows[-1]['stages']}")
    grows = exponent(rows)
    click.echo(f"time grows as nodes^{grows:.2f}; limit {LIMIT_S:g} s for {SIZES[-1]} nodes")
    click.echo(record.write("scaling", [*rows, {"exponent": round(grows, 3)}], record.cpu_name(), results), err=True)


if __name__ == "__main__":
    main()
