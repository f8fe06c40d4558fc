"""Each committed export of the catalog, compiled for the CPU: verified, and run at more than one size where it is dynamic."""

from __future__ import annotations

from pathlib import Path

import pytest
from whole_models import compare, compile_for_cpu

from models import tiny

QUICK = ("resnet50-dynamo-static", "bert_base-torchscript-dynamic", "vit_b16-dynamo-static", "gpt2-dynamo-dynamic")


@pytest.mark.parametrize(
    "model",
    [pytest.param(m, id=m.name, marks=() if m.name in QUICK else pytest.mark.slow) for m in tiny.load()],
)
def test_compiles_and_agrees(model: tiny.TinyModel, tmp_path: Path) -> None:
    compile_for_cpu(model.path, tmp_path / "out")
    compare(tmp_path / "out", model.path, [model.make_inputs(dims) for dims in ({}, *model.others)])
