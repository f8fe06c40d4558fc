from __future__ import annotations

import numpy as np
import pytest

from aitc.verify.compare import OutputReport
from aitc.verify.run import Verification
from aitc.verify.vacuous import vacuous


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (np.full((2, 3), np.nan), "NaN throughout"),
        (np.zeros(4), "zero throughout"),
        (np.ones((2, 2)), "constant"),
        (np.zeros((0, 4)), "without elements"),
        (np.float32(np.nan), "NaN throughout"),
        (np.float32(0.5), ""),
        (np.array([0.0, 1.0]), ""),
        (np.array(False), ""),
    ],
)
def test_what_says_little(value: np.ndarray, why: str) -> None:
    assert vacuous([{"y": value}], ["y"]) == ({"y": why} if why else {})


def test_one_answer_that_says_something_is_enough() -> None:
    assert vacuous([{"y": np.zeros(4)}, {"y": np.arange(4)}], ["y"]) == {}
    assert vacuous([{"y": np.zeros(4)}, {"y": np.ones(4)}], ["y"]) == {"y": "constant"}


def test_a_verification_that_says_little_is_marked() -> None:
    report = OutputReport("y", "f32", (4,), 4, True)
    v = Verification("passed", oracle="onnxruntime 1", outputs=(report,), vacuous={"y": "zero throughout"})
    assert v.ok and v.hollow and "WARNING" in str(v) and "y is zero throughout" in str(v)
