"""Layer norms between products: no launches, the same results; and those that stay, with the reason."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from aitc.ir.builder import Builder
from aitc.ir.dim import Dim, symbol
from aitc.ir.dtype import F16, F32
from aitc.ir.graph import Graph, Value
from aitc.ir.interpret import interpret
from aitc.ir.types import TensorType
from aitc.kernels.hopper.gemm_sm90 import GemmSm90
from aitc.registry import load
from aitc.schedule.core.storage import Storages
from aitc.schedule.core.why import Fusions, text
from aitc.schedule.rewrite.norms import fold_norms
from aitc.schedule.schedule import PlanOptions, schedule
from aitc.targets.target import find_target

load("aitc.ops")
load("aitc.kernels")
H200 = find_target("h200")
WIDTH = 96


class Network:
    """A graph under construction, with random weights."""

    def __init__(self, rows: Dim = 40) -> None:
        self.graph = Graph("main")
        self.b = Builder(self.graph)
        self.rng = np.random.default_rng(0)
        self.rows = rows

    def input(self, name: str, width: int = WIDTH) -> Value:
        return self.graph.add_input(name, TensorType(F16, (1, self.rows, width)))

    def row(self, width: int = WIDTH, about: float = 0.0) -> Value:
        return self.b.constant((about + self.rng.standard_normal(width) / 8).astype(np.float16))

    def linear(self, x: Value, width: int = WIDTH, bias: bool = True) -> Value:
        depth = x.shape[-1]
        assert isinstance(depth, int)
        y = self.b.op("MatMul", x, self.b.constant((self.rng.standard_normal((depth, width)) / depth**0.5).astype(np.float16)), out=None)
        return self.b.op("Add", y, self.row(width)) if bias else y

    def norm(self, x: Value, scale: bool = True, bias: bool = True, center: bool = True, wide: bool = False) -> Value:
        """``wide``: in float32, between two Casts."""
        x = self.b.op("Cast", x, to=F32) if wide else x
        y = self.b.op("LayerNormalization", x, axes=(2,), epsilon=1e-5, center=center)
        y = self.b.op("Cast", y, to=F16) if wide else y
        y = self.b.op("Mul", y, self.row(about=1.0)) if scale else y
        return self.b.op("Add", y, self.row()) if bias else y

    def done(self, *outputs: Value) -> Graph:
        self.graph.outputs = list(outputs)
        self.graph.output_names = [f"y{i}" for i in range(len(outputs))]
        return self.graph


def after(n: Network) -> Graph:
    """Two blocks as in BERT: the residual adds what the norm gave."""
    x = n.b.op("Add", n.linear(n.input("x")), n.input("r"))
    for _ in range(2):
        y = n.norm(x)
        x = n.b.op("Add", n.linear(n.b.op("Gelu", n.linear(y, 160))), y)
    return n.done(n.linear(n.norm(x)))


def before(n: Network) -> Graph:
    """Two blocks as in ViT: the residual adds what the norm was given."""
    x = n.b.op("Add", n.linear(n.input("x")), n.input("r"))
    for scale, bias in ((True, True), (False, False), (True, False), (False, True)):
        x = n.b.op("Add", n.linear(n.b.op("Gelu", n.linear(n.norm(x, scale, bias), 160, bias=scale))), x)
    return n.done(n.linear(n.norm(x)))


def squares(n: Network) -> Graph:
    """Root-mean-square norms as in Llama, in float32."""
    x = n.b.op("Add", n.linear(n.input("x")), n.input("r"))
    for wide in (True, False):
        x = n.b.op("Add", n.linear(n.b.op("Silu", n.linear(n.norm(x, bias=False, center=False, wide=wide), 160))), x)
    y = n.norm(x, wide=True)
    return n.done(n.linear(n.b.op("Add", n.linear(y), y)))


def folded(graph: Graph) -> tuple[int, Fusions]:
    why = Fusions()
    return fold_norms(graph, Storages(), H200, why), why


@pytest.mark.parametrize(("make", "count"), [(after, 3), (before, 5), (squares, 3)])
def test_the_same_results(make: Callable[[Network], Graph], count: int) -> None:
    graph, rng = make(Network()), np.random.default_rng(1)
    feeds = {v.name: rng.standard_normal((1, 40, WIDTH)).astype(np.float16) for v in graph.inputs}
    (want,) = interpret(graph, feeds).values()
    assert folded(graph)[0] == count
    assert "LayerNormalization" not in [node.op.name for node in graph.nodes]
    (got,) = interpret(graph, feeds).values()
    np.testing.assert_allclose(got.astype(np.float32), want.astype(np.float32), atol=3e-2)


@pytest.mark.parametrize("rows", [40, symbol("s", 1, 512)], ids=str)
@pytest.mark.parametrize(("make", "products"), [(after, 6), (before, 10), (squares, 7)])
def test_no_launch_but_the_products(make: Callable[[Network], Graph], products: int, rows: Dim) -> None:
    plan = schedule(make(Network(rows)), H200, PlanOptions("m", "m.onnx"))
    assert [launch.note.split(" + ")[0] for launch in plan.launches] == ["MatMul"] * products
    described = [k for k in plan.kernels if any("moments_of" in a for f in k.context.functors for a in f.aliases)]
    assert described and all(k.kernel == "gemm_sm90" for k in described)


def test_what_the_mean_contributes_is_taken_out_again() -> None:
    """Rows whose mean is a hundred times their deviation lose nothing beside what rounding the results does."""
    n = Network()
    x = n.b.op("Add", n.b.op("MatMul", n.input("x"), n.b.constant(np.eye(WIDTH, dtype=np.float16)), out=None), n.input("r"))
    graph = n.done(n.linear(n.norm(x)))
    r = (100 + np.random.default_rng(2).standard_normal((1, 40, WIDTH))).astype(np.float16)
    weights = [v.const.astype(np.float64) for node in graph.nodes for v in node.inputs if v is not None and v.const is not None]
    _, scale, bias, w, last = weights
    centred = r.astype(np.float64) - r.astype(np.float64).mean(axis=2, keepdims=True)
    want = (centred / np.sqrt(np.square(centred).mean(axis=2, keepdims=True) + 1e-5) * scale + bias) @ w + last
    assert folded(graph)[0] == 1
    sums = next(v.const for node in graph.nodes if node.op.name == "Mul" for v in node.inputs if v is not None and v.const is not None)
    scaled = next(node.inputs[1].const for node in graph.nodes if node.op.name == "MatMul" and node.inputs[1] is not None and node.input is not graph.inputs[0])
    assert scaled is not None and sums is not None
    np.testing.assert_array_equal(sums, scaled.astype(np.float64).sum(axis=0).astype(np.float32))  # of the weights as they are stored
    x64 = r.astype(np.float64)
    mean, square = x64.mean(axis=2, keepdims=True), np.square(centred).mean(axis=2, keepdims=True)
    got = (x64 @ scaled.astype(np.float64) - mean * sums) / np.sqrt(square + 1e-5) + (bias @ w + last)
    np.testing.assert_allclose(got, want, atol=3e-3)


def read_by_the_host(n: Network) -> Graph:
    y = n.norm(n.linear(n.input("x")))
    return n.done(y, n.linear(y))


def of_an_input(n: Network) -> Graph:
    return n.done(n.linear(n.norm(n.input("x"))))


@pytest.mark.parametrize("size", [2.0**-12, 1.0, 2.0**10])
def test_scaled_weights_have_all_their_digits(size: float) -> None:
    """A scale far from 1 makes the weights neither subnormal nor infinite."""
    n = Network()
    y = n.b.op("LayerNormalization", n.linear(n.input("x")), axes=(2,), epsilon=1e-5, center=True)
    y = n.b.op("Mul", y, n.b.constant((size * (1 + n.rng.random(WIDTH))).astype(np.float16)))
    w = (n.rng.standard_normal((WIDTH, 64)) * (16 if size > 1 else 1)).astype(np.float16)
    graph = n.done(n.b.op("MatMul", y, n.b.constant(w), out=None))
    feeds = {"x": np.random.default_rng(4).standard_normal((1, 40, WIDTH)).astype(np.float16)}
    before = interpret(graph, feeds)
    scale = next(v.const for node in graph.nodes if node.op.name == "Mul" for v in node.inputs if v is not None and v.const is not None)
    assert scale is not None and folded(graph)[0] == 1
    stored = next(node.inputs[1].const for node in reversed(list(graph.nodes)) if node.op.name == "MatMul" and node.inputs[1] is not None)
    assert stored is not None
    exact = w.astype(np.float64) * scale.astype(np.float64)[:, None]
    factor = 2 ** np.round(np.log2(np.median(stored.astype(np.float64) / exact)))
    assert (factor == 1) == (size == 1)
    np.testing.assert_allclose(stored.astype(np.float64), exact * factor, rtol=2**-11, atol=1e-6)
    if size <= 1:  # beyond it, half precision does not hold the results
        (want,), (got,) = before.values(), interpret(graph, feeds).values()
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=1e-2, atol=0.1 * size)


def stays_wide(n: Network) -> Graph:
    y = n.b.op("LayerNormalization", n.b.op("Cast", n.linear(n.input("x")), to=F32), axes=(2,), epsilon=1e-5, center=True)
    return n.done(n.b.op("MatMul", y, n.b.constant(np.eye(WIDTH, dtype=np.float32)), out=None))


def in_float32(n: Network) -> Graph:
    x = n.b.op("Cast", n.input("x"), to=F32)
    eye = n.b.constant(np.eye(WIDTH, dtype=np.float32))
    y = n.b.op("LayerNormalization", n.b.op("MatMul", x, eye, out=None), axes=(2,), epsilon=1e-5, center=True)
    return n.done(n.b.op("MatMul", y, eye, out=None))


def not_whole_parts(n: Network) -> Graph:
    return n.done(n.linear(n.norm(n.linear(n.input("x"), 72), False, False)))


def read_by_a_softmax(n: Network) -> Graph:
    y = n.norm(n.linear(n.input("x")))
    return n.done(n.linear(y), n.b.op("Softmax", y, axis=2))


def times_an_input(n: Network) -> Graph:
    y = n.norm(n.linear(n.input("x")))
    return n.done(n.linear(y), n.b.op("MatMul", y, n.b.op("Transpose", n.input("z"), perm=(0, 2, 1)), out=None))


def twice_added(n: Network) -> Graph:
    y = n.norm(n.linear(n.input("x")))
    z = n.b.op("Add", n.linear(n.b.op("Gelu", n.linear(y))), y)
    return n.done(n.linear(y), z, n.b.op("Add", n.linear(n.b.op("Gelu", n.linear(y))), y))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (read_by_the_host, "output of the model"),
        (stays_wide, "read in another type"),
        (in_float32, "only the norm of the last axis"),
        (not_whole_parts, "stores no statistics of rows like these"),
        (read_by_a_softmax, "no epilogue of a product"),
        (times_an_input, "no constant matrix"),
        (twice_added, "several epilogues"),
    ],
)
def test_near_misses_have_their_reason(make: Callable[[Network], Graph], reason: str) -> None:
    graph, why = make(Network()), Fusions()
    schedule(graph, H200, PlanOptions("m", "m.onnx"), why=why)
    assert "LayerNormalization" in [node.op.name for node in graph.nodes]
    assert reason in text(why, 0)


def test_stays_where_nothing_is_gained() -> None:
    """An input's norm has no product before it; wide products of many rows would do more than the launch; other targets have no such epilogue."""
    assert folded(of_an_input(Network()))[0] == 0
    n, why = Network(6304), Fusions()
    graph = n.done(n.linear(n.norm(n.linear(n.input("x", 768), 768), False, False), 3072))
    schedule(graph, H200, PlanOptions("m", "m.onnx"), why=why)
    assert "costs less than what its neighbours would lose" in text(why, 0)
    for name in ("a100", "mi250", "cpu"):
        assert fold_norms(after(Network()), Storages(), find_target(name), Fusions()) == 0


def test_statistics_that_no_epilogue_takes_are_still_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Moments of other parts than the kernel's is a launch of its own."""
    graph = after(Network())
    folded(graph)
    monkeypatch.setattr(GemmSm90, "moments", 0)
    plan = schedule(graph, H200, PlanOptions("m", "m.onnx"))
    assert [launch.note for launch in plan.launches].count("Moments") == 3
