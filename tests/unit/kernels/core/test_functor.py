"""Functors: how neighbouring elements are read, and what is written once."""

from __future__ import annotations

import numpy as np

from aitc.ir import dtype as dt
from aitc.ir.dim import Symbol, symbol
from aitc.ir.graph import Graph, Value
from aitc.ir.text import from_text
from aitc.kernels.core.functor import FunctorBuilder, Parameters, Storage
from aitc.kernels.core.kernel import coordinate, dim_of, finish
from aitc.kernels.core.spelling import literal
from aitc.kernels.core.vectors import vectorizes


def dense(v: Value) -> Storage:
    return Storage(v, 0, v.type.strides())


def body(text: str, width: int = 4) -> str:
    """The functor that stores the graph's only output."""
    graph: Graph = from_text(text)
    (out,) = graph.outputs
    i = coordinate("i", out.type.elems)
    from aitc.ir.index import unflatten

    builder = FunctorBuilder(frozenset(graph.nodes), i, width, Parameters(), dense)
    index = unflatten(dim_of(i), out.shape)
    builder.store(out, index, builder.value(out, index))
    return "\n".join(line.code for line in finish(builder, "Body", "", "index_t i", "").lines)


def test_a_row_is_a_vector_load_and_a_column_one_scalar() -> None:
    text = body("""graph "g" {
      input %x: f32[8, 16]
      input %row: f32[16]
      input %column: f32[8, 1]
      %a = Add(%x, %row)
      %y = Mul(%a, %column)
      output "y" = %y
    }""")
    assert "load<V>(x0 + i)" in text
    assert "load<V>(x1 + (i % 16))" in text
    assert "= x2[(i / 16)];" in text
    assert "store<V>(y0 + i, r" in text


def test_a_transposed_operand_is_read_element_by_element() -> None:
    text = body("""graph "g" {
      input %x: f32[16, 8]
      %t = Transpose(%x) {perm = (1, 0)}
      %y = Neg(%t)
      output "y" = %y
    }""")
    assert "load<V>" not in text and "x0[" in text and "store<V>" in text


def test_a_value_that_is_used_twice_is_computed_once() -> None:
    text = body("""graph "g" {
      input %x: f32[64]
      %e = Exp(%x)
      %y = Mul(%e, %e)
      output "y" = %y
    }""")
    assert text.count("exp_(") == 1 and text.count("load<V>") == 1


def test_scalar_constants_are_literals() -> None:
    text = body("""graph "g" {
      input %x: f32[64]
      const %c: f32[] = full(0.5)
      %y = Mul(%x, %c)
      output "y" = %y
    }""")
    assert "0.5f" in text and "w0" not in text


def test_literals() -> None:
    assert literal(float("inf"), dt.F32) == "inf_of<float>()"
    assert literal(-(2**63), dt.I64) == "INT64_MIN"
    assert literal(1, dt.F32) == "1.0f"
    assert literal(np.float32(0.1).item(), dt.F32) == "0.1f"
    assert literal(True, dt.BOOL) == "true"


def test_vectors_end_where_rows_end() -> None:
    i = Symbol("@i", 0, 6 * 10 - 1)
    row = dim_of(i) % 10
    assert vectorizes(row, i, 2)
    assert not vectorizes(row, i, 4)  # a vector of four would cross from one row of ten into the next
    assert not vectorizes(dim_of(i) + 1, i, 2)  # not aligned
    n = symbol("n", 1)
    assert vectorizes(dim_of(i) + n * 8, i, 8)
    assert not vectorizes(dim_of(i) + n * 4, i, 8)
