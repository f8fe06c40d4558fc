"""Choosing configurations: keys of problems, tables, candidates to measure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from aitc.ir.graph import Graph
from aitc.ir.text import from_text
from aitc.registry import load
from aitc.schedule.choose.select import Candidates, Choice
from aitc.schedule.plan.check import check_plan
from aitc.schedule.plan.plan import Plan
from aitc.schedule.schedule import PlanOptions, schedule, schedule_with
from aitc.targets.target import find_target

for package in ("aitc.ops", "aitc.kernels"):
    load(package)

H200, CPU = find_target("h200"), find_target("cpu")
OPTIONS = PlanOptions("case", "case.onnx")


def product(tail: str = "", m: str = "128", dtype: str = "f16", more: str = "") -> Graph:
    """y = x · w and what ``tail`` makes of it."""
    body = tail or "%y = Relu(%p)"
    return from_text(f"""graph "main" {{
{more}  input %x: {dtype}[{m}, 256]
  input %r: {dtype}[{m}, 512]
  const %w: {dtype}[256, 512] = random(1)
  const %b: {dtype}[512] = random(2)
  %p = MatMul(%x, %w)
  {body}
  output "y" = %y
}}
""")


def key(graph: Graph) -> str:
    select = Candidates(None, 1)
    schedule_with(graph, H200, OPTIONS, select)
    return next(s[0].key for s in select.slots if s[0].kernel.startswith("gemm"))


def test_a_key_says_kernel_problem_and_epilogue() -> None:
    assert key(product()) == "gemm_sm90 f16 1x128x512x256 K16 N16 const dense tail 1"


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        ("%q = Add(%p, %b)\n  %y = Relu(%q)", "dense tail 2 1v"),
        ("%q = Add(%p, %r)\n  %y = Relu(%q)", "dense staged tail 2 1t"),
        ("%q = Add(%p, %b)\n  %y = Gelu(%q) {approximate = \"none\"}", "dense tail 2 1v exp"),
        ("%y = Cast(%p) {to = #f32}", "tail 1 -> f32"),
    ],
)  # fmt: skip
def test_epilogues_that_cost_differently_have_keys_of_their_own(tail: str, said: str) -> None:
    assert key(product(tail)).endswith(f"const {said}")


def test_a_key_has_no_name_of_the_model() -> None:
    text = key(product("%secret = Add(%p, %b)\n  %y = Relu(%secret)"))
    assert "secret" not in text and "case" not in text


def test_symbolic_sizes_come_with_their_bounds() -> None:
    text = key(product(m="batch", more="  dim batch in 1..32 hint 8\n"))
    assert text == "gemm_sm90 f16 1xbatchx512x256 K16 N16 const dense tail 1 batch:1..32~8"


def planned(table: dict[str, str] | None = None) -> Plan:
    return check_plan(schedule(product(), H200, OPTIONS, table))


def test_a_table_wins_over_the_model() -> None:
    usual = planned()
    select = Candidates(None, 100)
    schedule_with(product(), H200, OPTIONS, select)
    other = select.slots[-1][3]
    tuned = planned({other.key: str(other.config)})
    assert usual.launches[0].chosen == "model" and tuned.launches[0].chosen == "table"
    assert tuned.kernels[0].config == str(other.config) != usual.kernels[0].config


def test_a_configuration_that_is_gone_is_passed_over() -> None:
    plan = planned({key(product()): "1x1_of_old"})
    assert plan.launches[0].gone == "1x1_of_old" and plan.kernels == planned().kernels


# --- candidates


def layers(count: int) -> Graph:
    lines = "\n".join(f"  %p{i + 1} = MatMul(%p{i}, %w)\n  %q{i + 1} = Sigmoid(%p{i + 1})" for i in range(count))
    text = f'graph "main" {{\n  input %q0: f32[8, 64]\n  const %w: f32[64, 64] = random(1)\n{lines}\n  output "y" = %q{count}\n}}\n'
    for i in range(count):
        text = text.replace(f"MatMul(%p{i}, ", f"MatMul(%q{i}, ")
    return from_text(text)


def test_every_candidate_is_a_launch_of_the_same_group() -> None:
    select = Candidates(None, 3, places=2)
    plan, choices = schedule_with(layers(4), CPU, OPTIONS, select)
    check_plan(plan)
    assert [len(s) for s in select.slots] == [3, 3, 1, 1]
    assert len(plan.launches) == len(choices) == 8
    assert list(select.counts.values()) == [4]
    assert [str(c.config) for c in choices[:4]] == ["auto", "4x2", "6x2", "auto"]
    outputs = [next(a.buffer for a in n.args if not getattr(a, "const", True)) for n in plan.launches]
    assert len(set(outputs[:3])) == 1 and outputs[0] != outputs[3]


def test_what_is_known_is_not_measured_again() -> None:
    known: Callable[[str], tuple[str, ...]] = lambda key: ("auto", "4x2")  # noqa: E731
    select = Candidates(None, 3, known=known)
    schedule_with(layers(1), CPU, OPTIONS, select)
    assert [str(c.config) for c in select.slots[0]] == ["auto", "6x2"]
    select = Candidates(None, 3, known=lambda key: ("8x2", "auto"))  # what was the best meets what is new, first of all
    schedule_with(layers(1), CPU, OPTIONS, select)
    assert [str(c.config) for c in select.slots[0]] == ["auto", "8x2", "4x2", "6x2"]
    select = Candidates(None, 3, known=lambda key: ("4x2", "auto", "6x2", "of an older aitc"))
    schedule_with(layers(1), CPU, OPTIONS, select)
    assert [str(c.config) for c in select.slots[0]] == ["auto"]


def test_the_default_comes_first_and_is_the_tables() -> None:
    select = Candidates(None, 2)
    schedule_with(layers(1), CPU, OPTIONS, select)
    (slot,) = select.slots
    again = Candidates({slot[0].key: "12x1"}, 6)
    _, choices = schedule_with(layers(1), CPU, OPTIONS, again)
    first: Choice = choices[0]
    assert str(first.config) == "12x1" and first.source == "table" and len(again.slots[0]) == 6


def stem(wide: bool) -> Graph:
    """The first convolution of a network for images; ``wide``: its results are stored in float32, too."""
    more = '  %z = Cast(%r) {to = #f32}\n  output "z" = %z\n' if wide else ""
    graph = from_text(f"""graph "main" {{
  input %x: f16[1, 4, 64, 64] order (0, 2, 3, 1)
  const %w: f16[64, 4, 7, 7] = random(1)
  %p = Conv(%x, %w) {{strides = (2, 2), pads = (3, 3, 3, 3), dilations = (1, 1), group = 1, out = none}}
  %r = Relu(%p)
  %y = Softmax(%r) {{axis = 1}}
  output "y" = %y
{more}}}
""")
    for node in graph.nodes:
        node.output.type = replace(node.output.type, order=(0, 2, 3, 1))
    return graph


def test_a_kernel_that_cannot_store_what_grew_around_its_anchor_leaves_it_to_the_next() -> None:
    def kernels(graph: Graph) -> set[str]:
        select = Candidates(None, 1)
        schedule_with(graph, H200, OPTIONS, select)
        return {s[0].kernel for s in select.slots}

    assert "conv_stem_sm90" in kernels(stem(wide=False))
    found = kernels(stem(wide=True))
    assert "conv_stem_sm90" not in found and any(k.startswith("conv_") for k in found)
