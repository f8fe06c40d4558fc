"""Each invariant, broken by hand, is reported."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from aitc.ir import dtype as dt
from aitc.ir.graph import Graph
from aitc.ir.text import from_text
from aitc.ir.types import TensorType
from aitc.ir.verify import InvalidGraph, verify
from aitc.registry import load

load("aitc.ops")

TEXT = """graph "main" {
  input %c: bool[]
  input %x: f32[2, 3]
  const %k: f32[3] = [1.0, 2.0, 3.0]
  %a: f32[2, 3] = Mul(%x, %k)
  %b: f32[2, 3] = Relu(%a)
  %i: f32[2, 3] = If(%c) {dtypes = (#f32,), shapes = ((2, 3),)} do {
    graph "then" {
      %n: f32[2, 3] = Neg(%^a)
      output %n
    }
    graph "else" {
      output %^b
    }
  }
  output "y" = %i
}
"""


def lose_a_use(g: Graph) -> None:
    a = next(iter(g.nodes)).output
    a.users.clear()


def swap(g: Graph) -> None:
    nodes = list(g.nodes)
    g._nodes = dict.fromkeys([nodes[1], nodes[0], nodes[2]])


def wrong_type(g: Graph) -> None:
    list(g.nodes)[1].output.type = TensorType(dt.F32, (2, 4))


def wrong_order(g: Graph) -> None:
    list(g.nodes)[1].output.type = TensorType(dt.F32, (2, 3), (0, 0))


def same_name(g: Graph) -> None:
    list(g.nodes)[1].output.name = "x"


def wrong_constant(g: Graph) -> None:
    next(iter(g.nodes)).inputs[1].const = np.zeros(4, np.float32)


def forget_captured(g: Graph) -> None:
    list(g.nodes)[2].bodies[0].captured.clear()


def missing_name(g: Graph) -> None:
    g.output_names.append("z")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lose_a_use, "keeps users"),
        (swap, "which nothing before it defines"),
        (wrong_type, "but Relu gives"),
        (wrong_order, "no permutation"),
        (same_name, "two values"),
        (wrong_constant, "constant %k has shape"),
        (forget_captured, "does not list as captured"),
        (missing_name, "2 names"),
    ],
)
def test_broken_graphs_are_found(spoil: Callable[[Graph], None], message: str) -> None:
    graph = from_text(TEXT)
    verify(graph, "nothing")
    spoil(graph)
    with pytest.raises(InvalidGraph, match=f"after a pass: .*{message}"):
        verify(graph, "a pass")
