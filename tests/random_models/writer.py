"""A model that grows node by node; each node is computed at once by ``onnx.reference``, so that only what is valid and tame is kept."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper as nh
from onnx.reference import ReferenceEvaluator

OPSET = 22
LARGEST = 1e4  # of a value: beyond it the model is no longer well conditioned
ELEMENTS = 4096  # of a value
# what keeps numbers of few bits such: after these, comparing and rounding may be drawn without being unsure at a tie
EXACT = frozenset(
    """Add Sub Mul Neg Abs Relu Min Max Sign Floor Ceil Round Clip Cast Transpose Reshape Flatten Squeeze Unsqueeze Slice Split Concat Expand Tile Pad
    Gather GatherElements GatherND ScatterElements ScatterND Where ReduceSum ReduceMax ReduceMin ReduceL1 ReduceSumSquare ArgMax ArgMin CumSum TopK
    Equal Less Greater LessOrEqual GreaterOrEqual And Or Xor Not MaxPool Trilu Identity Shape Size Range ConstantOfShape NonZero Compress OneHot
    DepthToSpace SpaceToDepth Mod EyeLike ReverseSequence QuantizeLinear DequantizeLinear MatMul Sum Unique""".split()
)

Size = int | str  # of an axis: a number, or an expression over symbols; equal texts are equal sizes
Array = np.ndarray[Any, Any]


class Rejected(Exception):
    """A node whose result is invalid, too large or not finite."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A value of the model: its array for the first inputs, its sizes, and whether its numbers have few bits and no rounding in them."""

    name: str
    array: Array
    sizes: tuple[Size, ...]
    exact: bool

    @property
    def rank(self) -> int:
        return self.array.ndim

    @property
    def is_float(self) -> bool:
        return self.array.dtype == np.float32

    def fixed(self, axis: int) -> bool:
        return isinstance(self.sizes[axis], int)


class Writer:
    """Nodes, initializers and values of a model. ``symbols``: name -> its size for the first inputs."""

    def __init__(self, rng: np.random.Generator, symbols: dict[str, int]):
        self.rng = rng
        self.symbols = symbols
        self.inputs: list[Drawn] = []
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.values: list[Drawn] = []
        self.count = 0

    def name(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def numbers(self, shape: Sequence[int], dtype: Any = np.float32) -> Array:
        """Multiples of an eighth; whole numbers for integers."""
        if dtype == np.bool_:
            return self.rng.integers(0, 2, shape).astype(bool)
        if np.issubdtype(dtype, np.integer):
            return self.rng.integers(-4, 5, shape).astype(dtype)
        return (self.rng.integers(-16, 17, shape) / 8).astype(dtype)

    def input(self, sizes: Sequence[Size], dtype: Any = np.float32) -> Drawn:
        shape = [s if isinstance(s, int) else self.symbols[s] for s in sizes]
        value = Drawn(self.name("x"), self.numbers(shape, dtype), tuple(sizes), True)
        self.inputs.append(value)
        self.values.append(value)
        return value

    def constant(self, array: Any, dtype: Any = np.float32) -> Drawn:
        """An initializer."""
        array = np.asarray(array, dtype)
        value = Drawn(self.name("c"), array, array.shape, True)
        self.initializers.append(nh.from_array(array, value.name))
        return value

    def weights(self, *shape: int, scale: float = 1) -> Drawn:
        return self.constant(self.numbers(shape) * scale)

    def node(
        self, op: str, inputs: Sequence[Drawn | None], sizes: Sequence[Sequence[Size]], exact: bool | None = None, **attributes: Any
    ) -> list[Drawn]:
        """Appends a node with an output for each of ``sizes``. Raises Rejected and appends nothing if its result is not tame."""
        names = [self.name("v") for _ in sizes]
        node = oh.make_node(op, [v.name if v else "" for v in inputs], names, **attributes)
        arrays = compute(node, {v.name: v.array for v in inputs if v is not None})
        exact = (op in EXACT if exact is None else exact) and all(v.exact for v in inputs if v is not None)
        drawn = [Drawn(n, a, tuple(s), exact and _few_bits(a)) for n, a, s in zip(names, arrays, sizes, strict=True)]
        for v in drawn:
            if v.array.size > ELEMENTS or v.array.ndim != len(v.sizes):
                raise Rejected(f"{op}: {v.array.shape} for {v.sizes}")
            if not tame(v.array):
                raise Rejected(f"{op}: large")
            for size, n in zip(v.sizes, v.array.shape):
                if isinstance(size, int) and size != n:
                    raise AssertionError(f"{op}{attributes}: {v.array.shape} is not {v.sizes}")
        self.nodes.append(node)
        self.values += drawn
        return drawn

    def model(self, outputs: Sequence[Drawn]) -> onnx.ModelProto:
        """With the nodes that the outputs need, and no others."""
        needed = {v.name for v in outputs}
        nodes = []
        for node in reversed(self.nodes):
            if needed & set(node.output):
                nodes.insert(0, node)
                needed |= set(node.input)
        graph = oh.make_graph(
            nodes,
            "random",
            [_info(v) for v in self.inputs if v.name in needed],
            [_info(v, known=False) for v in outputs],
            [t for t in self.initializers if t.name in needed],
        )
        return oh.make_model(graph, opset_imports=[oh.make_opsetid("", OPSET)], ir_version=10)


def tame(array: Array) -> bool:
    """Whether all numbers are finite and small enough for rounding errors to stay small."""
    if array.dtype.kind not in "fiu":
        return True
    wide = array.astype(np.float64)
    return bool(np.all(np.isfinite(wide)) and np.max(np.abs(wide), initial=0) <= (LARGEST if array.dtype.kind == "f" else 1 << 24))


def compute(node: onnx.NodeProto, feeds: dict[str, Array]) -> list[Array]:
    """The node's outputs. Raises Rejected if there are none."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            results = ReferenceEvaluator(node).run(None, feeds)  # type: ignore[arg-type]
        except Exception as error:
            raise Rejected(f"{node.op_type}: {error}") from error
    return [np.asarray(r) for r in results]


def _few_bits(array: Array) -> bool:
    if array.dtype.kind != "f":
        return True
    scaled = array.astype(np.float64) * 256
    return bool(np.all(scaled == np.rint(scaled)) and np.max(np.abs(scaled), initial=0) < 2**20)


def _info(v: Drawn, known: bool = True) -> onnx.ValueInfoProto:
    """An output's sizes are left to the compiler."""
    sizes = list(v.sizes) if known else [None] * v.rank
    return oh.make_tensor_value_info(v.name, oh.np_dtype_to_tensor_dtype(v.array.dtype), sizes)
