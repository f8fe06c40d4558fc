"""Conversions to the smallest element types: the C++ of aitc/types.h and numpy agree on every value."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from aitc.ir import dtype as dt
from aitc.ir.dtype import DType
from aitc.ops.cast import CastAttrs, cast_array
from aitc.ops.elementwise import convert
from aitc.ops.pointwise import widen

INCLUDE = Path(__file__).resolve().parents[3] / "codegen_templates" / "include"
FLOATS = (dt.F16, dt.BF16, dt.F8E4M3FN, dt.F8E4M3FNUZ, dt.F8E5M2, dt.F8E5M2FNUZ, dt.F8E8M0, dt.F4E2M1)
INTEGERS = (dt.U4, dt.I4, dt.U2, dt.I2)
CASES = [(to, saturate, "nearest" if to is not dt.F8E8M0 else "up") for to in FLOATS for saturate in (True, False)]
CASES += [(dt.F8E8M0, True, rounding) for rounding in ("down", "nearest")]
CASES += [(to, True, "up") for to in INTEGERS]

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


def values() -> np.ndarray:
    rng = np.random.default_rng(3)
    special = [
        0,
        -0.0,
        0.25,
        0.75,
        1.25,
        1.75,
        2.5,
        3.5,
        5,
        6,
        7,
        448,
        464,
        465,
        240,
        248,
        249,
        57344,
        61440,
        61441,
        2.0**-127,
        2.0**-126,
        1e30,
        3e38,
    ]
    special += [-x for x in special] + [np.inf, -np.inf, np.nan]
    return np.concatenate([np.array(special), rng.standard_normal(3000) * np.exp2(rng.integers(-30, 30, 3000))]).astype(
        np.float32
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Case i: what the expression of Cast gives, stored and read back as float."""
    from aitc.ir.op import OPS

    lines = ['#include "aitc/math.h"', "using namespace aitc;", 'extern "C" {']
    for i, (to, saturate, rounding) in enumerate(CASES):
        expression = OPS["Cast"].expression(CastAttrs(to, saturate, rounding), ["x[i]"])
        stored = f"convert<{to.c}, {str(saturate).lower()}>({expression})"
        lines.append(f"void f_{i}(const float* x, float* y, long n) {{")
        lines.append(f"  for (long i = 0; i < n; ++i) y[i] = convert<float>({stored});\n}}")
    folder = tmp_path_factory.mktemp("small")
    (folder / "all.cpp").write_text("\n".join([*lines, "}"]))
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC", "-fopenmp-simd", "-w", f"-I{INCLUDE}"]
    subprocess.run(["g++", *flags, str(folder / "all.cpp"), "-o", str(folder / "all.so")], check=True)
    return ctypes.CDLL(str(folder / "all.so"))


@pytest.mark.parametrize(
    "i", range(len(CASES)), ids=[f"{to}-{saturate}-{rounding}" for to, saturate, rounding in CASES]
)
def test_cast(library: ctypes.CDLL, i: int) -> None:
    to, saturate, rounding = CASES[i]
    x = values()
    if to.is_integer:
        x = x[np.abs(x) < 1e6]
    y = np.zeros_like(x)
    getattr(library, f"f_{i}")(
        x.ctypes.data_as(ctypes.c_void_p), y.ctypes.data_as(ctypes.c_void_p), ctypes.c_long(len(x))
    )
    expected = widen(cast_array(x, CastAttrs(to, saturate, rounding))).astype(np.float32)
    if to is dt.F4E2M1:  # it has no NaN; what one becomes is nowhere said
        x, y, expected = (v[~np.isnan(x)] for v in (x, y, expected))
    np.testing.assert_array_equal(y, expected)


def test_an_unknown_rounding_is_refused() -> None:
    from aitc.ir.graph import Graph
    from aitc.ops.declare import Scope

    scope = Scope(Graph("g"))
    with pytest.raises(ValueError, match="round_mode"):
        convert(scope, scope.constant(np.ones(2, np.float32)), dt.F8E8M0, round_mode="sideways")


def test_every_small_type_is_tested() -> None:
    tested: set[DType] = {to for to, _, _ in CASES}
    assert {
        d for d in dt.ALL if d.kind in ("float", "int", "uint") and (d.bits < 8 or (d.is_float and d.bits < 32))
    } <= tested
