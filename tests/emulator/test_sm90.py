"""sm_90's wgmma, mbarriers, clusters, named barriers and register hand-over. Layouts: the PTX manual's "matrix descriptor" and
"register fragments" sections, as observed on an H200."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import emulator
from emulator import EmulatorError, Kernels, guarded, poisoned

Array = NDArray[Any]
SOURCE = Path(__file__).parent / "kernels" / "sm90.cpp"
ORDERS = ("forward", "reverse", "1", "8", "123")


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    return emulator.build(SOURCE, "sm90")


@pytest.fixture(params=ORDERS)
def order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AITC_EMULATOR_ORDER", request.param)
    return str(request.param)


def bits16(x: Array, kind: str) -> Array:
    return (
        x.astype(np.float16).view(np.uint16)
        if kind == "f16"
        else (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    )


def k_major_image(x: Array, swizzle: int) -> tuple[Array, int, int]:
    """(rows, K) with K x element = 32 bytes, laid out K-major; bytes, leading and stride offset.

    Swizzled rows are `swizzle` bytes wide, the operand lies in the first 32 of them, and 16-byte unit u of row r lies at unit
    u ^ (r's address bits 7 and up).
    """
    rows = x.shape[0]
    data = np.ascontiguousarray(x).view(np.uint8).reshape(rows, 2, 16)
    if swizzle == 0:  # 8 x 16-byte matrices, here first all of unit 0, then unit 1
        image = np.full((2, rows, 16), 0xFF, np.uint8)
        image[0], image[1] = data[:, 0], data[:, 1]
        return image.reshape(-1), rows * 16, 128
    image = np.full((rows, swizzle // 16, 16), 0xFF, np.uint8)
    for r in range(rows):
        for u in range(2):
            image[r, u ^ (r * swizzle // 128 % (swizzle // 16))] = data[r, u]
    return image.reshape(-1), 16, 8 * swizzle


def descriptor(offset: int, leading: int, stride: int, swizzle: int) -> int:
    return offset >> 4 | (leading >> 4) << 16 | (stride >> 4) << 32 | {0: 0, 128: 1, 64: 2, 32: 3}[swizzle] << 62


def as_matrix(d: Array, n: int) -> Array:
    """The accumulators (128, n / 2) as (64, n): thread t holds row t/32*16 + t%32/4 (+ 8), columns 8 j + t%4*2 (+ 1)."""
    out = np.zeros((64, n), np.float32)
    for t in range(128):
        for i in range(n // 2):
            out[t // 32 * 16 + t % 32 // 4 + i % 4 // 2 * 8, i // 4 * 8 + t % 4 * 2 + i % 2] = d[t, i]
    return out


def as_registers(c: Array) -> Array:
    n = c.shape[1]
    return np.array(
        [
            [c[t // 32 * 16 + t % 32 // 4 + i % 4 // 2 * 8, i // 4 * 8 + t % 4 * 2 + i % 2] for i in range(n // 2)]
            for t in range(128)
        ],
        np.float32,
    )


def words(*parts: Array) -> Array:
    """Parts of an image of shared memory, each on 1024 bytes, as 32-bit words."""
    padded = [np.concatenate([p, np.full(-len(p) % 1024, 0xFF, np.uint8)]) for p in parts]
    return guarded(np.concatenate(padded).view(np.uint32))


def operands(rng: np.random.Generator, n: int, k: int = 16) -> tuple[Array, Array]:
    return rng.integers(-8, 9, (64, k)).astype(np.float32), rng.integers(-8, 9, (n, k)).astype(np.float32)


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize(
    ("name", "n"), [("f16_24", 24), ("f16_64", 64), ("f16_256", 256), ("bf16_64", 64), ("tf32_64", 64)]
)
def test_wgmma_k_major(kernels: Kernels, name: str, n: int, swizzle: int) -> None:
    rng = np.random.default_rng(n + swizzle)
    a, b = operands(rng, n, 8 if "tf32" in name else 16)
    raw = (lambda x: x) if "tf32" in name else (lambda x: bits16(x, name.split("_")[0]))
    image_a, leading_a, stride = k_major_image(raw(a), swizzle)
    image_b, leading_b, _ = k_major_image(raw(b), swizzle)
    image = words(image_a, image_b)
    b_at = -(-len(image_a) // 1024) * 1024
    for keep in (0, 1):
        c = rng.integers(-50, 50, (64, n)).astype(np.float32)
        d = guarded(as_registers(c))
        kernels.launch(
            f"wgmma_{name}", 1, 128, image.nbytes, image, image.size,
            np.uint64(descriptor(0, leading_a, stride, swizzle)), np.uint64(descriptor(b_at, leading_b, stride, swizzle)), d, keep, 0,
        )  # fmt: skip
        assert (as_matrix(d, n) == a @ b.T + keep * c).all()


def mn_major_image(x: Array, swizzle: int) -> tuple[Array, int, int]:
    """(rows, 16) of 16-bit elements, rows contiguous, in atoms of swizzle/2 rows x 8 k.

    Returns the bytes, the leading offset (to the next atom of rows) and the stride (to the next 8 k).
    """
    rows = x.shape[0]
    wide = swizzle // 2
    image = np.zeros((-(-rows // wide), 2, 8, swizzle // 16, 8), np.uint16)
    for r in range(rows):
        for k in range(16):
            unit = r % wide // 8 ^ (k % 8 * swizzle // 128 % (swizzle // 16))
            image[r // wide, k // 8, k % 8, unit, r % 8] = x[r, k]
    return image.reshape(-1).view(np.uint8), 2 * 8 * swizzle, 8 * swizzle


@pytest.mark.parametrize("swizzle", [32, 64, 128])
def test_wgmma_transposed(kernels: Kernels, swizzle: int) -> None:
    a, b = operands(np.random.default_rng(swizzle), 64)
    image_a, leading_a, stride_a = mn_major_image(bits16(a, "f16"), swizzle)
    image_b, leading_b, stride_b = mn_major_image(bits16(b, "f16"), swizzle)
    image = words(image_a, image_b)
    d = guarded(as_registers(np.zeros((64, 64), np.float32)))
    first = np.uint64(descriptor(0, leading_a, stride_a, swizzle))
    second = np.uint64(descriptor(-(-len(image_a) // 1024) * 1024, leading_b, stride_b, swizzle))
    kernels.launch(
        "wgmma_f16_64", 1, 128, image.nbytes, image, image.size, first, second, d, 0, 3,
    )  # fmt: skip
    assert (as_matrix(d, 64) == a @ b.T).all()


def test_wgmma_with_a_from_registers(kernels: Kernels) -> None:
    a, b = operands(np.random.default_rng(3), 64)
    half = a.astype(np.float16)
    registers = np.zeros((128, 4, 2), np.float16)
    for t in range(128):
        for i in range(4):
            for e in range(2):
                registers[t, i, e] = half[t // 32 * 16 + t % 32 // 4 + i % 2 * 8, i // 2 * 8 + t % 4 * 2 + e]
    image_b, leading, stride = mn_major_image(bits16(b, "f16"), 128)
    image = words(image_b)
    d = poisoned((128, 32), np.float32)
    kernels.launch(
        "wgmma_registers",
        1,
        128,
        image.nbytes,
        image,
        image.size,
        guarded(registers),
        np.uint64(descriptor(0, leading, stride, 128)),
        d,
    )
    assert (as_matrix(d, 64) == a @ b.T).all()


def test_wgmma_next_k_is_32_bytes_on(kernels: Kernels) -> None:
    """In a 128-byte swizzle row the operand's next 16 k begin 32 bytes on: descriptor + 2."""
    rng = np.random.default_rng(5)
    a, b = rng.integers(-8, 9, (64, 64)).astype(np.float32), rng.integers(-8, 9, (64, 64)).astype(np.float32)

    def image_of(x: Array) -> Array:
        image = np.zeros((64, 8, 16), np.uint8)
        for r in range(64):
            for u in range(8):
                image[r, u ^ (r % 8)] = bits16(x, "f16").view(np.uint8).reshape(64, 8, 16)[r, u]
        return image.reshape(-1)

    image = words(image_of(a), image_of(b))
    d = guarded(as_registers(np.zeros((64, 64), np.float32)))
    for step in range(4):
        first, second = (np.uint64(descriptor(at, 16, 1024, 128) + 2 * step) for at in (0, 8192))
        kernels.launch("wgmma_f16_64", 1, 128, image.nbytes, image, image.size, first, second, d, 1, 0)
    assert (as_matrix(d, 64) == a @ b.T).all()


def simple(rng_seed: int = 7) -> tuple[Array, Array, Array, np.uint64, np.uint64]:
    a, b = operands(np.random.default_rng(rng_seed), 16)
    image_a, leading, stride = k_major_image(bits16(a, "f16"), 128)
    image_b, _, _ = k_major_image(bits16(b, "f16"), 128)
    return (
        a,
        b,
        words(image_a, image_b),
        np.uint64(descriptor(0, leading, stride, 128)),
        np.uint64(descriptor(8192, leading, stride, 128)),
    )


def test_wgmma_results_come_with_the_wait(kernels: Kernels, order: str) -> None:
    a, b, image, first, second = simple()
    out = poisoned((3, 128, 8), np.float32)
    kernels.launch("wgmma_chain", 1, 128, image.nbytes, image, image.size, first, second, out)
    assert np.isnan(out[:2]).all()
    assert (as_matrix(out[2], 16) == 2 * (a @ b.T)).all()


@pytest.mark.parametrize(
    ("name", "extra", "match"),
    [
        ("wgmma_unfenced", (), "no wgmma.fence"),
        ("wgmma_not_waited", (guarded(np.zeros(128, np.float32)),), "returns with a wgmma in flight"),
        ("wgmma_touched", (guarded(np.zeros(128, np.float32)),), "accumulators were written while"),
        ("wgmma_disagree", (), "do not issue the same wgmma"),
    ],
)
def test_detects_wrong_wgmma(kernels: Kernels, name: str, extra: tuple[Array, ...], match: str) -> None:
    _, _, image, first, second = simple()
    with pytest.raises(EmulatorError, match=match) as caught:
        kernels.launch(name, 1, 128, image.nbytes, first, second, *extra)
    assert "sm90.cpp:" in str(caught.value)


def test_ring_of_mbarriers(kernels: Kernels, order: str) -> None:
    x = guarded(np.random.default_rng(0).integers(-9, 9, (37, 16)).astype(np.float32))
    out = poisoned(31, np.float32)
    kernels.launch("ring", 1, 64, 256, x, out, 37)
    assert (out == np.tile(x.sum(0), 2)[:31]).all()


def test_neighbours_in_a_cluster(kernels: Kernels, order: str) -> None:
    out = poisoned((8, 3), np.float32)
    kernels.launch("neighbours", 8, 32, 128, out, cluster=4)
    left = np.array([(b // 4) * 4 + (b + 3) % 4 for b in range(8)])
    assert (out == np.stack([left % 4, left, left % 4 * 10], 1)).all()


def test_named_barriers(kernels: Kernels, order: str) -> None:
    out = poisoned(64, np.float32)
    kernels.launch("named", 1, 128, 256, out)
    assert (out == np.arange(127, 63, -1)).all()


def test_registers_change_hands(kernels: Kernels, order: str) -> None:
    out = poisoned(384, np.int32)
    kernels.launch("registers", 1, 384, 0, out)
    assert (out == 1).all()
    with pytest.raises(EmulatorError, match="no lane can go on") as caught:
        kernels.launch("too_many_registers", 1, 384, 0, out)
    assert "setmaxnreg.inc" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("never_arrives", "no lane can go on"),
        ("arrives_too_often", "more arrivals"),
        ("no_barrier_there", "not an mbarrier"),
        ("waits_without_arriving", "without having arrived"),
    ],
)
def test_detects_wrong_barriers(kernels: Kernels, name: str, match: str) -> None:
    with pytest.raises(EmulatorError, match=match) as caught:
        kernels.launch(name, 1, 32, 128, poisoned(32, np.int32))
    assert "sm90.cpp:" in str(caught.value)


def test_detects_write_to_a_block_that_left(kernels: Kernels) -> None:
    with pytest.raises(EmulatorError, match="block 1 of the cluster has ended"):
        kernels.launch("leaves_cluster", 2, 32, 128, poisoned(1, np.float32), cluster=2)


def test_detects_reads_in_flight(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    x = guarded(np.arange(32, dtype=np.float32))
    with pytest.raises(EmulatorError, match="a copy in flight is writing") as caught:
        kernels.launch("reads_in_flight", 1, 32, 256, x, poisoned(32, np.uint32))
    assert (
        "load_shared_word(smem()"
        in SOURCE.read_text().splitlines()[int(str(caught.value).split("sm90.cpp:")[1].split()[0]) - 1]
    )
    out = guarded(np.zeros(32, np.float32))
    kernels.launch("plain_read_in_flight", 1, 32, 256, x, out)
    assert np.isnan(out).all()
    with pytest.raises(EmulatorError, match="still in flight"):
        kernels.launch("ends_in_flight", 1, 32, 256, x)
