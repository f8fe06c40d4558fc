"""Names that C++ has taken."""

from __future__ import annotations

import pytest

from aitc.ir.cpp import free_name


@pytest.mark.parametrize("name", ["and", "class", "int64_t", "errno", "NULL", "INT_MAX", "UINT64_MAX", "M_PI", "co_await"])
def test_taken_names_get_a_tail(name: str) -> None:
    assert free_name(name) == f"{name}_"


@pytest.mark.parametrize("name", ["batch", "N", "SEQ_MAX", "and_", "size", "M_tokens", "classes"])
def test_other_names_stay(name: str) -> None:
    assert free_name(name) == name
