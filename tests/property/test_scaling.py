"""Every stage takes time in proportion to the nodes: measured in Python calls, which no other load on the machine changes."""

from __future__ import annotations

import cProfile
import pstats

import pytest
from graph_shapes import SHAPES

from aitc.pipeline import Options, compile

FEW, TIMES = 120, 4
MOST = 1.35  # times what is linear: room for a logarithm, not for a square


def calls(model: bytes, target: str) -> int:
    """The calls of Python functions from the file to its sources."""
    profile = cProfile.Profile()
    profile.runcall(compile, model, Options(targets=(target,), stop_after="emit"))
    return pstats.Stats(profile).total_calls  # type: ignore[attr-defined]


ON_GPU = ("branches", "residual_products", "convolutions", "attention")  # launches that share, chain or run side by side


@pytest.mark.parametrize("shape, target", [*((s, "cpu") for s in SHAPES), *((s, "h200") for s in ON_GPU)])
def test_the_work_grows_with_the_nodes(shape: str, target: str) -> None:
    compile(SHAPES[shape](40).SerializeToString(), Options(targets=(target,), stop_after="emit"))  # what is loaded once
    few, many = (calls(SHAPES[shape](n).SerializeToString(), target) for n in (FEW, FEW * TIMES))
    assert many / few < TIMES * MOST, f"{few} calls for {FEW} nodes, {many} for {FEW * TIMES}"


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_five_thousand_nodes_are_no_recursion_too_deep(shape: str) -> None:
    result = compile(SHAPES[shape](5000).SerializeToString(), Options(targets=("cpu",), stop_after="emit"))
    assert result.sources
