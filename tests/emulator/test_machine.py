"""The emulated machine: places, barriers, exchange between lanes, atomics, shared memory, and what it detects."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import emulator
from emulator import EmulatorError, Kernels, guarded, poisoned

SOURCE = Path(__file__).parent / "kernels" / "machine.cpp"
ORDERS = ("forward", "reverse", "1", "2", "77")


@pytest.fixture(scope="module", params=["sm80", "gfx90a"])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    return emulator.build(SOURCE, request.param, alignment=True)


@pytest.fixture(scope="module")
def sm80() -> Kernels:
    return emulator.build(SOURCE, "sm80", alignment=True)


def warp_of(kernels: Kernels) -> int:
    out = poisoned((128, 5), np.int32)
    kernels.launch("places", 1, 128, 0, out)
    return int(out[:, 4].max()) + 1


@pytest.fixture(params=ORDERS)
def order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AITC_EMULATOR_ORDER", request.param)
    return str(request.param)


def test_places(kernels: Kernels) -> None:
    out = poisoned((2 * 3 * 2, 5 * 4 * 7, 5), np.int32)
    kernels.launch("places", (2, 3, 2), (5, 4, 7), 0, out)
    threads = np.arange(140)
    for block in range(12):
        assert (out[block, :, 0] == threads % 5).all()
        assert (out[block, :, 1] == threads // 5 % 4).all()
        assert (out[block, :, 2] == threads // 20).all()
        assert (out[block, :, 3] == block).all()
        assert (out[block, :, 4] == threads % warp_of(kernels)).all()


def test_warps_have_the_targets_size() -> None:
    assert warp_of(emulator.build(SOURCE, "sm80", alignment=True)) == 32
    assert warp_of(emulator.build(SOURCE, "gfx90a", alignment=True)) == 64


def test_exchange(kernels: Kernels, order: str) -> None:
    warp = warp_of(kernels)
    x = guarded(np.random.default_rng(1).standard_normal(128).astype(np.float32))
    shuffled, crossed = poisoned(128, np.float32), poisoned(128, np.float32)
    ballots, sums = poisoned(128, np.uint64), poisoned(128, np.float64)
    kernels.launch("exchange", 1, 128, 0, x, shuffled, crossed, ballots, sums)
    t = np.arange(128)
    assert (shuffled == x[t // warp * warp + (t % warp * 7 + 3) % warp]).all()
    assert (crossed == x[t ^ 5]).all()
    for w in range(128 // warp):
        expected = sum(1 << i for i in range(warp) if x[w * warp + i] > 0)
        assert all(int(b) == expected for b in ballots[w * warp : (w + 1) * warp])
    np.testing.assert_allclose(sums, np.repeat(x.astype(np.float64).reshape(8, 16).sum(1), 16), rtol=1e-12)


def test_block_sum(kernels: Kernels, order: str) -> None:
    x = guarded(np.arange(5000, dtype=np.float32))
    out = guarded(np.zeros(1, np.float32))
    kernels.launch("block_sum", 3, 256, 1024, x, out, 5000)
    assert out[0] == 5000 * 4999 / 2


def test_atomics(kernels: Kernels, order: str) -> None:
    ints = guarded(np.array([0, -1, 1000, 0, 0], np.int32))
    longs, floats, doubles = guarded(np.zeros(1, np.uint64)), guarded(np.zeros(1, np.float32)), guarded(np.zeros(1))
    kernels.launch("atomics", 1, 64, 0, ints, longs, floats, doubles)
    assert list(ints[:3]) == [2016, 63, 37]
    assert ints[3] == ints[4] and ints[4] >= 1
    assert longs[0] == 64 << 40 and floats[0] == 32 and doubles[0] == 16


def test_blocks_run_in_the_order_asked_for(sm80: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}
    for order in ("forward", "reverse", "5", "6"):
        monkeypatch.setenv("AITC_EMULATOR_ORDER", order)
        places = poisoned(60, np.int32)
        sm80.launch("order", 60, 1, 0, guarded(np.zeros(1, np.int32)), places)
        assert sorted(places) == list(range(60))
        seen[order] = tuple(places)
    assert seen["forward"] == tuple(range(60)) and seen["reverse"] == tuple(range(59, -1, -1))
    assert len(set(seen.values())) == 4


def test_threads_share_the_blocks(sm80: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AITC_EMULATOR_THREADS", "3")
    out = guarded(np.zeros(1, np.float32))
    sm80.launch("block_sum", 40, 256, 1024, guarded(np.ones(20000, np.float32)), out, 20000)
    assert out[0] == 20000
    with pytest.raises(EmulatorError, match="divergent"):
        sm80.launch("divergent_shuffle", 40, 64, 0, poisoned(64, np.float32))


def test_barrier_orders_shared_memory(kernels: Kernels, order: str) -> None:
    x, out = guarded(np.arange(128, dtype=np.float32)), poisoned(128, np.float32)
    kernels.launch("reverse", 1, 128, 512, x, out, 1)
    assert (out == x[::-1]).all()


@pytest.mark.parametrize("order", ["forward", "reverse", "9"])
def test_without_barrier_nan_shows(kernels: Kernels, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AITC_EMULATOR_ORDER", order)
    out = poisoned(128, np.float32)
    kernels.launch("reverse", 1, 128, 512, guarded(np.arange(128, dtype=np.float32)), out, 0)
    assert np.isnan(out).any()


def test_shared_memory_starts_poisoned_in_each_block(kernels: Kernels) -> None:
    for _ in range(2):
        out = guarded(np.zeros(96, np.float32))
        kernels.launch("unwritten", 2, 32, 128, out)
        assert np.isnan(out[:64]).all() and (out[64:] == np.arange(31, -1, -1)).all()


def line_of(text: str) -> int:
    lines = SOURCE.read_text().splitlines()
    return next(i for i, line in enumerate(lines, 1) if text in line)


def fails(kernels: Kernels, match: str, name: str, block: int, smem: int, *arguments: object, line: str = "") -> str:
    with pytest.raises(EmulatorError, match=match) as caught:
        kernels.launch(name, 1, block, smem, *arguments)  # type: ignore[arg-type]
    if line:
        assert f":{line_of(line)}" in str(caught.value)
    return str(caught.value)


def test_detects_divergent_shuffle(kernels: Kernels, order: str) -> None:
    text = fails(kernels, "divergent", "divergent_shuffle", 64, 0, poisoned(64, np.float32), line="half of a warp")
    assert "lanes 0..15" in text


def test_detects_divergent_barrier(kernels: Kernels) -> None:
    text = fails(kernels, "divergent", "divergent_barrier", 64, 0, poisoned(64, np.float32), line="lane_index() == 3")
    assert "lanes 3..3: block_barrier" in text


def test_detects_missing_barrier(kernels: Kernels) -> None:
    text = fails(
        kernels,
        "different barriers",
        "missing_barrier",
        128,
        0,
        poisoned(128, np.float32),
        64,
        line="thread_index() < n",
    )
    assert "warp 0 lanes" in text


def test_detects_shuffle_from_absent_lane(kernels: Kernels) -> None:
    fails(
        kernels,
        "takes no part",
        "absent_lane",
        64,
        0,
        poisoned(64, np.float32),
        20,
        line="shuffle(float(thread_index())",
    )
    kernels.launch("absent_lane", 1, 64, 0, poisoned(64, np.float32), 64)


def test_detects_misaligned_accesses(kernels: Kernels) -> None:
    x, out = guarded(np.zeros(200, np.float32)), poisoned(128, np.float32)
    for by in (1, 2, 3):
        text = fails(kernels, "not aligned to 16", "misaligned", 32, 0, x, out, by, line="load<4>(x + 4")
        assert "types.h" in text and "lane 0" in text
    kernels.launch("misaligned", 1, 32, 0, x, out, 4)
    fails(
        kernels,
        "misaligned access",
        "misaligned_word",
        32,
        0,
        x,
        poisoned(32, np.uint64),
        4,
        line="reinterpret_cast<const uint64_t*>(x",
    )
    fails(kernels, "not aligned to 8", "misaligned_copy", 32, 0, x, out, 4, line="copy_bytes<8>")


def test_detects_register_array_overrun(kernels: Kernels) -> None:
    fails(kernels, "index 5 outside", "register_bounds", 32, 0, poisoned(32, np.float32), 5, line="r[n % 8]")


def test_detects_writes_behind_shared_memory(kernels: Kernels) -> None:
    kernels.launch("behind_shared", 1, 32, 256, 63)
    fails(kernels, "behind the end of dynamic", "behind_shared", 32, 256, 64)


def test_detects_accesses_outside_an_array(kernels: Kernels) -> None:
    x = guarded(np.zeros(32, np.float32))
    kernels.launch("out_of_range", 1, 32, 0, x, poisoned(32, np.float32), 0)
    text = fails(
        kernels, "invalid address", "out_of_range", 32, 0, x, poisoned(32, np.float32), 1, line="thread_index() + i"
    )
    assert "lane 31" in text


def test_refuses_impossible_launches(sm80: Kernels) -> None:
    out = poisoned(32, np.float32)
    for grid, block, smem in ((0, 32, 0), (1, 32, 164 * 1024), ((1, 65536), 32, 0)):
        with pytest.raises(EmulatorError, match="invalid launch"):
            sm80.launch("unwritten", grid, block, smem, out)
    with pytest.raises(EmulatorError, match="at most 128 threads"):
        sm80.launch("exchange", 1, 160, 0, *[out] * 5)
    with pytest.raises(EmulatorError, match="cluster"):
        sm80.launch("unwritten", 2, 32, 128, out, cluster=2)


def test_static_shared_memory_counts(sm80: Kernels) -> None:
    with pytest.raises(EmulatorError, match="the target has 166912"):
        sm80.launch("unwritten", 1, 32, 163 * 1024, poisoned(96, np.float32))


@pytest.mark.parametrize("target", ["gfx90a"])
def test_lds_limit(target: str) -> None:
    with pytest.raises(EmulatorError, match="the target has 65536"):
        emulator.build(SOURCE, target, alignment=True).launch("behind_shared", 1, 32, 65537, 0)
