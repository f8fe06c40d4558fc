"""ONNX graphs of any number of nodes, in the shapes that real ones have: chains, residuals, branches, long skips, late sizes, control flow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import helper, numpy_helper

FLOAT, INT64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL


class _Net:
    """A graph that grows at its end, the value ``at``."""

    def __init__(self, shape: list[int | str], **inputs: tuple[int, list[int | str]]):
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs = [helper.make_tensor_value_info("x", FLOAT, shape)]
        self.inputs += [helper.make_tensor_value_info(n, *kind) for n, kind in inputs.items()]
        self.rng = np.random.default_rng(0)
        self.at = "x"

    def op(self, name: str, *inputs: str, **attributes: object) -> str:
        """A node of one result, which becomes the end."""
        self.at = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(name, list(inputs), [self.at], **attributes))
        return self.at

    def weight(self, *shape: int) -> str:
        return self.const((self.rng.standard_normal(shape) / 4).astype(np.float32))

    def const(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def ints(self, *values: int) -> str:
        return self.const(np.array(values, np.int64))

    def model(self) -> onnx.ModelProto:
        outputs = [helper.make_tensor_value_info(self.at, FLOAT, None)]
        graph = helper.make_graph(self.nodes, "g", self.inputs, outputs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def chain(nodes: int) -> onnx.ModelProto:
    """Pointwise nodes, one after another."""
    net = _Net(["n", 16])
    for i in range(nodes):
        net.op(("Relu", "Sigmoid", "Tanh", "Neg", "Exp")[i % 5], net.at)
    return net.model()


def diamonds(nodes: int) -> onnx.ModelProto:
    """x + f(x) again and again: 2^k paths."""
    net = _Net(["n", 16])
    for _ in range(nodes // 3):
        x = net.at
        net.op("Add", net.op("Sigmoid", net.op("Mul", x, x)), x)
    return net.model()


def residual_products(nodes: int) -> onnx.ModelProto:
    """Products with bias, activation and residual."""
    net = _Net(["n", 16])
    for _ in range(nodes // 4):
        x = net.at
        product = net.op("MatMul", x, net.weight(16, 16))
        net.op("Add", net.op("Relu", net.op("Add", product, net.weight(16))), x)
    return net.model()


def convolutions(nodes: int) -> onnx.ModelProto:
    """Convolutions with activation and residual."""
    net = _Net(["n", 8, 16, 16])
    for _ in range(nodes // 3):
        x = net.at
        conv = net.op("Conv", x, net.weight(8, 8, 3, 3), net.weight(8), pads=[1, 1, 1, 1])
        net.op("Add", net.op("Relu", conv), x)
    return net.model()


def branches(nodes: int) -> onnx.ModelProto:
    """Four rows of nodes side by side, all alive until one Concat."""
    net = _Net(["n", 16])
    ends = [net.op("Relu", "x")] * 4
    made = []
    for i in range(nodes):
        ends[i % 4] = net.op(("Sigmoid", "Tanh", "Neg", "Exp")[i % 4], ends[i % 4])
        made.append(ends[i % 4])
    net.op("Concat", *made, axis=0)
    return net.model()


def shape_arithmetic(nodes: int) -> onnx.ModelProto:
    """What exporters write for ``view(x.shape[0], 16)``."""
    net = _Net(["n", 16])
    zero, axis, width = net.const(np.array(0, np.int64)), net.ints(0), net.ints(16)
    for i in range(nodes // 6):
        x = net.at
        size = net.op("Unsqueeze", net.op("Gather", net.op("Shape", x), zero), axis)
        net.op(("Relu", "Tanh")[i % 2], net.op("Reshape", x, net.op("Concat", size, width, axis=0)))
    return net.model()


def attention(nodes: int) -> onnx.ModelProto:
    """Transformer layers as the old exporter writes them."""
    net = _Net(["b", "s", 32])
    heads, flat, scale = net.ints(0, -1, 4, 8), net.ints(0, -1, 32), net.const(np.array(0.3, np.float32))
    for _ in range(max(1, nodes // 18)):
        x = net.at
        norm = net.op("LayerNormalization", x, net.weight(32), net.weight(32), axis=-1)

        def split(perm: list[int], norm: str = norm) -> str:
            return net.op("Transpose", net.op("Reshape", net.op("MatMul", norm, net.weight(32, 32)), heads), perm=perm)

        q, k, v = split([0, 2, 1, 3]), split([0, 2, 3, 1]), split([0, 2, 1, 3])
        p = net.op("Softmax", net.op("Mul", net.op("MatMul", q, k), scale), axis=-1)
        mixed = net.op("Reshape", net.op("Transpose", net.op("MatMul", p, v), perm=[0, 2, 1, 3]), flat)
        net.op("Add", net.op("MatMul", mixed, net.weight(32, 32)), x)
    return net.model()


def long_skips(nodes: int) -> onnx.ModelProto:
    """Rows whose results are read far behind, or from the beginning."""
    net = _Net(["n", 16])
    ends = ["x"]
    for i in range(nodes // 3):
        row = net.op("Tanh", net.op("Softmax", net.at, axis=-1))
        ends.append(net.op("Add", row, ends[0] if i % 2 else ends[i // 2]))
    return net.model()


def styles(nodes: int) -> onnx.ModelProto:
    """Scales and shifts that are computed from one early value and read by each of many later layers."""
    net = _Net([1, 16, "t"], style=(FLOAT, [1, 16]))
    axis, layers = net.ints(2), max(1, nodes // 11)
    made = [
        net.op("Unsqueeze", net.op("Sigmoid", net.op("MatMul", "style", net.weight(16, 16))), axis) for _ in range(2 * layers)
    ]
    net.at = "x"
    for i in range(layers):
        x = net.at
        styled = net.op("Add", net.op("Mul", x, made[2 * i]), made[2 * i + 1])
        net.op("Add", net.op("LeakyRelu", net.op("Conv", styled, net.weight(16, 16, 3), pads=[1, 1])), x)
    return net.model()


def late_sizes(nodes: int) -> onnx.ModelProto:
    """Products of as many rows as a mask keeps."""
    net = _Net(["n", 16], mask=(BOOL, ["n"]))
    net.op("Gather", "x", net.op("Squeeze", net.op("NonZero", "mask"), net.ints(0)), axis=0)
    for _ in range(nodes // 4):
        x = net.at
        product = net.op("MatMul", x, net.weight(16, 16))
        net.op("Add", net.op("Relu", net.op("Add", product, net.weight(16))), x)
    return net.model()


def concats(nodes: int) -> onnx.ModelProto:
    """Concats of a value and what is computed from it."""
    net = _Net(["n", 1, 16])
    axis = net.ints(1)
    for _ in range(nodes // 3):
        x = net.at
        net.op("ReduceMax", net.op("Concat", x, net.op("Sigmoid", x), axis=1), axis, keepdims=1)
    return net.model()


def ifs(nodes: int) -> onnx.ModelProto:
    """Ifs, one after another."""
    net = _Net(["n", 16], c=(BOOL, []))
    for i in range(nodes // 4):
        x = net.at
        then = helper.make_graph(
            [helper.make_node("Relu", [x], [f"t{i}"]), helper.make_node("Sigmoid", [f"t{i}"], [f"u{i}"])],
            f"then{i}", [], [helper.make_tensor_value_info(f"u{i}", FLOAT, None)],
        )  # fmt: skip
        other = helper.make_graph(
            [helper.make_node("Tanh", [x], [f"e{i}"])], f"else{i}", [], [helper.make_tensor_value_info(f"e{i}", FLOAT, None)]
        )
        net.op("If", "c", then_branch=then, else_branch=other)
    return net.model()


def nested_ifs(nodes: int) -> onnx.ModelProto:
    """Ifs within Ifs, 12 deep, as many of them as there are nodes for."""
    net = _Net(["n", 16], c=(BOOL, []))

    def nest(depth: int, x: str, out: str) -> list[onnx.NodeProto]:
        if not depth:
            return [helper.make_node("Mul", [x, x], [out])]
        inner, other = f"{out}a", f"{out}b"
        bodies = [
            helper.make_graph(body, f"{out}{n}", [], [helper.make_tensor_value_info(n, FLOAT, None)])
            for n, body in ((inner, nest(depth - 1, x, inner)), (other, [helper.make_node("Add", [x, x], [other])]))
        ]
        return [helper.make_node("If", ["c"], [out], then_branch=bodies[0], else_branch=bodies[1])]

    for i in range(max(1, nodes // 25)):
        (node,) = nest(12, net.at, f"n{i}_")
        net.nodes.append(node)
        net.at = node.output[0]
    return net.model()


SHAPES: dict[str, Callable[[int], onnx.ModelProto]] = {
    f.__name__: f
    for f in (
        chain, diamonds, residual_products, convolutions, branches, shape_arithmetic, attention, long_skips, styles, late_sizes, concats,
        ifs, nested_ifs,
    )
}  # fmt: skip
