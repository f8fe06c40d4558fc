"""What fp16 cannot hold is measured once, within bounds that are counted, and remembered by the model's content."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper as nh
import onnx.parser
import pytest

from aitc.importer.onnx import import_model
from aitc.passes import stages
from aitc.passes.base import Context
from aitc.pipeline import Options, compile
from aitc.verify import ranges
from aitc.verify.reference import float_values, largest_magnitudes


def model(path: Path, gain: float) -> Path:
    """(x · w) gain, then a Relu of it."""
    w = nh.from_array(np.eye(4, dtype=np.float32), "w")
    g = nh.from_array(np.full(4, gain, np.float32), "g")
    nodes = [
        oh.make_node("MatMul", ["x", "w"], ["m"], name="product"),
        oh.make_node("Mul", ["m", "g"], ["p"], name="gain"),
        oh.make_node("Relu", ["p"], ["y"], name="clamp"),
    ]
    ports = [oh.make_tensor_value_info(n, 1, [3, 4]) for n in ("x", "y")]
    onnx.save(oh.make_model(oh.make_graph(nodes, "g", ports[:1], ports[1:], [w, g]), ir_version=8), path)
    return path


def parsed(text: str, opset: int = 17) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> g {text}')


def measure(text: str, opset: int = 17) -> ranges.Ranges:
    data = parsed(text, opset).SerializeToString()
    return ranges.measured_ranges(data, import_model(data).graph, {})


def test_ranges_are_kept_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AITC_CACHE_DIR", str(tmp_path / "cache"))
    path = model(tmp_path / "m.onnx", 1e6)
    graph = import_model(str(path), {}, {}).graph
    first = ranges.measured_ranges(str(path), graph, {})
    assert first.measured
    assert 1e5 < first.largest["p"] < 1e7
    with monkeypatch.context() as patch:
        patch.setattr(ranges, "_measure", lambda *_: pytest.fail("measured again"))
        (tmp_path / "other.bin").write_bytes(b"not the model's")
        assert ranges.measured_ranges(str(path), graph, {}) == first
    model(path, 1.0)
    assert ranges.measured_ranges(str(path), graph, {}).largest["p"] < 10


def test_external_data_belong_to_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AITC_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "m.onnx"
    for gain, low, high in ((1e6, 1e5, 1e7), (1.0, 0.1, 10)):
        full = onnx.load(model(path, gain))
        onnx.save(full, path, save_as_external_data=True, location="m.data", size_threshold=0)
        (tmp_path / "m.data").touch()
        graph = import_model(str(path)).graph
        assert low < ranges.measured_ranges(str(path), graph, {}).largest["p"] < high
        os.utime(tmp_path / "m.data", (0, 0))
        (tmp_path / "m.data").unlink()


@pytest.mark.parametrize(("gain", "dtype"), [(1e6, "f32"), (1.0, "f16")])
def test_what_overflows_stays_wide(tmp_path: Path, gain: float, dtype: str) -> None:
    path = model(tmp_path / "m.onnx", gain)
    graph = import_model(str(path), {}, {}).graph
    context = Context(precision="fp16", ranges=ranges.measured_ranges(str(path), graph, {}))
    for stage in (stages.simplify, stages.fuse, stages.layout):
        stage(graph, context)
    relu = next(n for n in graph.nodes if n.op.name == "Relu")
    assert relu.output.type.dtype.name == dtype


def test_infinities_nans_and_nothing_are_left_out() -> None:
    text = """(float[8] x) => (float[8] y, float[0] none, float[8] bad) <int64[1] zero = {0}, int64[1] one = {1}, float big = {3e38}> {
        l = Log(x) i = Reciprocal(l) s = Sub(i, i) y = Add(s, x)
        empty = Slice(x, zero, zero) none = Abs(empty) huge = Mul(x, big) n = Log(huge) bad = Sqrt(n) }"""
    proto = parsed(text, 17)
    x = np.array([1, 2, 0.5, 4, 1, 0, -3, 1.5], np.float32)
    found = largest_magnitudes(proto, None, float_values(parsed(text)), {"x": x})
    with np.errstate(all="ignore"):
        log = np.log(x)
        inverse, huge = 1 / log, x * np.float32(3e38)
        none = inverse - inverse
        want: Mapping[str, np.ndarray] = {
            "l": log, "i": inverse, "s": none, "y": none + x, "huge": huge, "n": np.log(np.abs(huge)[huge > 0])
        }  # fmt: skip
    assert "none" not in found
    for name, value in want.items():
        assert found[name] == pytest.approx(np.abs(value[np.isfinite(value)]).max(), rel=1e-6), name


@pytest.mark.parametrize("opset", [7, 20])
def test_old_models_are_measured_too(opset: int) -> None:
    found = measure("(float[3,4] x) => (float[3,4] y) { l = Log(x) e = Exp(l) y = Add(e, l) }", opset)
    assert found.measured
    assert set(found.largest) == {"l", "e", "y"}


LONG = """
import resource, sys
import numpy as np, onnx, onnx.helper as oh
from aitc.importer.onnx import import_model
from aitc.verify.ranges import measured_ranges
names = ["x", *(f"v{i}" for i in range(400))]
nodes = [oh.make_node("Neg" if i % 2 else "Abs", [a], [b]) for i, (a, b) in enumerate(zip(names, names[1:]))]
ports = [oh.make_tensor_value_info(n, 1, [1, 1 << 20]) for n in (names[0], names[-1])]
data = oh.make_model(oh.make_graph(nodes, "g", ports[:1], ports[1:]), ir_version=8).SerializeToString()
graph = import_model(data).graph
import onnxruntime
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = measured_ranges(data, graph, {})
assert found.measured and len(found.largest) == 400, found
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_values_are_not_kept_while_they_are_measured() -> None:
    """400 values of 4 MiB, measured in much less than their 1.6 GiB."""
    environment = {**os.environ, "AITC_CACHE_DIR": ""}
    done = subprocess.run([sys.executable, "-c", LONG], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 300 << 10, "KiB"


BATCH = """(float[64,3,16] x) => (float[64,10] y) <int64[3] a = {64, 16, 3}, int64[2] b = {64, 48}, int64[3] c = {64, 1, 16}> {
    t = Reshape(x, a) r = Relu(t) f = Reshape(r, b) e = ConstantOfShape(c) k = Add(x, e) m = ReduceMax<axes = [1, 2], keepdims = 0>(k)
    u = Unsqueeze(m, one) p = MatMul(f, w) y = Add(p, u) }"""
BATCH = BATCH.replace("int64[2] b", "int64[1] one = {1}, float[48,10] w = {" + ", ".join(["0.5"] * 480) + "}, int64[2] b")


def test_of_a_large_batch_two_samples_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AITC_CACHE_DIR", "")
    whole = measure(BATCH)
    graph = import_model(parsed(BATCH).SerializeToString()).graph
    monkeypatch.setattr(ranges, "LIMIT_OPERATIONS", ranges.operations(graph, {}) // 8)
    few = measure(BATCH)
    assert whole.how == "measured on random inputs"
    assert few.how == "measured on random inputs, 2 samples of a batch of 64"
    assert few.largest.keys() == whole.largest.keys()
    assert all(0 < few.largest[n] <= whole.largest[n] for n in ("t", "k", "m", "y"))
    monkeypatch.setattr(ranges, "LIMIT_OPERATIONS", ranges.operations(graph, {}) // 64)
    assert not measure(BATCH).measured


def test_a_large_constant_may_repeat_one_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class token for each of the batch, in a file and large enough to stay there."""
    monkeypatch.setenv("AITC_CACHE_DIR", "")
    token = nh.from_array(np.repeat(np.ones((1, 1, 1024), np.float32), 32, axis=0), "token")
    weight = nh.from_array(np.eye(1024, dtype=np.float32), "w")
    nodes = [oh.make_node("Concat", ["x", "token"], ["c"], axis=1), oh.make_node("MatMul", ["c", "w"], ["y"])]
    ports = [oh.make_tensor_value_info("x", 1, [32, 3, 1024]), oh.make_tensor_value_info("y", 1, [32, 4, 1024])]
    onnx.save(oh.make_model(oh.make_graph(nodes, "g", ports[:1], ports[1:], [token, weight]), ir_version=8), tmp_path / "m.onnx")
    graph = import_model(tmp_path / "m.onnx").graph
    monkeypatch.setattr(ranges, "LIMIT_OPERATIONS", ranges.operations(graph, {}) // 8)
    found = ranges.measured_ranges(tmp_path / "m.onnx", graph, {})
    assert found.how == "measured on random inputs, 2 samples of a batch of 32"
    assert found.largest["c"] == found.largest["y"] > 1


def test_indices_of_samples_are_cut_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exporters of attention masks gather by pairs of sample and position."""
    monkeypatch.setenv("AITC_CACHE_DIR", "")
    pairs = ", ".join(f"{b}, {s}" for b in range(32) for s in (5, 3, 0))
    text = f"(float[32,6] x) => (float[a,b] y) <int64[32,3,2] pairs = {{{pairs}}}> {{ g = GatherND(x, pairs) y = Exp(g) }}"
    graph = import_model(parsed(text).SerializeToString()).graph
    monkeypatch.setattr(ranges, "LIMIT_OPERATIONS", ranges.operations(graph, {}) // 4)
    assert measure(text).how == "measured on random inputs, 2 samples of a batch of 32"


@pytest.mark.parametrize(
    "body",
    [
        "s = ReduceSum(x) y = Add(x, s)",  # sums over the batch
        "n = Softmax<axis = 0>(x) y = Relu(n)",
        "t = Transpose<perm = [1, 0]>(x) y = MatMul(x, t)",
        "r = Reshape(x, swapped) y = Relu(r)",  # mixes samples
        "y = Add(x, table)",  # each sample has its own row
    ],
)
def test_what_mixes_samples_is_not_measured_on_few(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AITC_CACHE_DIR", "")
    rows = ", ".join(map(str, range(32 * 6)))
    text = f"(float[32,6] x) => (float[a,b] y) <int64[2] swapped = {{6, 32}}, float[32,6] table = {{{rows}}}> {{ {body} }}"
    graph = import_model(parsed(text).SerializeToString()).graph
    monkeypatch.setattr(ranges, "LIMIT_OPERATIONS", ranges.operations(graph, {}) // 2)
    found = measure(text)
    assert not found.measured
    assert "not measured" in found.how


def test_sources_are_the_same_with_and_without_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured, remembered, measured again without a cache; of a batch."""
    gained = model(tmp_path / "m.onnx", 1e6)
    batch = tmp_path / "batch.onnx"
    batch.write_bytes(parsed(BATCH).SerializeToString())
    limits = {gained: None, batch: ranges.operations(import_model(batch).graph, {}) // 8}
    emitted: dict[Path, list[dict[str, str]]] = {gained: [], batch: []}
    for folder in ("cache", "cache", ""):
        monkeypatch.setenv("AITC_CACHE_DIR", str(tmp_path / folder) if folder else "")
        for path, limit in limits.items():
            with monkeypatch.context() as patch:
                if limit is not None:
                    patch.setattr(ranges, "LIMIT_OPERATIONS", limit)
                result = compile(path, Options(targets=("h200",), precision="fp16", stop_after="emit"))
            assert result.context.ranges.measured and result.sources is not None
            emitted[path].append(result.sources)
    for first, again, alone in emitted.values():
        assert first == again == alone
    assert len(list((tmp_path / "cache").rglob("*.ranges.json"))) == 2
