"""What does not fit into memory is an error in words, not the end of the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper as nh
import pytest

from aitc.importer.onnx import import_model
from aitc.verify import bisect
from aitc.verify.bisect import Steps, first_difference
from aitc.verify.compare import tolerance
from aitc.verify.noise import spreads
from aitc.verify.reference import Reference, TooLarge

# In a process of its own: onnxruntime's limit holds from the first session on.
SCRIPT = """
import numpy as np, onnx, onnx.helper as oh
import aitc.verify.reference as reference
from aitc.verify.run import Subject, verify
from aitc.schedule.plan.plan import Port
from aitc.ir.dtype import F32
from pathlib import Path
reference.available_bytes = lambda: 16 << 20
ports = [oh.make_tensor_value_info(n, 1, [1 << 22]) for n in "xy"]
nodes = [oh.make_node("Neg", ["x"], ["a"]), oh.make_node("Exp", ["a"], ["b"]), oh.make_node("Add", ["a", "b"], ["y"])]
data = oh.make_model(oh.make_graph(nodes, "g", ports[:1], ports[1:]), ir_version=8).SerializeToString()
one, other = (Port(n, F32, (1 << 22,), "", "") for n in "xy")
print(verify(Subject(Path("nowhere"), "g", "cpu", (one,), (other,), (), 1e-7, 2), data))
"""


def test_a_reference_that_does_not_fit_is_not_run() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env={**os.environ, "AITC_CACHE_DIR": ""}, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "not run: no reference: onnxruntime needs more memory than this machine has (0.01 GiB)\n"


def product(path: Path) -> Path:
    w = nh.from_array(np.ones((4, 4), np.float32), "w")
    ports = [oh.make_tensor_value_info(n, 1, [2, 4]) for n in "xy"]
    nodes = [oh.make_node("MatMul", ["x", "w"], ["p"]), oh.make_node("Relu", ["p"], ["y"])]
    onnx.save(oh.make_model(oh.make_graph(nodes, "g", ports[:1], ports[1:], [w]), ir_version=8), path)
    return path


def test_weights_are_not_copied_into_memory_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = Reference(product(tmp_path / "m.onnx"))
    feeds = {"x": np.ones((2, 4), np.float32)}
    plain = reference.run(feeds)
    monkeypatch.setattr("aitc.verify.reference.available_bytes", lambda: 4 * 64)
    with pytest.raises(TooLarge, match="copies of"):
        next(spreads(reference, feeds, 1e-3, plain))


def test_a_difference_is_not_searched_among_more_values_than_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = product(tmp_path / "m.onnx")
    monkeypatch.setattr(bisect, "available_bytes", lambda: 100)

    def never(*_: object) -> dict[str, np.ndarray]:
        raise AssertionError("nothing is run")

    steps = Steps(lambda: import_model(path).graph, (), lambda _: pytest.fail("nothing is planned"), never)
    said = first_difference(steps, path, {"x": np.ones((2, 4), np.float32)}, tolerance(1e-7, 2))
    assert said.startswith("not searched: all values together take")
