"""The run time on a CUDA device: launches, recorded runs, streams, memory kinds, and what goes wrong. Compiling needs nvcc alone."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest
from hand_plans import broken, expected, hopper_features, scale_then_shift

import aitc
from aitc.build.cmake import BuildOptions, build
from aitc.build.toolchain import find_hipcc, find_nvcc, find_toolchain
from aitc.emit.project import emit
from aitc.errors import AitcError, Exit
from aitc.schedule.plan.plan import Plan

PLAN = hopper_features()
NVCC, HIPCC = find_nvcc() is not None, find_hipcc() is not None
HOPPER = False
if shutil.which("nvidia-smi"):
    said = subprocess.run(
        ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"], capture_output=True, text=True, check=False
    ).stdout
    HOPPER = said.startswith("9.0")

gpu = [pytest.mark.gpu, pytest.mark.skipif(not (NVCC and HOPPER), reason="needs nvcc and a Hopper GPU")]
IDS = np.array([41])


def make(plan: Plan, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    build(plan, emit(plan), folder, find_toolchain(plan.api), BuildOptions(use_cache=False))
    return folder


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(PLAN, tmp_path_factory.mktemp("gpu"))


def x_of(batch: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(batch, 4)).astype(np.float32)


def check(results: list[np.ndarray], x: np.ndarray, ids: np.ndarray = IDS) -> None:
    for got, want in zip(results, expected(PLAN, x, ids), strict=False):
        np.testing.assert_allclose(got, want, rtol=1e-6)
    np.testing.assert_array_equal(results[3], [2031] * 4)
    np.testing.assert_array_equal(results[4], np.concatenate([x, np.zeros((8 - len(x), 4), np.float32)]))


# ---- compiling, without a device


@pytest.mark.cuda
@pytest.mark.skipif(not NVCC, reason="needs nvcc")
def test_cuda_library_needs_no_cuda_library(out: Path) -> None:
    said = subprocess.run(["readelf", "-d", out / "libhopper.so"], capture_output=True, text=True, check=True).stdout
    needed = [line.split("[")[1].rstrip("]") for line in said.splitlines() if "NEEDED" in line]
    assert all(
        n.startswith(("libc.so", "libm.so", "libdl.so", "librt.so", "libpthread.so", "ld-linux")) for n in needed
    ), needed


@pytest.mark.cuda
@pytest.mark.skipif(not NVCC, reason="needs nvcc")
@pytest.mark.skipif(HOPPER, reason="needs a machine without a GPU")
def test_no_device_is_an_error_of_its_own(out: Path) -> None:
    with pytest.raises(AitcError, match="there is no cuda device 0: 0 found") as e:
        aitc.load(out)
    assert e.value.exit_code is Exit.RUNTIME
    done = subprocess.run([out / "hopper"], capture_output=True, text=True, check=False)
    assert done.returncode == 8 and "there is no cuda device 0" in done.stderr


@pytest.mark.cuda
@pytest.mark.skipif(not NVCC, reason="needs nvcc")
def test_nvcc_errors_name_the_node(tmp_path: Path) -> None:
    with pytest.raises(AitcError, match="the compiler failed on kernel add_1") as e:
        make(broken(scale_then_shift(api="cuda", target="sm90")), tmp_path)
    assert 'node #1 "shift" (Add)' in str(e.value) and "this_is_no_function" in str(e.value)


@pytest.mark.cuda
@pytest.mark.skipif(not NVCC, reason="needs nvcc")
def test_by_hand_the_same_cuda_library(out: Path, tmp_path: Path) -> None:
    chain = find_toolchain("cuda")
    assert chain.device is not None
    arguments = ["-S", out / "src", "-B", tmp_path, "-G", "Ninja", f"-DAITC_NVCC={chain.device.path}"]
    subprocess.run([chain.cmake.path, *arguments], check=True, capture_output=True)
    subprocess.run([chain.cmake.path, "--build", tmp_path], check=True, capture_output=True)
    assert (tmp_path / "libhopper.so").read_bytes() == (out / "libhopper.so").read_bytes()


@pytest.mark.hip
@pytest.mark.skipif(not HIPCC, reason="needs hipcc")
def test_hip_compiles_and_links_the_hip_runtime_alone(tmp_path: Path) -> None:
    make(scale_then_shift(api="hip", target="mi250"), tmp_path)
    said = subprocess.run(["readelf", "-d", tmp_path / "libhand.so"], capture_output=True, text=True, check=True).stdout
    needed = [line.split("[")[1].rstrip("]") for line in said.splitlines() if "NEEDED" in line]
    assert any(n.startswith("libamdhip64") for n in needed)
    assert all(
        n.startswith(("libamdhip64", "libc.so", "libm.so", "libdl.so", "libpthread.so", "ld-linux")) for n in needed
    ), needed


# ---- running


class TestOnDevice:
    pytestmark = gpu

    @pytest.mark.parametrize("batch", [1, 3, 8])
    def test_numpy(self, out: Path, batch: int) -> None:
        with aitc.load(out) as model:
            for seed in range(4):  # launched, recorded, replayed
                x = x_of(batch, seed)
                check(model(x, IDS + seed), x, IDS + seed)

    def test_sizes_take_turns(self, out: Path) -> None:
        with aitc.load(out) as model:
            for i in range(60):  # more combinations than are kept
                x = x_of(1 + i % 8, i)
                check(model(x, IDS), x)

    def test_torch_without_a_copy(self, out: Path) -> None:
        torch = pytest.importorskip("torch")
        with aitc.load(out) as model:
            x, ids = torch.randn(3, 4, device="cuda"), torch.tensor([41], device="cuda")
            for _ in range(5):
                x.copy_(torch.randn(3, 4))
                results = model(x, ids)
                assert all(r.device == x.device for r in results) and results[0].dtype == torch.float32
                check([r.cpu().numpy() for r in results], x.cpu().numpy())

    def test_torch_streams(self, out: Path) -> None:
        """Runs on several streams share the arena, and each sees what its own stream wrote before."""
        torch = pytest.importorskip("torch")
        with aitc.load(out) as model:
            streams = [torch.cuda.Stream() for _ in range(3)]
            ids = torch.tensor([41], device="cuda")
            torch.cuda.synchronize()
            outputs = []
            for i in range(30):
                with torch.cuda.stream(streams[i % 3]):
                    torch.cuda._sleep(100000)
                    x = torch.full((8, 4), float(i), device="cuda")
                    outputs.append((i, model(x, ids)))
            torch.cuda.synchronize()
            for i, results in outputs:
                check([r.cpu().numpy() for r in results], np.full((8, 4), i, np.float32))

    def test_a_caller_records_a_graph(self, out: Path) -> None:
        torch = pytest.importorskip("torch")
        with aitc.load(out) as model:
            x, ids = torch.randn(3, 4, device="cuda"), torch.tensor([41], device="cuda")
            model(x, ids)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                results = model(x, ids)
            for _ in range(3):
                x.copy_(torch.randn(3, 4))
                graph.replay()
                check([r.cpu().numpy() for r in results], x.cpu().numpy())

    def test_unaligned_and_strided_tensors(self, out: Path) -> None:
        torch = pytest.importorskip("torch")
        with aitc.load(out) as model:
            base = torch.randn(13, device="cuda")
            x, ids = base[1:].view(3, 4), torch.tensor([41], device="cuda")
            for t in (x, torch.randn(4, 3, device="cuda").t()):
                check([r.cpu().numpy() for r in model(t, ids)], t.cpu().numpy())

    def test_mixed_memory(self, out: Path) -> None:
        torch = pytest.importorskip("torch")
        with aitc.load(out) as model:
            x = torch.randn(3, 4, device="cuda")
            check([r.cpu().numpy() for r in model(x, IDS)], x.cpu().numpy())
            pinned = torch.randn(3, 4).pin_memory()
            check([r.numpy() for r in model(pinned, torch.tensor([41]))], pinned.numpy())

    def test_cupy(self, out: Path) -> None:
        cupy = pytest.importorskip("cupy")
        with aitc.load(out) as model:
            x = cupy.random.standard_normal((3, 4), dtype=cupy.float32)
            results = model(x, cupy.asarray(IDS))
            check([r.numpy() for r in results], x.get())
            check([cupy.from_dlpack(r).get() for r in results], x.get())
            again = model(results[2], cupy.asarray(IDS))  # what it gave, it takes
            check([r.numpy() for r in again], x.get())

    def test_wrong_inputs_do_not_hurt(self, out: Path) -> None:
        torch = pytest.importorskip("torch")
        with aitc.load(out) as model:
            with pytest.raises(AitcError, match=r"given f32\[3, 3\]"):
                model(torch.zeros(3, 3, device="cuda"), torch.tensor([41], device="cuda"))
            with pytest.raises(AitcError, match="given f16"):
                model(torch.zeros(3, 4, device="cuda", dtype=torch.float16), torch.tensor([41], device="cuda"))
            x = x_of(3)
            check(model(x, IDS), x)
        with pytest.raises(AitcError, match="no cuda device 99"):
            aitc.load(out, device=99)

    def test_threads(self, out: Path) -> None:
        wrong: list[object] = []
        with aitc.load(out) as one, aitc.load(out) as two:

            def work(t: int) -> None:
                try:
                    for i in range(40):
                        x = x_of(1 + t % 8, i)
                        check((one if i % 2 else two)(x, IDS), x)
                except Exception as e:
                    wrong.append(e)

            threads = [threading.Thread(target=work, args=(t,)) for t in range(6)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        assert not wrong

    def test_memory_comes_back(self, out: Path) -> None:
        torch = pytest.importorskip("torch")
        aitc.load(out).close()
        before = torch.cuda.mem_get_info()[0]
        for _ in range(20):
            with aitc.load(out) as model:
                model(x_of(8), IDS)
        assert torch.cuda.mem_get_info()[0] >= before - (4 << 20)

    def test_times(self, out: Path) -> None:
        with aitc.load(out) as model:
            times = sorted(model.bench(100, 10))
            assert 2e-6 < times[50] < 1e-3
            spans = model.profile(10)
            assert [(s.run, s.launch) for s in spans] == [(r, n) for r in range(10) for n in range(len(model.launches))]
            assert all(1e-7 < s.end - s.begin < 1e-3 for s in spans)
            # The stream is held back while launches are put into it: none waits for the host.
            assert all(b.begin - a.end < 20e-6 for a, b in itertools.pairwise(spans) if a.run == b.run)

    def test_the_executable(self, out: Path, tmp_path: Path) -> None:
        x = x_of(3)
        np.save(tmp_path / "x.npy", x)
        np.save(tmp_path / "ids.npy", IDS)
        command = [
            out / "hopper",
            "--input",
            f"x={tmp_path}/x.npy",
            "--input",
            f"token/ids:0={tmp_path}/ids.npy",
            "--output-dir",
            tmp_path / "y",
            "--bench",
            "--profile",
            "--json",
        ]
        said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        assert "H200" in said["device"] or "sm_90" in said["device"]
        check([np.load(tmp_path / "y" / f"{p}.npy") for p in ("y", "n", "x again", "wide", "tile")], x)

    def test_code_for_another_device_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(AitcError, match="Was the model compiled for this device"):
            aitc.load(make(scale_then_shift(api="cuda", target="sm100"), tmp_path))

    def test_older_code_runs_by_its_portable_form(self, tmp_path: Path) -> None:
        x = x_of(3)
        with aitc.load(make(scale_then_shift(api="cuda", target="a100"), tmp_path)) as model:
            for got, want in zip(model(x, IDS), expected(PLAN, x, IDS), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-6)
