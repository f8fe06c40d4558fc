"""Whole models: the unchanged generated project, built with the emulator's toolkit in place of nvcc or hipcc, beside onnxruntime."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import emulator

TOOLKIT = Path(emulator.__file__).parent / "toolkit"


def model(path: Path) -> Path:
    """Softmax(Relu(x W + b)), in float16, 19 rows."""
    rng = np.random.default_rng(0)
    w = numpy_helper.from_array(rng.standard_normal((40, 72)).astype(np.float16) / 4, "w")
    b = numpy_helper.from_array(rng.standard_normal(72).astype(np.float16), "b")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["a"]),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT16, [19, 40])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT16, [19, 72])
    graph = helper.make_graph(nodes, "emulated", [x], [y], [w, b])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize("target", ["a100", "h200", "mi250"])
def test_a_whole_model(target: str, tmp_path: Path) -> None:
    env = {**os.environ, "AITC_CACHE_DIR": str(tmp_path / "cache"), "AITC_EMULATOR_ORDER": "7"}
    command = ("compile", str(model(tmp_path / "model.onnx")), "--target", target, "--emulate", "--require-verify")
    done = subprocess.run(
        [sys.executable, "-m", "cli", *command, "-o", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        env=env,
        cwd=emulator.ROOT,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "verification passed" in done.stdout
    bench = ("bench", str(tmp_path / "out"), "--iters", "2", "--warmup", "0", "--profile", "--json")
    done = subprocess.run(
        [sys.executable, "-m", "cli", *bench], capture_output=True, text=True, env=env, cwd=emulator.ROOT, timeout=300
    )
    assert done.returncode == 0, done.stderr
    profile = json.loads(done.stdout)["profile"]  # the times mean nothing
    assert [span[0] for span in profile["timeline"]] == list(range(len(profile["launches"])))
    assert all(launch["us"] > 0 and launch["floor_us"] > 0 for launch in profile["launches"])


@pytest.mark.parametrize("target", ["h200", "mi250"])
def test_tuning(target: str, tmp_path: Path) -> None:
    """The way through on a GPU; the emulator's times mean nothing, so only a table that is asked for gets them."""
    env = {**os.environ, "AITC_CACHE_DIR": str(tmp_path / "cache")}
    command = ("tune", str(model(tmp_path / "model.onnx")), "--target", target, "--emulate", "--seconds", "4", "--candidates", "2")
    done = subprocess.run(
        [sys.executable, "-m", "cli", *command, "--table", str(tmp_path / "table.json"), "--json"],
        capture_output=True,
        text=True,
        env=env,
        cwd=emulator.ROOT,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    (problem,) = told["problems"]
    assert len(told["runs_us"]) == 2 and all(us > 0 for us in told["runs_us"])  # whole runs were compared, too
    assert len(problem["us"]) == 2 and problem["best"] in (tmp_path / "table.json").read_text()
    assert not (tmp_path / "cache" / "tuning").exists()


HOST = r"""
#include <cuda_runtime_api.h>
#include <fstream>
#include <iterator>
int main(int, char** argv) {
  std::ifstream file(argv[1], std::ios::binary);
  const std::vector<char> image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  cudaLibrary_t library;
  cudaKernel_t kernel;
  if (cudaLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0)) return 2;
  if (cudaLibraryGetKernel(&kernel, library, "scale")) return 3;
  float *x = nullptr, host[64] = {};
  cudaMalloc(reinterpret_cast<void**>(&x), sizeof host);
  cudaMemset(x, 0, sizeof host);
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, 0);
  int n = 64;
  void* arguments[] = {&x, &n};
  cudaLaunchConfig_t config;
  config.blockDim = dim3(unsigned(atoi(argv[2])));
  config.stream = stream;
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed);
  if (cudaLaunchKernelExC(&config, kernel, arguments)) return 4;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaStreamEndCapture(stream, &graph);
  cudaGraphInstantiate(&exec, graph, 0);
  n = -1, x = nullptr;  // recorded arguments are copies
  for (int i = 0; i < 3; ++i)
    if (const cudaError_t e = cudaGraphLaunch(exec, stream)) return puts(cudaGetErrorString(e)), 5;
  return 0;
}
"""
OVERLAP = r"""
#include <cuda_runtime_api.h>
#include <fstream>
#include <iterator>
int main(int, char** argv) {  // image, first kernel, second kernel (each runs twice): x[i] += 1, then out[i] = x[i]
  std::ifstream file(argv[1], std::ios::binary);
  const std::vector<char> image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  cudaLibrary_t library;
  cudaKernel_t kernels[2];
  if (cudaLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0)) return 2;
  for (int k = 0; k < 2; ++k)
    if (cudaLibraryGetKernel(&kernels[k], library, argv[2 + k])) return 3;
  float *x = nullptr, *out = nullptr, host[64] = {};
  cudaMalloc(reinterpret_cast<void**>(&x), sizeof host);
  cudaMalloc(reinterpret_cast<void**>(&out), sizeof host);
  cudaMemset(x, 0, sizeof host);
  for (int k = 0; k < 4; ++k) {
    void* arguments[] = {&x, &out};
    cudaLaunchAttribute overlap;
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config;
    config.gridDim = dim3(2), config.blockDim = dim3(32), config.attrs = &overlap, config.numAttrs = 1;
    if (const cudaError_t e = cudaLaunchKernelExC(&config, kernels[k % 2], arguments)) return puts(cudaGetErrorString(e)), 5;
  }
  if (const cudaError_t e = cudaMemcpy(host, out, sizeof host, cudaMemcpyDefault)) return puts(cudaGetErrorString(e)), 5;
  for (float v : host)
    if (v != 2) return printf("%g\n", v), 1;
  return 0;
}
"""
OVERLAPPING = """#include "aitc/gpu/core/gpu.h"
using namespace aitc;
AITC_KERNEL(32) void AITC_ENTRY(add)(float* x, float* out) {
  grid_dependency_launch();
  grid_dependency_wait();
  x[blockIdx.x * 32 + thread_index()] += 1;
}
AITC_KERNEL(32) void AITC_ENTRY(copy_right)(float* x, float* out) {
  grid_dependency_wait();
  out[blockIdx.x * 32 + thread_index()] = x[blockIdx.x * 32 + thread_index()];
}
AITC_KERNEL(32) void AITC_ENTRY(copy_early)(float* x, float* out) {
  const float v = x[blockIdx.x * 32 + thread_index()];
  grid_dependency_wait();
  out[blockIdx.x * 32 + thread_index()] = v;
}
AITC_KERNEL(32) void AITC_ENTRY(copy_never)(float* x, float* out) {
  out[blockIdx.x * 32 + thread_index()] = x[blockIdx.x * 32 + thread_index()];
}
"""
KERNEL = """#include "aitc/gpu/core/gpu.h"
using namespace aitc;
AITC_KERNEL(64) void AITC_ENTRY(scale)(float* x, int n) {
  if (thread_index() < n) x[thread_index()] = shuffle(x[thread_index()], 31) + 1;
}
"""


def test_runtime_replays_graphs_and_reports_errors(tmp_path: Path) -> None:
    """A recorded launch keeps its arguments; what the emulator says of a kernel is the runtime's error text."""
    (tmp_path / "scale.cu").write_text(KERNEL)
    nvcc: list[str | Path] = [
        TOOLKIT / "bin" / "nvcc",
        "-fatbin",
        "-gencode=arch=compute_80,code=sm_80",
        "-I",
        emulator.INCLUDES[0],
    ]
    subprocess.run([*nvcc, "-o", tmp_path / "scale.fatbin", tmp_path / "scale.cu"], check=True)
    (tmp_path / "host.cpp").write_text(HOST)
    compile_host: list[str | Path] = [
        "g++",
        "-std=c++17",
        f"-I{TOOLKIT / 'include'}",
        tmp_path / "host.cpp",
        "-o",
        tmp_path / "host",
    ]
    subprocess.run([*compile_host, "-pthread"], check=True)

    def run(threads: int) -> tuple[int, str]:
        done = subprocess.run(
            [tmp_path / "host", tmp_path / "scale.fatbin", str(threads)], capture_output=True, text=True
        )
        return done.returncode, done.stdout

    assert run(64) == (0, "")
    code, text = run(48)  # lane 31 of the second warp does not exist
    assert code == 5 and "takes no part" in text and "scale.cu:4" in text
    code, text = run(96)
    assert code == 5 and "at most 64 threads" in text


@pytest.mark.parametrize("order", ["forward", "reverse", "4"])
def test_programmatic_dependent_launch(order: str, tmp_path: Path) -> None:
    """A kernel that reads before it waits for the one before it gets what is old; one that never waits is an error."""
    (tmp_path / "k.cu").write_text(OVERLAPPING)
    nvcc: list[str | Path] = [
        TOOLKIT / "bin" / "nvcc",
        "-fatbin",
        "-gencode=arch=compute_90a,code=sm_90a",
        "-I",
        emulator.INCLUDES[0],
    ]
    subprocess.run([*nvcc, "-o", tmp_path / "k.fatbin", tmp_path / "k.cu"], check=True)
    host = emulator.compile_text(OVERLAP, ("-std=c++17", f"-I{TOOLKIT / 'include'}", "-pthread"), "")
    env = {**os.environ, "AITC_EMULATOR_ORDER": order}

    def run(first: str, second: str) -> tuple[int, str]:
        done = subprocess.run([host, tmp_path / "k.fatbin", first, second], capture_output=True, text=True, env=env)
        return done.returncode, done.stdout

    assert run("add", "copy_right") == (0, "")
    assert run("add", "copy_early") == (
        (1, "1\n") if order != "reverse" else (0, "")
    )  # that order overlaps the other pairs
    code, text = run("add", "copy_never")
    assert (code == 5 and "no thread waits" in text) if order != "reverse" else code == 0
