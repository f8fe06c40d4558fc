"""What fusion says of what it did, and of each pair that it left apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from aitc.ir.apart import Apart
from aitc.ir.text import from_text
from aitc.passes.base import Context, run_passes
from aitc.pipeline import Options, compile
from aitc.registry import load
from aitc.schedule.core.why import Fusions, counts, text
from aitc.schedule.schedule import PlanOptions, schedule
from aitc.targets.target import find_target

ROOT = Path(__file__).resolve().parents[4]
for package in ("aitc.ops", "aitc.passes", "aitc.kernels"):
    load(package)


def fusions(body: str, target: str = "cpu") -> Fusions:
    why = Fusions()
    lines = "\n".join(f"  {line}" for line in body.strip().splitlines())
    schedule(from_text(f'graph "main" {{\n{lines}\n}}\n'), find_target(target), PlanOptions("t", "t.onnx"), why=why)
    return why


def reasons(why: Fusions, kind: str = "vertical") -> dict[str, str]:
    return {f"{a.first} {a.second}": a.reason for a in why.apart if a.kind == kind}


PRODUCT = """
input %x: f32[8, 64]
const %w: f32[64, 64] = random(1)
"""


def test_one_launch_has_nothing_apart() -> None:
    why = fusions(PRODUCT + '%p = MatMul(%x, %w)\n%y = Relu(%p)\noutput "y" = %y')
    assert why.apart == [] and (why.nodes, why.groups, why.launches) == (2, 1, 1)


def test_two_products() -> None:
    why = fusions(PRODUCT + '%p = MatMul(%x, %w)\n%y = MatMul(%p, %w)\noutput "y" = %y')
    assert reasons(why) == {
        "MatMul %p MatMul %y": "each of its elements needs many of these; kernel gemm_cpu reads this operand from memory"
    }


def test_a_residual_is_read_by_the_other_launch() -> None:
    body = """
%p = MatMul(%x, %w)
%q = Tanh(%p)
%r = MatMul(%q, %w)
%y = Add(%r, %q)
output "y" = %y
"""
    assert reasons(fusions(PRODUCT + body))["Tanh %q Add %y"] == "it is part of the launch of MatMul %r"


def test_what_is_read_twice_is_stored() -> None:
    body = """
input %x: f32[8, 64]
%t = Tanh(%x)
%m = Reduce(%t) {function = "max", axes = (1,), keepdims = true}
%y = Sub(%t, %m)
output "y" = %y
"""
    found = reasons(fusions(body))
    assert "its result is also read elsewhere" in found["Tanh %t Reduce %m"]
    assert found["Reduce %m Sub %y"] == "it is broadcast there: each element would be computed again and again"


def test_views_that_leave_elements_out() -> None:
    body = """
%p = MatMul(%x, %w)
%s = Slice(%p) {starts = (0, 0), sizes = (8, 32), steps = (1, 1)}
%y = Relu(%s)
output "y" = %y
"""
    why = fusions(PRODUCT + body)
    assert "Slice in between" in reasons(why)["MatMul %p Relu %y"] and why.views == 1


def test_a_concat_says_why_it_copies() -> None:
    body = """
%p = MatMul(%x, %w)
%c = Concat(%p, %x) {axis = 1}
%y = Relu(%c)
output "y" = %y
"""
    why = fusions(PRODUCT + body)
    assert why.joined == 1
    assert reasons(why, "memory") == {"%x Concat %c": "it is an input or a constant: nothing computes it anew"}


def test_products_of_one_input_that_stay_two() -> None:
    graph = from_text("""graph "main" {
  input %x: f32[8, 64]
  const %w: f32[64, 64] = random(1)
  const %v: f32[64, 32] = random(2)
  %p = MatMul(%x, %w)
  %y = Relu(%p)
  %z = MatMul(%x, %v)
  output "y" = %y
  output "z" = %z
}
""")
    context = Context()
    assert run_passes(graph, context, ["merge_matmuls"]) == 0
    why = "pointwise nodes follow: they are its epilogue, which a slice would cut off"
    assert context.apart == [Apart("horizontal", "MatMul %p", "MatMul %z", why)]
    assert f"MatMul %p and MatMul %z: {why}" in text(Fusions(), 0, context.apart)


@pytest.mark.parametrize("target", ["cpu", "h200"])
@pytest.mark.parametrize("name", ["bert_base-dynamo-dynamic", "swin_t-torchscript-static", "sd15_unet-dynamo-static"])
def test_every_pair_of_a_model_has_a_reason(name: str, target: str) -> None:
    result = compile(ROOT / "models" / "tiny" / f"{name}.onnx", Options(targets=(target,), stop_after="schedule"))
    why = result.fusions
    assert why.apart and all(a.reason for a in (*why.apart, *result.context.apart))
    assert result.plan is not None and why.launches == len(result.plan.launches)
    steps = [n for _, n, _ in counts(why, merged=3)]
    assert steps == sorted(steps, reverse=True) and steps[-1] == why.launches
    assert text(why, 0).count("\n  ") >= len(why.apart)
