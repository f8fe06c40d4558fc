"""TMA: boxes of tensors in shared memory, against numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import emulator
from emulator import EmulatorError, Kernels, guarded, poisoned

Array = NDArray[Any]


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    return emulator.build(Path(__file__).parent / "kernels" / "sm90.cpp", "sm90")


@pytest.fixture(params=("forward", "reverse", "4"))
def order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AITC_EMULATOR_ORDER", request.param)
    return str(request.param)


def unswizzled(out: Array, row_bytes: int, swizzle: int) -> Array:
    """Rows of shared memory with their 16-byte units put back: unit u of the byte row at address a lies at u ^ (a / 128)."""
    data = out.view(np.uint8).reshape(-1, 16)
    if not swizzle:
        return data.reshape(-1, row_bytes)
    result = np.empty_like(data)
    for i in range(len(data)):
        result[i] = data[i ^ (i * 16 // 128 % (swizzle // 16))]
    return result.reshape(-1, row_bytes)


def window(x: Array, start: tuple[int, ...], size: tuple[int, ...], step: tuple[int, ...] | None = None) -> Array:
    """x[start : start + size : step], outermost first, zero outside."""
    step = step or (1,) * x.ndim
    out = np.zeros([-(-n // s) for n, s in zip(size, step, strict=True)], x.dtype)
    for index in np.ndindex(*out.shape):
        at = tuple(b + i * s for b, i, s in zip(start, index, step, strict=True))
        if all(0 <= a < n for a, n in zip(at, x.shape, strict=True)):
            out[index] = x[at]
    return out


@pytest.mark.parametrize(("swizzle", "columns"), [(128, 64), (64, 32), (32, 16), (0, 64), (0, 8)])
@pytest.mark.parametrize("at", [(0, 0), (8, 5), (56, 30), (-8, -3), (200, 0)])
def test_load_2d(kernels: Kernels, swizzle: int, columns: int, at: tuple[int, int], order: str) -> None:
    x = guarded(np.arange(40 * 72, dtype=np.uint16).reshape(40, 72))
    rows = 16
    out = poisoned(rows * columns // 2, np.uint32)
    kernels.launch(
        "load_2d",
        1,
        64,
        out.nbytes + 8,
        kernels.tensor_map(x, (columns, rows), swizzle=swizzle),
        at[0],
        at[1],
        out,
        out.size,
    )
    expected = window(x, (at[1], at[0]), (rows, columns))
    assert (unswizzled(out, columns * 2, swizzle).view(np.uint16) == expected).all()


def test_load_4d_with_steps_and_overlap(kernels: Kernels) -> None:
    x = guarded(np.arange(2 * 9 * 6 * 32, dtype=np.uint16).reshape(2, 9, 6, 32))
    for step in ((1, 1, 1, 1), (1, 1, 2, 1)):  # innermost first
        box = (32, 4, 5, 1)
        count = 32 * 4 * -(-5 // step[2])
        out = poisoned(count // 2, np.uint32)
        kernels.launch(
            "load_4d",
            1,
            64,
            out.nbytes + 8,
            kernels.tensor_map(x, box, swizzle=64, step=step),
            0,
            -1,
            3,
            1,
            out,
            out.size,
        )
        expected = window(x, (1, 3, -1, 0), (1, 5, 4, 32), step[::-1])
        assert (unswizzled(out, 64, 64).view(np.uint16) == expected.reshape(-1, 32)).all()
    flat = guarded(np.arange(256, dtype=np.uint16))  # rows of 32 elements that begin every 8
    out = poisoned(16 * 16, np.uint32)
    overlapping = kernels.tensor_map(flat, (32, 16, 1, 1), swizzle=64, size=(32, 29, 1, 1), pitch=(16, 512, 512))
    kernels.launch("load_4d", 1, 64, out.nbytes + 8, overlapping, 0, 4, 0, 0, out, out.size)
    assert (unswizzled(out, 64, 64).view(np.uint16) == np.array([flat[8 * r : 8 * r + 32] for r in range(4, 20)])).all()


@pytest.mark.parametrize(
    ("shape", "filter_", "stride", "pad", "dilation"),
    [
        ((2, 7, 9, 64), (3, 3), 1, 1, 1),
        ((3, 8, 6, 72), (3, 3), 2, 1, 1),
        ((2, 10, 11, 24), (5, 3), 1, 2, 2),
        ((2, 5, 5, 64), (1, 1), 2, 0, 1),
    ],
)
def test_im2col(
    kernels: Kernels, shape: tuple[int, int, int, int], filter_: tuple[int, int], stride: int, pad: int, dilation: int
) -> None:
    n, h, w, c = shape
    r_, s_ = filter_
    p = (h + 2 * pad - (r_ - 1) * dilation - 1) // stride + 1
    q = (w + 2 * pad - (s_ - 1) * dilation - 1) // stride + 1
    x = guarded(np.arange(1, n * h * w * c + 1).astype(np.uint16).reshape(shape))
    padded = np.zeros((n + 40, h + 2 * pad + 40, w + 2 * pad + 40, -(-c // 64) * 64), np.uint16)
    padded[:n, pad : pad + h, pad : pad + w, :c] = x
    pixels = 32
    map_ = kernels.im2col_map(
        x, (-pad, -pad), (pad - (s_ - 1) * dilation, pad - (r_ - 1) * dilation), 64, pixels, (1, stride, stride, 1)
    )
    out = poisoned(pixels * 32, np.uint32)
    for m in range(0, n * p * q, pixels):
        for r in range(r_):
            for s in range(s_):
                for c0 in range(0, c, 64):
                    line = m // q
                    first = (c0, m % q * stride - pad, line % p * stride - pad, line // p)
                    kernels.launch(
                        "load_im2col", 1, 64, out.nbytes + 8, map_, *first, s * dilation, r * dilation, out, out.size
                    )
                    got = unswizzled(out, 128, 128).view(np.uint16)
                    for i in range(pixels):
                        row = m + i
                        expected = padded[
                            row // q // p,
                            row // q % p * stride + r * dilation,
                            row % q * stride + s * dilation,
                            c0 : c0 + 64,
                        ]
                        assert (got[i] == expected).all()


def test_store_2d_clips(kernels: Kernels, order: str) -> None:
    for at in ((0, 0), (40, 10), (-16, -2)):
        x = guarded(np.full((20, 72), 0xFFFF, np.uint16))
        map_ = kernels.tensor_map(x, (64, 16))
        kernels.launch("store_2d", 1, 64, 16 * 128, map_, at[0], at[1], 16 * 32, 1)
        box = unswizzled(np.arange(16 * 32, dtype=np.uint32), 128, 128).view(np.uint16)
        expected = np.full_like(x, 0xFFFF)
        for r in range(16):
            for col in range(64):
                if 0 <= at[1] + r < 20 and 0 <= at[0] + col < 72:
                    expected[at[1] + r, at[0] + col] = box[r, col]
        assert (x == expected).all()


def test_multicast(kernels: Kernels, order: str) -> None:
    x = guarded(np.arange(16 * 64, dtype=np.uint16).reshape(16, 64))
    out = poisoned((4, 512), np.uint32)
    kernels.launch("multicast", 4, 32, 2056, kernels.tensor_map(x, (64, 8), swizzle=0), out, 512, 3, cluster=2)
    for block in range(4):
        assert (out[block].view(np.uint16).reshape(16, 64) == x).all()


def test_multicast_to_one_block_only_hangs(kernels: Kernels) -> None:
    x = guarded(np.zeros((16, 64), np.uint16))
    with pytest.raises(EmulatorError, match="no lane can go on"):
        kernels.launch(
            "multicast",
            2,
            32,
            2056,
            kernels.tensor_map(x, (64, 8), swizzle=0),
            poisoned((2, 512), np.uint32),
            512,
            1,
            cluster=2,
        )


def test_detects(kernels: Kernels) -> None:
    x = guarded(np.zeros((40, 72), np.uint16))
    out = poisoned(16 * 32, np.uint32)
    map_ = kernels.tensor_map(x, (64, 16))

    def load(map_bytes: bytes, column: int, smem: int) -> None:
        kernels.launch("load_2d", 1, 64, smem, map_bytes, column, 0, out, out.size)

    with pytest.raises(EmulatorError, match="innermost coordinate"):
        load(map_, 4, out.nbytes + 8)
    with pytest.raises(EmulatorError, match="not a tensor map"):
        load(bytes(128), 0, out.nbytes + 8)
    with pytest.raises(EmulatorError, match="of rank 4, the copy tiled of rank 2"):
        load(
            kernels.im2col_map(guarded(np.zeros((1, 4, 4, 64), np.uint16)), (0, 0), (0, 0), 64, 16, (1, 1, 1, 1)),
            0,
            out.nbytes + 8,
        )
    with pytest.raises(EmulatorError, match="outside the"):
        kernels.launch("load_2d", 1, 64, 1024, kernels.tensor_map(x, (64, 32)), 0, 0, out, 128)
    with pytest.raises(EmulatorError, match="before its bulk stores"):
        kernels.launch("store_2d", 1, 64, 16 * 128, map_, 0, 0, 16 * 32, 0)


def test_the_driver_refuses(kernels: Kernels) -> None:
    x = guarded(np.zeros((40, 72), np.uint16))
    with pytest.raises(ValueError):
        kernels.tensor_map(x, (128, 16))  # 256 bytes in a 128-byte swizzle
    with pytest.raises(ValueError):
        kernels.tensor_map(x, (64, 257))
    with pytest.raises(ValueError):
        kernels.tensor_map(x, (12, 8), swizzle=0)
    with pytest.raises(ValueError):
        kernels.tensor_map(x, (64, 16), pitch=(72,))
