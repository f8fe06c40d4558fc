"""The file of weights: what host/weights.h reads."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hand_plans import scale_then_shift

from aitc.build.weights import append_weights, write_weights


def test_blob_and_footer(tmp_path: Path) -> None:
    plan = scale_then_shift()
    write_weights(plan, tmp_path / "w")
    data = (tmp_path / "w").read_bytes()
    assert len(data) == plan.weights_bytes + 128
    for weight in plan.weights:
        np.testing.assert_array_equal(np.frombuffer(data, np.float32, 4, weight.offset), weight.data)
    assert data[16:64] == b"\0" * 48
    assert struct.unpack("<8sQ64s48x", data[-128:]) == (b"AITCWGT1", 80, plan.weights_digest.encode())


def test_appended_at_a_page(tmp_path: Path) -> None:
    plan = scale_then_shift()
    write_weights(plan, tmp_path / "w")
    for size in (1, 4095, 4096, 4097):
        (tmp_path / "lib.so").write_bytes(b"L" * size)
        append_weights(tmp_path / "lib.so", tmp_path / "w")
        data = (tmp_path / "lib.so").read_bytes()
        start = (size + 4095) // 4096 * 4096
        assert data[:size] == b"L" * size and data[start:] == (tmp_path / "w").read_bytes()


def test_weights_that_do_not_fit_the_plan(tmp_path: Path) -> None:
    plan = scale_then_shift()
    for changed, problem in (
        (
            replace(plan, weights=(replace(plan.weights[0], bytes=12), plan.weights[1])),
            "has 16 bytes, the plan says 12",
        ),
        (replace(plan, weights=(plan.weights[0], replace(plan.weights[1], offset=8))), "overlaps"),
        (replace(plan, weights_bytes=79), "the weights take 80 bytes, the plan says 79"),
    ):
        with pytest.raises(ValueError, match=problem):
            write_weights(changed, tmp_path / "w")


def test_scalars_and_narrow_types(tmp_path: Path) -> None:
    plan = scale_then_shift()
    weight = replace(plan.weights[0], data=np.array(True), bytes=1, shape=())
    write_weights(replace(plan, weights=(weight,), weights_bytes=1), tmp_path / "w")
    assert (tmp_path / "w").read_bytes()[:1] == b"\1"
