"""The problems of single instructions leave none out, and docs/instructions.md says what a device made of them."""

from __future__ import annotations

import json
import re

import pytest

from . import device, instruction_cases, instructions, rounding_cases

# By whole kernels and models, or without a result of their own: see the page.
ELSEWHERE = {
    "tma_prefetch", "prefetch_l2", "registers_take", "registers_give",
    "grid_launch_next", "grid_wait_previous", "cluster_arrive_relaxed", "exp2_fast", "round_operand", "compiler_fence",
    "pack", "load_shared_u32", "load_shared_float4", "wgmma_wait_all", "skip",
}  # fmt: skip


@pytest.mark.parametrize("header", ["matmul/mma_sm80.h", "hopper/mma_sm90.h"])
def test_every_function_of_the_headers_has_a_problem(header: str) -> None:
    text = (device.INCLUDE / "aitc" / "gpu" / header).read_text()
    functions = set(re.findall(r"AITC_FN \w+(?:<\w+>)? (\w+)\(", text))
    assert len(functions) > 8
    sources = "".join({p.source for cases in (instruction_cases.cases, rounding_cases.cases) for p in cases()})
    missing = {f for f in functions if not re.search(rf"\b{f}\b", sources)}
    assert missing == functions & ELSEWHERE


def test_the_page_is_made_of_the_record() -> None:
    assert instructions.PAGE.read_text() == instructions.page(json.loads(instructions.RECORD.read_text()), instructions.names())


def test_the_page_says_where_the_device_disagrees() -> None:
    about = {"device": "GPU", "commit": "abc", "date": "2026-01-01T00:00"}
    record = {"about": about, "problems": [{"name": "instruction mma f16", "good": True}, {"name": "instruction mma bf16", "good": False}]}
    text = instructions.page(record, ["instruction mma f16", "instruction mma bf16", "instruction ldmatrix"])
    assert "| 2 | **not** in instruction mma bf16 | f16, bf16 |" in text and "| 1 | not asked yet |" in text
    with pytest.raises(KeyError, match="of no family"):
        instructions.page(record, ["instruction of another kind"])
