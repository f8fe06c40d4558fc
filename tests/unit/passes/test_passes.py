"""What the golden cases do not show: limits, sharing, bodies, and the order of things in a whole run."""

from __future__ import annotations

import time

import numpy as np
import pytest
from graph_inputs import random_inputs

from aitc.errors import AitcError, Exit
from aitc.ir.builder import Builder
from aitc.ir.dtype import F16, F32, I64
from aitc.ir.graph import Graph
from aitc.ir.interpret import interpret
from aitc.ir.text import from_text
from aitc.ir.types import TensorType
from aitc.ir.verify import verify
from aitc.passes import stages
from aitc.passes.base import PASSES, Context, run_passes


def test_weights_that_are_shared_are_not_stored_twice() -> None:
    graph = Graph("main")
    b = Builder(graph)
    x = graph.add_input("x", TensorType(F32, (4, 256)))
    i = graph.add_input("i", TensorType(I64, (3,)))
    table = b.constant(np.random.default_rng(0).standard_normal((512, 256)).astype(np.float32), name="table")
    rows = b.op("Gather", table, i, axis=0)
    logits = b.op("MatMul", x, b.op("Transpose", table, perm=(1, 0)))
    graph.outputs = [rows, logits]
    stages.simplify(graph, Context())
    assert sorted(n.op.name for n in graph.nodes) == ["Gather", "MatMul", "Transpose"]


def test_a_weight_used_once_is_transposed_at_compile_time() -> None:
    graph = Graph("main")
    b = Builder(graph)
    x = graph.add_input("x", TensorType(F32, (4, 256)))
    w = b.constant(np.random.default_rng(0).standard_normal((512, 256)).astype(np.float32))
    graph.outputs = [b.op("MatMul", x, b.op("Transpose", w, perm=(1, 0)))]
    stages.simplify(graph, Context())
    assert [n.op.name for n in graph.nodes] == ["MatMul"]


def test_shared_weights_are_not_scaled() -> None:
    graph = Graph("main")
    b = Builder(graph)
    x = graph.add_input("x", TensorType(F32, (4, 256)))
    w = b.constant(np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32))
    first = b.op("MatMul", b.op("Mul", x, b.like(0.3, x)), w)
    graph.outputs = [b.op("MatMul", b.op("Tanh", first), w)]
    stages.simplify(graph, Context())
    assert [n.op.name for n in graph.nodes] == ["Mul", "MatMul", "Tanh", "MatMul"]


def test_fill_as_a_weight_takes_no_memory() -> None:
    graph = from_text("""graph "main" {
  input %x: f32[1, 4096]
  %w = Fill() {value = 0.5, shape = (4096, 4096)}
  %y = MatMul(%x, %w)
  output "y" = %y
}""")
    run_passes(graph, Context(), ["fold_constants"])
    (node,) = graph.nodes
    assert node.inputs[1].const.shape == (4096, 4096)
    assert node.inputs[1].const.strides == (0, 0)


def test_a_huge_fill_is_not_packed() -> None:
    """Four bytes of a file stand for 3.6 GB: as a weight they would be written out, as a computed value they never are."""
    graph = from_text("""graph "main" {
  input %x: f32[3, 30000]
  %w = Fill() {value = 0.5, shape = (30000, 30000)}
  %y = MatMul(%x, %w)
  output "y" = %y
}""")
    run_passes(graph, Context(), ["fold_constants"])
    assert [n.op.name for n in graph.nodes] == ["Fill", "MatMul"]


def test_short_weights_are_widened_at_compile_time() -> None:
    graph = Graph("main")
    b = Builder(graph)
    x = graph.add_input("x", TensorType(F32, (4, 512)))
    w = b.op("Cast", b.constant(np.ones((512, 512), np.int8)), to=F32)
    w = b.op("Mul", w, b.constant(np.full((1, 512), 0.5, np.float32)))
    graph.outputs = [b.op("MatMul", x, w)]
    stages.simplify(graph, Context())
    assert [n.op.name for n in graph.nodes] == ["MatMul"]


def test_large_masks_are_not_folded() -> None:
    graph = Graph("main")
    b = Builder(graph)
    x = graph.add_input("x", TensorType(F32, (4096, 4096)))
    rows = b.constant(np.arange(4096, dtype=np.int64).reshape(-1, 1))
    columns = b.constant(np.arange(4096, dtype=np.int64).reshape(1, -1))
    graph.outputs = [b.op("Where", b.op("Less", rows, columns), x, b.like(0, x))]
    stages.simplify(graph, Context())
    assert [n.op.name for n in graph.nodes] == ["Less", "Where"]


def test_bodies_are_simplified_and_forget_what_they_no_longer_read() -> None:
    graph = from_text("""graph "main" {
  input %c: bool[]
  input %x: f32[4]
  %e = Exp(%x)
  %y = If(%c) {dtypes = (#f32,), shapes = ((4,),)} do {
    graph "then" {
      const %zero: f32[] = [0.0]
      %a = Add(%^x, %zero)
      %b = Mul(%a, %^e)
      %n = Neg(%a)
      output %n
    }
    graph "else" {
      output %^x
    }
  }
  output "y" = %y
}""")
    inputs = random_inputs(graph)
    before = interpret(graph, inputs)["y"]
    stages.simplify(graph, Context())
    verify(graph, "simplify")
    assert [n.op.name for n in graph.nodes] == ["If"]
    body = graph.holders[0].bodies[0]
    assert [n.op.name for n in body.nodes] == ["Neg"]
    assert body.captured == [graph.inputs[1]]
    np.testing.assert_array_equal(interpret(graph, inputs)["y"], before)


def test_narrowing_keeps_bodies_wide() -> None:
    graph = from_text("""graph "main" {
  input %c: bool[]
  input %x: f32[4, 4]
  const %w: f32[4, 4] = full(0.5)
  %m = MatMul(%x, %w)
  %y = If(%c) {dtypes = (#f32,), shapes = ((4, 4),)} do {
    graph "then" {
      %n = Neg(%^m)
      output %n
    }
    graph "else" {
      output %^m
    }
  }
  %z = MatMul(%y, %w)
  output "z" = %z
}""")
    inputs = random_inputs(graph)
    before = interpret(graph, inputs)["z"]
    context = Context(precision="fp16")
    stages.layout(graph, context)
    types = {n.op.name: n.output.type.dtype for n in graph.nodes}
    assert types["MatMul"] is F16 and types["If"] is F32
    np.testing.assert_allclose(interpret(graph, inputs)["z"], before, atol=2e-2)


@pytest.mark.parametrize("precision", ["model", "tf32"])
def test_other_precisions_change_no_type(precision: str) -> None:
    graph = from_text('graph "main" {\n  input %x: f32[4]\n  %y = Exp(%x)\n  output "y" = %y\n}')
    context = Context(precision=precision)
    stages.layout(graph, context)
    assert [(d.op, d.dtype) for d in context.decisions] == [("Exp", "f32")]


def test_keep_fp32_must_be_a_regular_expression() -> None:
    graph = from_text('graph "main" {\n  input %x: f32[4]\n  %y = Exp(%x)\n  output "y" = %y\n}')
    with pytest.raises(AitcError) as e:
        stages.layout(graph, Context(precision="fp16", keep_fp32=("(",)))
    assert e.value.exit_code is Exit.USAGE


def test_every_pass_can_be_run_alone() -> None:
    for p in PASSES:
        graph = from_text('graph "main" {\n  input %x: f32[4]\n  %y = Exp(%x)\n  output "y" = %y\n}')
        run_passes(graph, Context(), [p.name])
        assert [n.op.name for n in graph.nodes] == ["Exp"], p.name


def layers(count: int) -> Graph:
    """Layers of a decomposed norm, a linear layer and a decomposed gelu: 15 nodes each."""
    graph = Graph("main")
    b = Builder(graph)
    h = graph.add_input("x", TensorType(F32, (2, 8)))
    rng = np.random.default_rng(0)
    for _ in range(count):
        mean = b.op("Reduce", h, function="mean", axes=(1,))
        d = b.op("Sub", h, mean)
        variance = b.op("Reduce", b.op("Mul", d, d), function="mean", axes=(1,))
        n = b.op("Div", d, b.op("Sqrt", b.op("Add", variance, b.constant(np.float32(1e-5)))))
        f = b.op(
            "Add",
            b.op("MatMul", n, b.constant(rng.standard_normal((8, 8)).astype(np.float32))),
            b.constant(np.ones(8, np.float32)),
        )
        e = b.op("Add", b.op("Erf", b.op("Div", f, b.constant(np.float32(2**0.5)))), b.constant(np.float32(1)))
        h = b.op("Add", h, b.op("Mul", b.op("Mul", f, e), b.constant(np.float32(0.5))))
    graph.outputs = [h]
    return graph


def test_all_passes_are_linear() -> None:
    def seconds(count: int) -> float:
        graph, context = layers(count), Context(precision="fp16")
        start = time.process_time()
        for stage in (stages.simplify, stages.fuse, stages.layout):
            stage(graph, context)
        assert context.log.counts()["layer-norm"] == count and context.log.counts()["gelu"] == count
        return time.process_time() - start

    seconds(4)
    pairs = ((seconds(40), seconds(320)) for _ in range(3))  # the machine may be busy
    assert any(large < 8 * small * 3 + 0.2 for small, large in pairs)  # a quadratic walk would take 64 times as long


@pytest.mark.parametrize(("broadcast", "products"), [(True, 1), (False, 2)])
def test_products_that_are_broadcast_become_one_and_those_with_tails_stay(broadcast: bool, products: int) -> None:
    shape, reshaped = ("[2, 6, 5]", "(2, 6, 1)") if broadcast else ("[2, 6]", "(2, 6)")
    graph = from_text(f"""graph "main" {{
      input %x: f32[2, 8]
      input %image: f32{shape}
      const %w: f32[8, 6] = random(1)
      const %v: f32[8, 6] = random(2)
      %a = MatMul(%x, %w)
      %b = MatMul(%x, %v)
      %a1 = Reshape(%a) {{shape = {reshaped}}}
      %b1 = Reshape(%b) {{shape = {reshaped}}}
      %y = Add(%image, %a1)
      %z = Mul(%y, %b1)
      output "z" = %z
    }}""")
    feed = random_inputs(graph, 0)
    before = interpret(graph, feed)["z"]
    run_passes(graph, Context(), ["merge_matmuls"])
    assert [n.op.name for n in graph.nodes].count("MatMul") == products
    np.testing.assert_allclose(interpret(graph, feed)["z"], before, rtol=1e-5)
