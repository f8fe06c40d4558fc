"""Each pointwise row's C++ expression, compiled, against its numpy function: on float, double and integers."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aitc import registry
from aitc.ir import dtype as dt
from aitc.ir.dtype import DType
from aitc.ir.op import OPS, Kind
from aitc.ops import pointwise, quantize

registry.load("aitc.ops")
INCLUDE = Path(__file__).resolve().parents[3] / "codegen_templates" / "include"

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

ATTRS: dict[str, list[Any]] = {
    "LeakyRelu": [pointwise.AlphaAttrs(0.1)], "ThresholdedRelu": [pointwise.AlphaAttrs(0.7)],
    "Elu": [pointwise.AlphaAttrs(1.5)], "Celu": [pointwise.AlphaAttrs(0.6)],
    "HardSigmoid": [pointwise.AlphaBetaAttrs(0.2, 0.5)], "Shrink": [pointwise.ShrinkAttrs(0.3, 0.8)],
    "Gelu": [pointwise.GeluAttrs("none"), pointwise.GeluAttrs("tanh")],
    "IsInf": [pointwise.IsInfAttrs(), pointwise.IsInfAttrs(positive=False), pointwise.IsInfAttrs(negative=False)],
    "Mod": [pointwise.ModAttrs(fmod=False), pointwise.ModAttrs(fmod=True)],
    "BitShift": [pointwise.ShiftAttrs(True), pointwise.ShiftAttrs(False)],
}  # fmt: skip
INTEGERS = ("Abs", "Neg", "Sign", "Relu", "Add", "Sub", "Mul", "Div", "Pow", "Mod", "Min", "Max", "Equal", "Less", "Greater", "PRelu",
            "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift")  # fmt: skip
ONLY_INTEGERS = ("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift")
BOOLS = ("And", "Or", "Xor", "Not")
OWN = ("Where", "Cast", "QuantizeLinear", "DequantizeLinear", "BitCast", "Copy", "Standardize", "ScaleShift")  # rows with several types


@dataclass(frozen=True)
class Case:
    op: str
    attrs: Any
    source: DType
    target: DType

    def __str__(self) -> str:
        return f"{self.op}-{self.source}-{self.attrs}".replace("Attrs", "")


def cases() -> Iterator[Case]:
    for op in OPS:
        if op.kind is not Kind.POINTWISE or op.name in OWN:
            continue
        boolean = op.infer([dt_type(dt.F32)] * op.arity[0], None)[0].dtype is dt.BOOL if op.name not in BOOLS else True
        types = (dt.BOOL,) if op.name in BOOLS else () if op.name in ONLY_INTEGERS else (dt.F32, dt.F64)
        types += (dt.I8, dt.I32, dt.I64, dt.U8) if op.name in INTEGERS else ()
        for source in types:
            for attrs in ATTRS[op.name] if op.name in ATTRS else [op.attrs()]:
                yield Case(op.name, attrs, source, dt.BOOL if boolean else source)


def dt_type(dtype: DType) -> Any:
    from aitc.ir.types import TensorType

    return TensorType(dtype, (2,))


CASES = list(cases())


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """All cases as one shared library: case i is ``void f_i(const S* a, const S* b, T* out, long n)``."""
    lines = ['#include "aitc/math.h"', "using namespace aitc;", 'extern "C" {']
    for i, c in enumerate(CASES):
        s, t = c.source.compute_c, c.target.compute_c
        expression = OPS[c.op].expression(c.attrs, ["a[i]", "b[i]"][: OPS[c.op].arity[0]])
        lines.append(
            f"void f_{i}(const {s}* a, const {s}* b, {t}* out, long n) {{ for (long i = 0; i < n; ++i) out[i] = {expression}; }}"
        )
    folder = tmp_path_factory.mktemp("math")
    (folder / "all.cpp").write_text("\n".join([*lines, "}"]))
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC", "-fopenmp-simd", "-w", f"-I{INCLUDE}"]
    subprocess.run(
        ["g++", *flags, str(folder / "all.cpp"), "-o", str(folder / "all.so")], check=True, capture_output=True
    )
    return ctypes.CDLL(str(folder / "all.so"))


def operands(c: Case) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    n = 400
    if c.source is dt.BOOL:
        return [np.array([False, False, True, True] * 100), np.array([False, True] * 200)]
    if c.source.is_integer:
        info = np.iinfo(c.source.numpy)
        low = 0 if c.op == "BitShift" or c.source.kind == "uint" else -6
        x = rng.integers(low, 7, n).astype(c.source.numpy)
        x[:4] = (info.min, info.max, info.min, 0) if c.op not in ("Pow", "BitShift") else x[:4]
        y = rng.integers(low, 7, n).astype(c.source.numpy)
        return [x, y]
    x = (rng.standard_normal(n) * 3).astype(c.source.numpy)
    y = (rng.standard_normal(n) * 3).astype(c.source.numpy)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.5, 1e-30]
    x[: len(special)] = special
    y[:20] = np.repeat([1.0, np.nan], 10)
    return [x, y]


@pytest.mark.parametrize("i", range(len(CASES)), ids=map(str, CASES))
def test_expression(library: ctypes.CDLL, i: int) -> None:
    c = CASES[i]
    a, b = operands(c)
    out = np.zeros(len(a), c.target.numpy)
    getattr(library, f"f_{i}")(*(v.ctypes.data_as(ctypes.c_void_p) for v in (a, b, out)), ctypes.c_long(len(a)))
    expected = OPS[c.op].reference(*[a, b][: OPS[c.op].arity[0]], c.attrs)
    if c.target.is_float:
        tolerance = {dt.F32: 4e-6, dt.F64: 1e-13}[c.target] * OPS[c.op].tolerance
        if c.op in (
            "Gelu",
            "Mish",
            "Selu",
            "Elu",
            "Celu",
        ):  # differences of nearly equal numbers in the reference itself
            np.testing.assert_allclose(out, expected, rtol=tolerance, atol=tolerance / 4)
        else:
            np.testing.assert_allclose(out, expected, rtol=tolerance, atol=1e-37)
    else:
        np.testing.assert_array_equal(out, expected)


def test_every_row_is_tested() -> None:
    rows = {op.name for op in OPS if op.kind is Kind.POINTWISE}
    assert rows == {c.op for c in CASES} | set(OWN)


def test_quantize_and_dequantize(tmp_path: Path) -> None:
    """Rounding to even, saturation, and differences that would not fit the narrow type."""
    q, e = quantize.QuantizeAttrs(dt.I8), quantize.DequantizeAttrs(dt.F32)
    source = f"""#include "aitc/math.h"
    using namespace aitc;
    extern "C" void run(const float* x, signed char* q, float* y, long n) {{
      for (long i = 0; i < n; ++i) {{
        q[i] = {OPS["QuantizeLinear"].expression(q, ["x[i]", "0.5f", "int8_t(3)"])};
        y[i] = {OPS["DequantizeLinear"].expression(e, ["q[i]", "0.5f", "int8_t(-128)"])};
      }}
    }}"""
    (tmp_path / "q.cpp").write_text(source)
    library = tmp_path / "q.so"
    command = [
        "g++",
        "-std=c++17",
        "-shared",
        "-fPIC",
        "-fopenmp-simd",
        "-w",
        f"-I{INCLUDE}",
        str(tmp_path / "q.cpp"),
        "-o",
        str(library),
    ]
    subprocess.run(command, check=True, capture_output=True)
    x = np.array([0.25, 0.75, -0.25, 1000, -1000, 0, 61.9, 62.3], np.float32)
    codes, back = np.zeros(len(x), np.int8), np.zeros(len(x), np.float32)
    ctypes.CDLL(str(library)).run(*(v.ctypes.data_as(ctypes.c_void_p) for v in (x, codes, back)), ctypes.c_long(len(x)))
    expected = quantize.quantize_array(x, np.float32(0.5), np.int8(3), q)
    np.testing.assert_array_equal(codes, expected)
    np.testing.assert_array_equal(back, quantize.dequantize_array(expected, np.float32(0.5), np.int8(-128), e))
