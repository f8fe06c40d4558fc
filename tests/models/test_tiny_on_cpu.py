"""Each committed export of the catalog, compiled for the CPU: verified, and run at more than one size where it is dynamic. ``make test`` runs one of each
architecture, among them each exporter with static and with dynamic shapes and each variant."""

from __future__ import annotations

from pathlib import Path

import pytest
from whole_models import compare, compile_for_cpu

from models import tiny

QUICK = ("resnet50-torchscript-unfolded-static", "bert_base-torchscript-dynamic", "vit_b16-dynamo-opset23-dynamic", "gpt2-dynamo-dynamic")
ONE_OF_EACH = (
    "convnext_tiny-torchscript-static", "distilbert-torchscript-dynamic", "efficientnet_b0-dynamo-dynamic", "mobilenet_v3-torchscript-static",
    "resnet50-dynamo-float16-static", "sd15_unet-torchscript-static", "sd15_vae-dynamo-static", "swin_t-dynamo-dynamic",
)  # fmt: skip


def _marks(name: str) -> tuple[pytest.MarkDecorator, ...]:
    return () if name in QUICK else (pytest.mark.slow,) if name in ONE_OF_EACH else (pytest.mark.slow, pytest.mark.full)


@pytest.mark.parametrize(
    "model",
    [pytest.param(m, id=m.name, marks=_marks(m.name)) for m in tiny.load()],
)
def test_compiles_and_agrees(model: tiny.TinyModel, tmp_path: Path) -> None:
    compile_for_cpu(model.path, tmp_path / "out")
    compare(tmp_path / "out", model.path, [model.make_inputs(dims) for dims in ({}, *model.others)])


def test_none_is_left_out() -> None:
    found = {m.name: (m.architecture, m.exporter, m.variant, m.dynamic) for m in tiny.load()}
    here = [found[name] for name in (*QUICK, *ONE_OF_EACH)]
    assert {architecture for architecture, *_ in here} == {architecture for architecture, *_ in found.values()}
    assert {(e, d) for _, e, _, d in here} == {(e, d) for _, e, _, d in found.values()}
    assert {variant for _, _, variant, _ in here} == {variant for _, _, variant, _ in found.values()}
