"""fp16 of models that are too large to be measured: what the rules and the estimate keep in float32 is enough."""

from __future__ import annotations

from pathlib import Path

import pytest
from conformance.cases import precision
from conformance.many import build_many, plan_of
from conformance.run_many import run_many

from aitc.verify import ranges

CHOSEN = (
    "layer_norm_decomposed_1e_12_near_100", "rms_norm_decomposed_of_3000", "mask_times_minus_1e12", "mask_where_minus_inf",
    "l2_spelled_near_300", "mean_after_sum", "instance_norm_over_262144", "residual_stream_beyond_65504", "scaled_beyond_65504_and_back",
    "offset_beyond_65504_and_back",
)  # fmt: skip


@pytest.mark.slow
def test_what_nobody_measured_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "LIMIT_OPERATIONS", 0)
    chosen = [case for case in precision.CASES if case.name in CHOSEN]
    assert len(chosen) == len(CHOSEN)
    plans = [plan_of(c.model, f"t{n}", f"{c.name}.onnx", c.dims, "fp16") for n, c in enumerate(chosen)]
    results = run_many(build_many(plans, tmp_path), chosen)
    assert len(results) == len(CHOSEN)
    assert not {name: what for name, what in results.items() if what is not None}
