"""AMD's matrix instructions against AMD's register layouts, and exchange between the lanes of a wave."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import emulator
from emulator import EmulatorError, Kernels, guarded, poisoned

Array = NDArray[Any]
SOURCE = Path(__file__).parent / "kernels" / "cdna.cpp"


@dataclass(frozen=True)
class Form:
    """An instruction: M x M x K in `blocks` products, `kv` elements of A and B a lane; the vector types of its operands."""

    name: str
    ab: str
    cd: str
    m: int
    k: int
    blocks: int
    kv: int
    a: str
    b: str
    targets: tuple[str, ...] = ("gfx90a", "gfx942")


BOTH, OLD, NEW = ("gfx90a", "gfx942"), ("gfx90a",), ("gfx942",)
FORMS = (
    Form("f32_32x32x8f16", "h4", "f16", 32, 8, 1, 4, "f16", "f16"),
    Form("f32_16x16x16f16", "h4", "f4", 16, 16, 1, 4, "f16", "f16"),
    Form("f32_32x32x4f16", "h4", "f32", 32, 4, 2, 4, "f16", "f16"),
    Form("f32_16x16x4f16", "h4", "f16", 16, 4, 4, 4, "f16", "f16"),
    Form("f32_4x4x4f16", "h4", "f4", 4, 4, 16, 4, "f16", "f16"),
    Form("f32_32x32x8bf16_1k", "s4", "f16", 32, 8, 1, 4, "bf16", "bf16"),
    Form("f32_16x16x16bf16_1k", "s4", "f4", 16, 16, 1, 4, "bf16", "bf16"),
    Form("f32_32x32x4bf16_1k", "s4", "f32", 32, 4, 2, 4, "bf16", "bf16"),
    Form("f32_16x16x4bf16_1k", "s4", "f16", 16, 4, 4, 4, "bf16", "bf16"),
    Form("f32_4x4x4bf16_1k", "s4", "f4", 4, 4, 16, 4, "bf16", "bf16"),
    Form("f32_32x32x1f32", "f1", "f32", 32, 1, 2, 1, "f32", "f32"),
    Form("f32_16x16x1f32", "f1", "f16", 16, 1, 4, 1, "f32", "f32"),
    Form("f32_4x4x1f32", "f1", "f4", 4, 1, 16, 1, "f32", "f32"),
    Form("f32_32x32x2f32", "f1", "f16", 32, 2, 1, 1, "f32", "f32"),
    Form("f32_16x16x4f32", "f1", "f4", 16, 4, 1, 1, "f32", "f32"),
    Form("f64_16x16x4f64", "d1", "d4", 16, 4, 1, 1, "f64", "f64"),
    Form("f64_4x4x4f64", "d1", "d1", 4, 4, 4, 1, "f64", "f64"),
    Form("f32_32x32x4bf16", "s2", "f16", 32, 4, 1, 2, "bf16", "bf16", OLD),
    Form("f32_16x16x8bf16", "s2", "f4", 16, 8, 1, 2, "bf16", "bf16", OLD),
    Form("i32_32x32x8i8", "i1", "i16", 32, 8, 1, 4, "i8", "i8", OLD),
    Form("i32_16x16x16i8", "i1", "i4", 16, 16, 1, 4, "i8", "i8", OLD),
    Form("i32_32x32x16_i8", "l1", "i16", 32, 16, 1, 8, "i8", "i8", NEW),
    Form("i32_16x16x32_i8", "l1", "i4", 16, 32, 1, 8, "i8", "i8", NEW),
    Form("f32_16x16x8_xf32", "f2", "f4", 16, 8, 1, 2, "f32", "f32", NEW),
    Form("f32_32x32x4_xf32", "f2", "f16", 32, 4, 1, 2, "f32", "f32", NEW),
    Form("f32_16x16x32_fp8_fp8", "l1", "f4", 16, 32, 1, 8, "fp8", "fp8", NEW),
    Form("f32_16x16x32_bf8_bf8", "l1", "f4", 16, 32, 1, 8, "bf8", "bf8", NEW),
    Form("f32_16x16x32_fp8_bf8", "l1", "f4", 16, 32, 1, 8, "fp8", "bf8", NEW),
    Form("f32_16x16x32_bf8_fp8", "l1", "f4", 16, 32, 1, 8, "bf8", "fp8", NEW),
    Form("f32_32x32x16_fp8_fp8", "l1", "f16", 32, 16, 1, 8, "fp8", "fp8", NEW),
    Form("f32_32x32x16_bf8_bf8", "l1", "f16", 32, 16, 1, 8, "bf8", "bf8", NEW),
    Form("f32_32x32x16_fp8_bf8", "l1", "f16", 32, 16, 1, 8, "fp8", "bf8", NEW),
    Form("f32_32x32x16_bf8_fp8", "l1", "f16", 32, 16, 1, 8, "bf8", "fp8", NEW),
)
CASES = [(form, target) for form in FORMS for target in form.targets]


@pytest.fixture(scope="module")
def built() -> dict[str, Kernels]:
    result = {}
    for target in ("gfx90a", "gfx942"):
        entries = "".join(f"MFMA({f.name}, {f.ab}, {f.cd});\n" for f in FORMS if target in f.targets)
        text = SOURCE.read_text().replace("AITC_MFMA_LIST\n", entries)
        names = [f.name for f in FORMS if target in f.targets] + ["dpp", "wave_sum", "scalars", "partial_wave"]
        result[target] = emulator.build(text, target, entries=names)
    return result


@pytest.fixture(scope="module")
def kernels(built: dict[str, Kernels]) -> Kernels:
    return built["gfx90a"]


# The values -3 .. 3 as 8-bit floats of gfx942: sign, exponent (bias 8 and 16), mantissa of 3 and 2 bits.
FP8 = {0: 0x00, 1: 0x40, 2: 0x48, 3: 0x4C, -1: 0xC0, -2: 0xC8, -3: 0xCC}
BF8 = {0: 0x00, 1: 0x40, 2: 0x44, 3: 0x46, -1: 0xC0, -2: 0xC4, -3: 0xC6}


def encoded(x: Array, kind: str) -> Array:
    """Integers in an operand's format, as bytes in the last axis."""
    if kind in ("fp8", "bf8"):
        table = FP8 if kind == "fp8" else BF8
        codes: Array = np.vectorize(table.__getitem__, otypes=[np.uint8])(x.astype(int))
        return codes[..., None]
    if kind == "bf16":
        values: Array = (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    else:
        values = x.astype({"f16": np.float16, "f32": np.float32, "f64": np.float64, "i8": np.int8}[kind])
    return np.ascontiguousarray(values)[..., None].view(np.uint8)


def operand_registers(x: Array, form: Form, kind: str) -> Array:
    """x (blocks, M, K) as the wave's registers (64, bytes). The manual: lane l holds row l mod M, and k from (l / M) mod (K / kv) on."""
    data = encoded(x, kind)
    out = np.zeros((64, form.kv, data.shape[-1]), np.uint8)
    for lane in range(64):
        if form.name == "f64_4x4x4f64":  # k = lane / 16, block = lane / 4 mod 4
            out[lane, 0] = data[lane // 4 % 4, lane % 4, lane // 16]
            continue
        group = lane // form.m
        for v in range(form.kv):
            out[lane, v] = data[group // (form.k // form.kv), lane % form.m, group % (form.k // form.kv) * form.kv + v]
    return out.reshape(64, -1)


def result_registers(c: Array, form: Form) -> Array:
    """c (blocks, M, M) as registers (64, count).

    Rows lie in fours: register r of lane l is row 4 (64 / M) (r / 4) + 4 (l / M) + r mod 4 of the stack of all blocks' rows;
    f64: row 4 r + l / 16.
    """
    rows = c.reshape(-1, form.m)
    if form.name == "f64_4x4x4f64":
        return np.array([[c[lane // 4 % 4, lane // 16, lane % 4]] for lane in range(64)])
    count = rows.size // 64
    if form.name == "f64_16x16x4f64":
        return np.array([[rows[4 * r + lane // 16, lane % 16] for r in range(count)] for lane in range(64)])
    groups = 64 // form.m
    return np.array(
        [
            [rows[4 * groups * (r // 4) + 4 * (lane // form.m) + r % 4, lane % form.m] for r in range(count)]
            for lane in range(64)
        ]
    )


@pytest.mark.parametrize(("form", "target"), CASES, ids=[f"{f.name}-{t}" for f, t in CASES])
def test_mfma(built: dict[str, Kernels], form: Form, target: str) -> None:
    rng = np.random.default_rng(form.m * form.k)
    a, b = rng.integers(-3, 4, (form.blocks, form.m, form.k)), rng.integers(-3, 4, (form.blocks, form.k, form.m))
    c = rng.integers(-99, 99, (form.blocks, form.m, form.m))
    kind = np.int32 if form.name.startswith("i32") else np.float64 if form.name.startswith("f64") else np.float32
    d = guarded(result_registers(c, form).astype(kind))
    built[target].launch(
        form.name,
        1,
        64,
        0,
        guarded(operand_registers(a, form, form.a)),
        guarded(operand_registers(b.transpose(0, 2, 1), form, form.b)),
        d,
    )
    assert (d == result_registers(a @ b + c, form)).all()


def test_gfx90a_flushes_subnormals(built: dict[str, Kernels]) -> None:
    form = FORMS[1]
    a, b = np.zeros((1, 16, 16)), np.zeros((1, 16, 16))
    a[0, 2, 3], b[0, 3, 5] = 2.0**-20, 1.0
    for target, expected in (("gfx90a", 0.0), ("gfx942", 2.0**-20)):
        d = guarded(np.zeros((64, 4), np.float32))
        first, second = (
            guarded(operand_registers(a, form, "f16")),
            guarded(operand_registers(b.transpose(0, 2, 1), form, "f16")),
        )
        built[target].launch(form.name, 1, 64, 0, first, second, d)
        c = np.zeros((1, 16, 16))
        c[0, 2, 5] = expected
        assert (d == result_registers(c, form)).all()


def test_dpp(kernels: Kernels) -> None:
    x = guarded(np.arange(100, 164, dtype=np.int32))
    out = poisoned((10, 64), np.int32)
    kernels.launch("dpp", 1, 64, 0, x, out)
    lane = np.arange(64)
    place, row = lane % 16, lane // 16
    old = np.full(64, -7)
    assert (out[0] == x[lane ^ 3]).all()
    assert (out[1] == np.where(place < 15, x[(lane + 1) % 64], old)).all()
    assert (out[2] == np.where(place >= 2, x[lane - 2], 0)).all()
    assert (out[3] == x[row * 16 + (place - 4) % 16]).all()
    assert (out[4] == np.where(lane > 0, x[lane - 1], old)).all()
    assert (out[5] == x[row * 16 + 15 - place]).all()
    assert (out[6] == x[lane // 8 * 8 + 7 - lane % 8]).all()
    assert (out[7] == np.where(row % 2 == 1, x[row * 16 - 1], old)).all()
    assert (out[8] == np.where(row >= 2, x[31], old)).all()
    assert (out[9] == np.where((row % 2 == 0) & (place < 8), x[lane ^ 3], old)).all()


def test_wave_sum_by_dpp(kernels: Kernels) -> None:
    x, out = guarded(np.arange(64, dtype=np.float32)), poisoned(64, np.float32)
    kernels.launch("wave_sum", 1, 64, 0, x, out)
    assert (out == 2016).all()


def test_scalars(kernels: Kernels) -> None:
    x, out = guarded((np.arange(64) * 7 % 13).astype(np.int32)), poisoned((4, 64), np.int32)
    kernels.launch("scalars", 1, 64, 0, x, out)
    lane = np.arange(64)
    assert (out[0] == x[0]).all() and (out[1] == x[(lane * 5 + 1) % 64]).all() and (out[2] == x[lane ^ 1]).all()
    assert (out[3] == np.cumsum(x % 2) - x % 2).all()


def test_detects_partial_wave(kernels: Kernels) -> None:
    with pytest.raises(EmulatorError, match="all 64 lanes"):
        kernels.launch("partial_wave", 1, 128, 0, poisoned(128, np.float32))
