"""A small Mask R-CNN: proposals, boxes and masks of sizes that only the data decides, a Loop that pastes masks, Ifs on counts. The images hold many
detections, few, and none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from whole_models import compile_for_cpu, session

import aitc
from aitc import pipeline
from models import detectors

pytestmark = pytest.mark.slow
FILE = detectors.FOLDER / "maskrcnn.onnx"
CONTRASTS = (1.0, 0.6, 0.2, 0.0)


def agrees(folder: Path) -> set[int]:
    """Each output beside ONNX Runtime's, in its order; how many detections the images have."""
    reference = session(str(FILE))
    counts = set()
    with aitc.load(folder) as network:
        for seed in (0, 1):
            for contrast in CONTRASTS:
                image = detectors.picture(64, 80, contrast, seed)
                ours, theirs = network(image), reference.run(None, {"image": image})
                for port, a, b in zip(network.outputs, ours, theirs, strict=True):
                    assert a.shape == b.shape and a.dtype == b.dtype, (port.name, seed, contrast)
                    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3 if port.name == "boxes" else 1e-4, err_msg=port.name)
                counts.add(len(theirs[0]))
    return counts


def test_on_cpu(tmp_path: Path) -> None:
    compile_for_cpu(FILE, tmp_path / "out")
    counts = agrees(tmp_path / "out")
    assert 0 in counts and 1 in counts and max(counts) > 3, counts


@pytest.mark.full
@pytest.mark.parametrize("target", ["h200", "mi250"])
def test_emulated(tmp_path: Path, target: str) -> None:
    options = pipeline.Options(targets=(target,), output=tmp_path / "out", emulate=True, verify="require", jobs=2)
    result = pipeline.compile(FILE, options)
    assert result.verification is not None and result.verification.status == "passed", result.verification
    agrees(tmp_path / "out")
