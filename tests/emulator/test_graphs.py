"""Recorded runs: what the toolkit's graphs allow, a whole model whose branches run in any order, and addresses that change."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import emulator
from aitc.emit.project import emit
from aitc.pipeline import Options, build_plan, compile
from aitc.progress import Silent
from aitc.schedule.plan.plan import Fork, Plan

TOOLKIT = Path(emulator.__file__).parent / "toolkit"
HOST = r"""
#include <cuda_runtime_api.h>
using Log = std::vector<int>;
static Log log_;
static cudaError_t step(cudaStream_t s, int n) {  // stands for a launch
  return emulated_runtime::copy(s, [n] { return log_.push_back(n), cudaSuccess; });
}
int main(int, char** argv) {
  cudaStream_t main, side, other;
  for (cudaStream_t* s : {&main, &side, &other}) cudaStreamCreateWithFlags(s, cudaStreamNonBlocking);
  cudaEvent_t begin, end;
  cudaEventCreateWithFlags(&begin, 0), cudaEventCreateWithFlags(&end, 0);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  const bool joins = atoi(argv[1]);
  if (cudaEventRecord(begin, main) || cudaStreamWaitEvent(side, begin, 0)) return 2;  // of runs that are not recorded
  cudaStreamBeginCapture(main, cudaStreamCaptureModeRelaxed);
  if (cudaStreamWaitEvent(main, begin, 0) != cudaErrorStreamCaptureIsolation) return 3;  // from outside
  step(main, 0), cudaEventRecord(begin, main), cudaStreamWaitEvent(side, begin, 0);
  step(main, 1), step(main, 2), step(side, 3), step(side, 4), cudaEventRecord(end, side);
  if (joins) cudaStreamWaitEvent(main, end, 0);
  step(main, 5);
  const cudaError_t ended = cudaStreamEndCapture(main, &graph);
  if (!joins) return ended == cudaErrorStreamCaptureUnjoined && graph == nullptr ? 0 : 4;
  if (ended || cudaGraphInstantiate(&exec, graph, 0) || !log_.empty()) return 5;
  if (cudaStreamWaitEvent(other, end, 0) != cudaErrorStreamCaptureIsolation) return 6;  // the recording is over
  step(side, 9);  // runs at once again
  if (log_ != Log{9}) return 7;
  for (int i = 0; i < 4; ++i) {
    log_.clear();
    if (cudaGraphLaunch(exec, main)) return 8;
    for (int n : log_) printf("%d", n);
    puts("");
  }
  return 0;
}
"""


@pytest.fixture(scope="module")
def host() -> Path:
    return emulator.compile_text(HOST, ("-std=c++17", f"-I{TOOLKIT / 'include'}", "-pthread"), "")


@pytest.mark.parametrize(("order", "wanted"), [("forward", {"012345"}), ("reverse", {"034125"}), ("3", None)])
def test_a_graph_runs_in_the_orders_that_its_edges_allow(host: Path, order: str, wanted: set[str] | None) -> None:
    done = subprocess.run([host, "1"], capture_output=True, text=True, env={"AITC_EMULATOR_ORDER": order})
    assert done.returncode == 0, done.returncode
    orders = set(done.stdout.split())
    assert orders == wanted if wanted else len(orders) > 1
    for ran in orders:
        assert sorted(ran) == list("012345")
        assert all(ran.index(a) < ran.index(b) for a, b in ("01", "12", "03", "34", "25", "45"))


def test_a_branch_that_does_not_join_is_an_error(host: Path) -> None:
    assert subprocess.run([host, "0"], capture_output=True).returncode == 0


def branches(path: Path) -> Path:
    """Three chains of products on one input."""
    rng = np.random.default_rng(0)
    nodes, weights, ends = [], [], []
    for chain in range(3):
        v = "x"
        for name in (f"{chain}{i}" for i in range(4)):
            weights.append(numpy_helper.from_array(rng.standard_normal((16, 16)).astype(np.float32) / 4, f"w{name}"))
            nodes.append(helper.make_node("MatMul", [v, f"w{name}"], [f"m{name}"]))
            nodes.append(helper.make_node("Relu", [f"m{name}"], [f"r{name}"]))
            v = f"r{name}"
        ends.append(helper.make_tensor_value_info(v, TensorProto.FLOAT, [5, 16]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 16])
    graph = helper.make_graph(nodes, "branches", [x], ends, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


REFERENCE = """
import sys
import numpy as np
import onnx
from onnx import numpy_helper
import aitc
from aitc.runtime import DeviceArray
weights = {w.name: numpy_helper.to_array(w) for w in onnx.load(sys.argv[1]).graph.initializer}
rng = np.random.default_rng(1)
def right(x, results):
    for chain, got in enumerate(results):
        wanted = x
        for i in range(4):
            wanted = np.maximum(wanted @ weights[f"w{chain}{i}"], 0)
        if not np.allclose(got, wanted, rtol=0, atol=1e-4):
            return False
    return True
def fresh():
    return rng.standard_normal((5, 16)).astype(np.float32)
"""
RUN = """
for folder in sys.argv[2:]:
    with aitc.load(folder) as model:  # launched one by one, then recorded, then replayed
        print(all([right(x, model(x)) for x in (fresh() for _ in range(6))]))
"""
MOVE = """
with aitc.load(sys.argv[2]) as model:
    kept = []  # so that no address comes twice
    for _ in range(9):
        x, at = fresh(), DeviceArray(model, (5, 16), model.inputs[0].dtype)
        model._check(model._table.copy(0, at.address, x.ctypes.data, x.nbytes))
        kept.append((x, at, model(at)))
        print(right(x, [y.numpy() for y in kept[-1][2]]))
    for x, at, _ in kept[-4:]:  # one of them has a recording for each set of addresses
        print(right(x, [y.numpy() for y in model(at)]))
    print(all(right(x, [y.numpy() for y in results]) for x, _, results in kept))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Plan, Options]:
    """The file, the folder it is compiled into, and how."""
    folder = tmp_path_factory.mktemp("graphs")
    options = Options(targets=("h200",), emulate=True, verify="require", output=folder / "out")
    result = compile(branches(folder / "branches.onnx"), options)
    assert result.plan is not None and result.verification is not None and result.verification.status == "passed"
    return folder / "branches.onnx", folder / "out", result.plan, options


def run(text: str, *arguments: Path, **env: str) -> list[str]:
    env = {**env, "PYTHONPATH": str(emulator.ROOT), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", REFERENCE + text, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_branches_of_a_model(model: tuple[Path, Path, Plan, Options], tmp_path: Path) -> None:
    """Replays in any order give what is right; with an edge left out, only the order of the plan does."""
    file, out, plan, options = model
    assert plan.forks == (Fork(0, (4, 4, 4)),)
    # A fork right behind another; and one where the last launch of the first lane does not wait for what it reads.
    forms = {"two": (Fork(0, (4, 2)), Fork(6, (2, 4))), "broken": (Fork(0, (3, 1, 4, 4)),)}
    for name, forks in forms.items():
        (tmp_path / name).mkdir()
        form = replace(plan, forks=forks)
        build_plan(form, emit(form), tmp_path / name, options, Silent())
    folders = [out, *(tmp_path / name for name in forms)]
    assert run(RUN, file, *folders, AITC_EMULATOR_ORDER="forward") == ["True", "True", "True"]
    for order in ("reverse", "5"):
        assert run(RUN, file, *folders, AITC_EMULATOR_ORDER=order) == ["True", "True", "False"]


def test_a_recording_follows_its_addresses(model: tuple[Path, Path, Plan, Options]) -> None:
    """However many addresses come, four graphs are made for the same sizes, and brought up to date."""
    file, out, *_ = model
    assert run(MOVE, file, out, AITC_EMULATOR_GRAPHS="4") == ["True"] * 14


CHOSEN = """
with aitc.load(sys.argv[2]) as model:
    launches, x = len(model.launches), fresh()
    whole, some, nothing = (min(model.bench(3, 1, [x], [i < n for i in range(launches)])) for n in (launches, launches // 3, 0))
    print(nothing < some / 2 and some < whole, right(x, model(x)), right(x, model(x)))
"""


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_a_recording_of_chosen_launches(model: tuple[Path, Path, Plan, Options], order: str) -> None:
    """Lanes that are left out, or the whole fork, are no error, and what is recorded of all launches stays."""
    file, out, *_ = model
    assert run(CHOSEN, file, out, AITC_EMULATOR_ORDER=order) == ["True"] * 3
