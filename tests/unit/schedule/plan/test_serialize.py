"""A Plan's JSON is lossless, and stable."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest

from aitc.errors import Loc
from aitc.ir import dim as dm
from aitc.ir.dtype import BF16, F32
from aitc.schedule.plan.plan import (
    Buffer,
    DimArg,
    DimSource,
    KernelSource,
    Launch,
    Plan,
    PointerArg,
    Port,
    Space,
    TensorMapArg,
    Weight,
)
from aitc.schedule.plan.serialize import plan_from_json, plan_to_json

N = dm.symbol("N", 1, 32, multiple_of=4, hint=8)


@dataclass(frozen=True, slots=True)
class Foreign:
    """No class of aitc: its module must not be imported from a plan."""

    x: int = 1


def a_plan(context: object = ("text", 3, 0.1, float("inf"), None, True, (1, (2,)))) -> Plan:
    loc = Loc("m.onnx", "main", 3, "/fc:0", "Gemm")
    half = dm.floordiv(dm.add(N, 1), 2)
    plan = Plan(
        1, "m", "m.onnx", ("h200",), "cuda", "fp16",
        (DimSource("N", "batch size", 0, 0, 1, 32, 4, 8),),
        (Port("x:0", F32, (N, 3), "in_x", "ids:100"),), (Port("y", F32, (half, 3), "out_y"),),
        (Buffer("in_x", Space.INPUT, F32, N * 12, 384), Buffer("a", Space.ARENA, BF16, half * 6, 96, 128, 0, 2, ("v", "w"))),
        (Weight("w", BF16, (2, 3), 0, 12, "00", np.ones((2, 3), BF16.numpy)),),
        (KernelSource("k", "gemm", "64x64", "gemm.cu.j2", context, ("const float* x",), (loc,)),),
        (Launch("000_k", "k", (PointerArg("x", "float", "in_x", half, False), DimArg("n", dm.max_(N, 7)),
                               TensorMapArg("t", F32, "a", 0, (3, N), (N * 6,), (3, 8), (1, 1), 64, ((0,), (1,), 8, 9))),
                (half, 1, 1), (128, 1, 1), 1024, 2, True, N, (loc,), N * 6, N * 18, "MatMul + Add"),),
        256, 12, "ff", 0, (("producer", "x"),), (("nodes", 3),),
    )  # fmt: skip
    return plan


def test_json_is_lossless() -> None:
    plan = a_plan()
    text = plan_to_json(plan)
    back = plan_from_json(text, {"w": plan.weights[0].data})
    assert back == plan
    assert plan_to_json(back) == text
    assert back.weights[0].data is plan.weights[0].data
    assert [s.hint for s in dm.symbols(back.launches[0].grid[0])] == [8]
    assert json.loads(text)["symbols"] == [{"name": "N", "lo": 1, "hi": 32, "multiple_of": 4, "hint": 8, "below": None}]


def test_weights_stay_outside() -> None:
    back = plan_from_json(plan_to_json(a_plan()))
    assert back.weights[0].data.size == 0


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"symbols": [], "plan": {"is": "Buffer"}}', '{"symbols": [], "plan": 3}']
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        plan_from_json(text)


def test_only_modules_of_aitc_are_imported() -> None:
    text = plan_to_json(a_plan()).replace('"is": "KernelSource"', '"is": "os:system"')
    with pytest.raises(ValueError, match="no class is called 'os:system'"):
        plan_from_json(text)


def test_contexts_of_kernels_come_back() -> None:
    from aitc.kernels.core.kernel import ShapeMember

    plan = a_plan(ShapeMember("M", "64", True))
    assert plan_from_json(plan_to_json(plan), {"w": plan.weights[0].data}) == plan


def test_what_has_no_form_is_an_error() -> None:
    with pytest.raises(TypeError, match="object has no JSON form"):
        plan_to_json(replace(a_plan(), model=object()))  # type: ignore[arg-type]
