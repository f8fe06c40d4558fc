"""The interpreter: binding of symbols, control flow, and its errors."""

from __future__ import annotations

import numpy as np
import pytest

from aitc.ir.interpret import InterpretError, interpret
from aitc.ir.text import from_text
from aitc.registry import load

load("aitc.ops")


def test_symbols_are_bound_from_inputs() -> None:
    graph = from_text("""graph "main" {
  dim N in 1..
  dim S in 1..
  input %x: f32[N, 2*S]
  %y = Reshape(%x) {shape = (N, S, 2)}
  %d = Dims() {content = (N, S), shape = (2,)}
  output "y" = %y
  output "d" = %d
}""")
    result = interpret(graph, {"x": np.zeros((3, 10), np.float32)}, keep=True)
    assert result["y"].shape == (3, 5, 2)
    assert result["d"].tolist() == [3, 5]
    assert result["x"].shape == (3, 10)


def test_if_runs_one_branch() -> None:
    graph = from_text("""graph "main" {
  input %c: bool[]
  input %x: f32[2]
  %y = If(%c) {dtypes = (#f32,), shapes = ((2,),)} do {
    graph "then" {
      %n = Neg(%^x)
      output %n
    }
    graph "else" {
      output %^x
    }
  }
  output "y" = %y
}""")
    x = np.array([1, 2], np.float32)
    assert interpret(graph, {"c": np.array(True), "x": x})["y"].tolist() == [-1, -2]
    assert interpret(graph, {"c": np.array(False), "x": x})["y"].tolist() == [1, 2]


def test_loop_carries_and_stacks() -> None:
    graph = from_text("""graph "main" {
  dim T in 0..
  input %n: i64[]
  input %x: f32[2]
  %y, %all = Loop(%n, none, %x) {dtypes = (#f32, #f32), shapes = ((2,), (T, 2)), carried = 1} do {
    graph "body" {
      input %i: i64[]
      input %go: bool[]
      input %v: f32[2]
      %w = Add(%v, %v)
      const %yes: bool[] = [true]
      output %yes
      output %w
      output %v
    }
  }
  output "y" = %y
  output "all" = %all
}""")
    result = interpret(graph, {"n": np.array(3), "x": np.array([1, 3], np.float32)})
    assert result["y"].tolist() == [8, 24]
    assert result["all"].tolist() == [[1, 3], [2, 6], [4, 12]]
    assert interpret(graph, {"n": np.array(0), "x": np.array([1, 3], np.float32)})["all"].shape == (0, 2)


def test_errors_name_the_node() -> None:
    text = 'graph "main" {\n  dim N in 1..\n  input %x: f32[N]\n  input %y: f32[N]\n  %z = Add(%x, %y)\n  output "z" = %z\n}'
    with pytest.raises(InterpretError, match="no input 'y'"):
        interpret(from_text(text), {"x": np.zeros(3, np.float32)})
    with pytest.raises(InterpretError, match=r"input 'y' has shape \(4,\)"):
        interpret(from_text(text), {"x": np.zeros(3, np.float32), "y": np.zeros(4, np.float32)})


def test_a_wrong_type_is_noticed() -> None:
    graph = from_text('graph "main" {\n  input %x: f32[2, 3]\n  %y: f32[2, 2] = Relu(%x)\n  output "y" = %y\n}')
    with pytest.raises(InterpretError, match="has shape"):
        interpret(graph, {"x": np.zeros((2, 3), np.float32)})
