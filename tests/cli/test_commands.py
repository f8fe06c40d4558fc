"""The commands on models that compile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper as nh
import onnx.parser
import pytest
from product import isa_of_tests

from aitc.errors import Exit
from tests.cli.support import Aitc, environment, small_model

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with small.onnx and its binary in out/; answer.json is what --json printed, dump/ what --dump wrote."""
    folder = tmp_path_factory.mktemp("built")
    onnx.save(small_model(), folder / "small.onnx")
    flags = ["-t", "cpu", "--json", "--dump", "dump", "-o", "out", "--dim", "batch=1..9"]
    command = [sys.executable, "-m", "aitc_cli", "compile", "small.onnx", *flags]
    done = subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (folder / "answer.json").write_text(done.stdout)
    return folder


def test_json_of_compile(built: Path) -> None:
    answer = json.loads((built / "answer.json").read_text())
    report = json.loads((built / "out" / "small.json").read_text())
    assert answer["ok"] is True and answer["exit"] == 0
    assert {k: answer[k] for k in report} == report
    assert report["targets"] == ["cpu"] and report["api"] == "cpu"
    assert [(p["name"], p["dtype"], p["shape"]) for p in report["inputs"]] == [("x", "f32", ["batch", 4])]
    assert [(d["model_name"], d["lo"], d["hi"]) for d in report["dims"]] == [("batch", 1, 9)]
    assert report["verification"]["status"] == "passed" and report["verification"]["runs"] == 2
    assert report["verification"]["oracle"].startswith("onnxruntime")
    assert list(report["seconds"]) == [
        "import",
        "simplify",
        "fuse",
        "layout",
        "schedule",
        "plan",
        "emit",
        "build",
        "verify",
    ]
    nodes = " ".join(n for launch in report["launches"] for n in launch["nodes"])
    assert all(name in nodes for name in ("product", "sum", "clamp"))
    assert report["files"]["libsmall.so"] == (built / "out" / "libsmall.so").stat().st_size


def test_dump_has_every_stage(built: Path) -> None:
    names = {p.name for p in (built / "dump").iterdir()}
    wanted = {
        "01-import.txt",
        "02-simplify.txt",
        "03-fuse.txt",
        "03-fuse.rules.txt",
        "04-layout.txt",
        "05-schedule.txt",
        "06-plan.json",
    }
    wanted |= {"07-emit", "08-build.log", "09-verify.json"}
    assert wanted <= names
    assert (built / "dump" / "07-emit" / "model.cpp").read_text() == (built / "out" / "src" / "model.cpp").read_text()


def test_dumped_graphs_parse_back(built: Path) -> None:
    from aitc import registry
    from aitc.ir.text import from_text, to_text

    registry.load("aitc.ops")
    for stage in ("01-import", "02-simplify", "03-fuse", "04-layout"):
        text = (built / "dump" / f"{stage}.txt").read_text()
        assert to_text(from_text(text)) == text


def test_no_absolute_path_and_nothing_of_the_moment_in_the_sources(built: Path) -> None:
    for path in (built / "out" / "src").rglob("*"):
        if path.is_file() and path.suffix != ".bin":
            assert str(built) not in path.read_text(errors="replace"), path


def test_verify(aitc: Aitc, built: Path) -> None:
    done = aitc("verify", "small.onnx", "out", "--runs", "2", cwd=built)
    assert done.code == 0 and done.out.count("passed") == 2
    np.save(built / "x=1.npy", np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4))
    answer = json.loads(aitc("verify", "small.onnx", "out", "--feed", "x=x=1.npy", "--json", cwd=built).out)
    assert answer["runs"][0]["outputs"][0]["shape"] == [3, 3]
    answer = json.loads(aitc("verify", "small.onnx", "out", "--dim", "batch=7", "--json", cwd=built).out)
    assert answer["runs"][0]["dims"] == {"batch": 7}


@pytest.mark.slow
def test_values_are_constants_of_the_binary(aitc: Aitc, tmp_path: Path) -> None:
    text = """<ir_version: 9, opset_import: ["": 21]> g (float[n] x, int64 sr) => (float[n] y) <int64 fast = {16000}> { p = Equal(sr, fast)
        y = If(p) <then_branch = t () => (float[n] a) { a = Neg(x) }, else_branch = e () => (float[n] b) { b = Exp(x) }> }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "rates.onnx")
    flags = ["--value", "sr=16000", "-t", "cpu", "--require-verify", "--json"]
    answer = json.loads(aitc("compile", "rates.onnx", *flags, cwd=tmp_path).out)
    assert answer["verification"]["status"] == "passed" and [p["name"] for p in answer["inputs"]] == ["x"]
    assert answer["values"] == [{"name": "sr", "index": 1, "dtype": "i64", "shape": [], "value": 16000}]
    assert aitc("verify", "rates.onnx", "out", cwd=tmp_path).code == 0
    report = tmp_path / "out" / "rates.json"
    report.write_text(report.read_text().replace('"value": 16000', '"value": 8000'))  # now the reference takes the other branch
    assert aitc("verify", "rates.onnx", "out", cwd=tmp_path).code == Exit.VERIFY


def test_data_of_a_user(aitc: Aitc, built: Path, tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    want = np.maximum(x @ np.full((4, 3), 2, np.float32) + 1, 0)
    place = tmp_path / "data" / "test_data_set_0"
    place.mkdir(parents=True)
    for name, array in (("input_0", x), ("output_0", want)):
        (place / f"{name}.pb").write_bytes(nh.from_array(array).SerializeToString())
    done = aitc("verify", "small.onnx", "out", "--data", tmp_path / "data", cwd=built)
    assert done.code == 0 and f"against {place}'s outputs" in done.out, done.err
    (place / "output_0.pb").write_bytes(nh.from_array(want + 0.1).SerializeToString())
    assert aitc("verify", "small.onnx", "out", "--data", place, cwd=built).code == Exit.VERIFY
    own = ("verify", "small.onnx", "out", "--data", place, "--atol", "0.11")
    assert "passed" in (done := aitc(*own, cwd=built)).out and "tolerance asked for: rtol 0, atol 0.11" in done.out
    run = json.loads(aitc(*own[:-1], "0.09", "--json", cwd=built).out)["runs"][0]
    assert (run["status"], run["rtol"], run["atol"]) == ("failed", 0.0, 0.09)
    done = aitc(*own[:-1], "nan", cwd=built)
    assert done.code == Exit.USAGE and "--atol nan: it is a finite number" in done.err
    np.save(tmp_path / "x.npy", x)
    done = aitc("bench", "out", "--iters", "2", "--input", f"x={tmp_path / 'x.npy'}", "--json", cwd=built)
    assert json.loads(done.out)["inputs"][0]["shape"] == [3, 4], done.err
    done = aitc("compile", "small.onnx", "-t", "cpu", "--input", f"X={tmp_path / 'x.npy'}", cwd=built)
    assert done.code == Exit.USAGE and "--input X: the model has no such input" in done.err and "its inputs: x" in done.err


def test_verify_against_another_model_is_a_mismatch(aitc: Aitc, built: Path, tmp_path: Path) -> None:
    onnx.save(small_model(weight=2.001), tmp_path / "other.onnx")
    done = aitc("verify", tmp_path / "other.onnx", "out", cwd=built)
    assert done.code == Exit.VERIFY
    assert "error[V01]" in done.err and "worst at" in done.err
    answer = json.loads(aitc("verify", tmp_path / "other.onnx", "out", "--json", cwd=built).out)
    assert answer["ok"] is False and answer["exit"] == Exit.VERIFY


@pytest.mark.parametrize(
    "array", [np.ones((3, 5), np.float32), np.ones((3, 4), np.float64), np.ones((10, 4), np.float32)]
)
def test_verify_with_an_input_that_does_not_fit(aitc: Aitc, built: Path, tmp_path: Path, array: np.ndarray) -> None:
    np.save(tmp_path / "bad.npy", array)
    done = aitc("verify", "small.onnx", "out", "--input", f"x={tmp_path / 'bad.npy'}", cwd=built)
    assert done.code == Exit.USAGE and "error[C02]: input 'x'" in done.err


def test_bench(aitc: Aitc, built: Path) -> None:
    answer = json.loads(aitc("bench", "out", "--iters", "20", "--dim", "batch=3", "--json", cwd=built).out)
    assert answer["latency_ms"]["p50"] > 0 and answer["inputs"][0]["shape"] == [3, 4]
    done = aitc("bench", "out", "--iters", "5", "--profile", "--trace", "trace.json", cwd=built)
    assert done.code == 0 and "p50" in done.out and "TFLOP/s" in done.out and '"clamp" (Relu)' in done.out
    events = json.loads((built / "trace.json").read_text())["traceEvents"]
    assert [e["ph"] for e in events] == ["M", "M", "X"] and len(events[2]["args"]["ONNX nodes"]) == 3
    answer = json.loads(aitc("bench", "out", "--iters", "5", "--profile", "--json", cwd=built).out)
    assert answer["profile"]["launches"][0]["kernel"] == "gemm_cpu" and "timeline" not in answer
    assert aitc("bench", "out", "--iters", "1", "--trace", "none/trace.json", cwd=built).code == Exit.IO
    assert aitc("bench", "out", "--dim", "nope=3", cwd=built).code == Exit.USAGE
    assert aitc("bench", "out", "--dim", "batch=77", cwd=built).code == Exit.USAGE


def test_report(aitc: Aitc, built: Path, tmp_path: Path) -> None:
    (tmp_path / "again").symlink_to(built / "out")
    file = tmp_path / "report.json"
    done = aitc("bench", built / "out", tmp_path / "again", "--report", file, "--iters", "3", "--dim", "batch=3")
    assert done.code == 0 and done.out.count("verification passed, max rel ") == 2
    text = file.read_text()
    report = json.loads(text)
    first, second = report["models"]
    assert first["verification"]["status"] == "passed" and first["verification"]["outputs"][0]["ok"] is True
    assert first["model"] == second["model"] == json.loads((built / "out" / "small.json").read_text())["digests"]["model"]
    assert first["launches"][0]["kernel"] == "gemm_cpu" and first["latency_ms"]["p50"] > 0 and not first["emulated"]
    assert report["toolchain"]["c++"] and report["aitc"]
    private = ("small", "product", "clamp", "batch", str(tmp_path), str(built))
    assert not [word for word in private if word in text], "nothing of the model, and no path"
    assert aitc("bench", built / "out", built / "out").code == Exit.USAGE
    assert aitc("bench", built / "out", "--report", file, "--profile").code == Exit.USAGE
    assert aitc("bench", built / "out", "--report", tmp_path / "none" / "x.json", "--iters", "1").code == Exit.IO


def test_why(aitc: Aitc, small: Path) -> None:
    said = aitc("show", small, "-t", "cpu", "--stage", "schedule", "--why").out
    assert "3  a launch for each node" in said and "1  vertical" in said
    answer = json.loads(aitc("show", small, "-t", "cpu", "--stage", "schedule", "--why", "--json").out)
    assert [row["launches"] for row in answer["fusion"]["launches"]] == [3, 3, 3, 1, 1, 1]
    assert aitc("show", small, "--stage", "fuse", "--why").code == Exit.USAGE


def test_tune(aitc: Aitc, built: Path, tmp_path: Path) -> None:
    cache = {"AITC_CACHE_DIR": str(tmp_path / "cache"), "AITC_ISA": isa_of_tests()}
    flags = ("-t", "cpu", "--dim", "batch=2", "--seconds", "0", "--candidates", "2")
    done = aitc("tune", built / "small.onnx", *flags, "--json", env=cache)
    answer = json.loads(done.out)
    assert done.code == 0 and answer["problems"][0]["launches"] == 1 and len(answer["problems"][0]["us"]) == 2
    table = tmp_path / "cache" / "tuning" / "cpu.json"
    assert answer["table"] == str(table) and table.is_file()
    assert "measured before" in aitc("tune", built / "small.onnx", *flags, env=cache).out
    assert "by table" in aitc("show", built / "small.onnx", *flags[:4], "--stage", "schedule", env=cache).out
    table.write_text(table.read_text().replace(answer["problems"][0]["best"], "other", 1))
    assert "other is gone" in aitc("show", built / "small.onnx", *flags[:4], "--stage", "schedule", env=cache).out
    table.write_text("{}")
    done = aitc("compile", built / "small.onnx", "-t", "cpu", "--stop-after", "schedule", env=cache)
    assert done.code == Exit.USAGE and "cpu.json:1 is no entry of a tuning table" in done.err
    assert aitc("tune", built / "small.onnx", "-t", "mi250", "--promote", "--emulate").code == Exit.USAGE


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ("import", "MatMul"),
        ("simplify", "MatMul"),
        ("fuse", "MatMul"),
        ("layout", "MatMul"),
        ("schedule", "product"),
        ("plan", '"launches"'),
        ("emit", "model.cpp"),
    ],
)
def test_show(aitc: Aitc, small: Path, stage: str, words: str) -> None:
    done = aitc("show", small, "--stage", stage, "-t", "cpu")
    assert done.code == 0 and words in done.out and done.err == ""
    counts = json.loads(aitc("show", small, "--stage", stage, "-t", "cpu", "--json").out)
    assert counts["ops"]["MatMul"] == 1


def test_check(aitc: Aitc, small: Path) -> None:
    done = aitc("check", small, small, "-t", "cpu")
    assert done.code == 0 and done.out.count("yes, ") == 2
    answer = json.loads(aitc("check", small, "-t", "cpu", "--json").out)
    assert answer["models"][0]["targets"] == ["cpu"]


def test_check_says_what_node_tests_say_of_the_operators(aitc: Aitc, small: Path, tmp_path: Path) -> None:
    done = aitc("check", small, "-t", "mi250")
    assert "operators have passed ONNX's node tests on gfx90a" in done.out
    assert "have not been run for sm75" in aitc("check", small, "-t", "t4").out
    (of,) = json.loads(aitc("check", small, "-t", "mi250", "--json").out)["models"]
    (product,) = [e for e in of["operators"] if e["operator"] == "MatMul"]
    assert product["nodes"] == ["product"] and product["good"] == product["tests"] > 0 and product["gaps"] == []
    text = """<ir_version: 9, opset_import: ["": 20]> main (uint8[N] x) => (uint8[a,b,c] y) { y = ImageDecoder(x) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "image.onnx")
    done = aitc("check", "image.onnx", "-t", "mi250")
    assert done.code == Exit.UNSUPPORTED and "known gap: ImageDecoder (y): files of JPEG" in done.out
    (of,) = json.loads(aitc("check", "image.onnx", "--json").out)["models"]
    assert of["operators"][0]["gaps"] == ["files of JPEG, PNG and other formats"]


@pytest.mark.parametrize(
    "what", ["targets", "ops", "core", "kernels", "rules", "passes", "stages", "toolchains", "settings"]
)
def test_list(aitc: Aitc, what: str) -> None:
    rows = json.loads(aitc("list", what, "--json").out)
    done = aitc("list", what)
    assert done.code == 0 and len(rows) > 1
    assert len(done.out.splitlines()) == len(rows) + 1


def test_explain(aitc: Aitc) -> None:
    assert "external data" in aitc("explain", "i08").out
    assert json.loads(aitc("explain", "V01", "--json").out)["V01"]["title"]
    assert len(aitc("explain").out.splitlines()) > 20


def test_help_of_every_command(aitc: Aitc) -> None:
    top = aitc("--help")
    assert top.code == 0 and "130" in top.out
    for verb in ("compile", "verify", "bench", "tune", "show", "check", "list", "explain"):
        assert verb in top.out
        done = aitc(verb, "--help")
        assert done.code == 0 and "Usage: aitc " + verb in done.out


def test_without_a_command(aitc: Aitc) -> None:
    done = aitc()
    assert done.code == 2 and done.out == ""
    assert done.err.startswith("Usage: aitc") and "Exit codes:" in done.err and "error[" not in done.err


def test_names_that_the_terminal_cannot_show(aitc: Aitc, tmp_path: Path) -> None:
    model = small_model()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "größe"
    model.graph.node[0].name = "日本"
    onnx.save(model, tmp_path / "m.onnx")
    done = aitc("show", "m.onnx", "-t", "cpu", env={"PYTHONIOENCODING": "ascii"})
    assert done.code == 0, done.err
    assert "gr\\xf6\\xdfe" in done.out


def test_stop_after_leaves_the_output_alone(aitc: Aitc, small: Path, tmp_path: Path) -> None:
    done = aitc("compile", small, "-t", "cpu", "--stop-after", "emit", "--dump", "d")
    assert done.code == 0 and "stopped after emit" in done.out
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "d" / "07-emit" / "CMakeLists.txt").is_file()
    assert not (tmp_path / "d" / "08-build.log").exists()


def test_dry_run(aitc: Aitc, small: Path, tmp_path: Path) -> None:
    done = aitc("compile", small, "-t", "cpu", "--dry-run", "--fp16")
    assert done.code == 0 and "stopped after emit" in done.out and "precision fp16: 2 launches, 2 kernel files" in done.out
    assert not (tmp_path / "out").exists()
    assert "stopped after fuse" in aitc("compile", small, "-t", "cpu", "--dry-run", "--stop-after", "fuse").out


def test_a_dump_builds_the_same_library_by_hand(aitc: Aitc, small: Path, tmp_path: Path) -> None:
    done = aitc("compile", small, "-t", "cpu", "--dump", "d", "-o", "o")
    assert done.code == 0, done.err
    assert (tmp_path / "d" / "07-emit" / "weights.bin").read_bytes() == (tmp_path / "o" / "src" / "weights.bin").read_bytes()


def test_a_profile_names_onnx_nodes(aitc: Aitc, small: Path, tmp_path: Path) -> None:
    assert aitc("compile", small, "-t", "cpu", "-o", "o").code == 0
    said = subprocess.run([tmp_path / "o" / "small", "--profile", "--iters", "2"], capture_output=True, text=True, check=True).stdout
    assert "MatMul product, Add sum, Relu clamp" in said
    said = subprocess.run([tmp_path / "o" / "small", "--profile", "--json", "--iters", "2"], capture_output=True, text=True, check=True).stdout
    assert json.loads(said)["launches"][0]["nodes"] == "MatMul product, Add sum, Relu clamp"
    done = aitc("bench", "o", "--iters", "2", "--report", "r.json", "--trace", "t.json")
    assert done.code == 0 and (tmp_path / "r.json").is_file(), done.err
    assert any(e.get("ph") == "X" for e in json.loads((tmp_path / "t.json").read_text())["traceEvents"])


def test_a_name_that_cannot_be(aitc: Aitc, small: Path) -> None:
    done = aitc("compile", small, "-t", "cpu", "--name", "m")
    assert done.code == Exit.USAGE and "libm.so" in done.err and "--name m_model" in done.err


@pytest.mark.parametrize(
    ("words", "offered"),
    [("aitc co", "compile"), ("aitc compile --prec", "--precision"), ("aitc compile -t h2", "h200"), ("aitc compile --precision f", "fp16")],
)
def test_shell_completion(aitc: Aitc, words: str, offered: str) -> None:
    last = str(len(words.split()) - 1)
    for shell in ("bash", "zsh"):
        done = aitc(env={"_AITC_COMPLETE": f"{shell}_complete", "COMP_WORDS": words, "COMP_CWORD": last})
        assert done.code == 0 and offered in done.out, done.err
    assert "complete" in aitc(env={"_AITC_COMPLETE": "bash_source"}).out


def test_check_lists_no_gap_that_the_model_has_not(aitc: Aitc, tmp_path: Path) -> None:
    text = """<ir_version: 9, opset_import: ["": 20]> main (float[N] x) => (float[N] y) { y = Cast<to=1>(x) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "cast.onnx")
    done = aitc("check", "cast.onnx", "-t", "cpu")
    assert done.code == 0 and "known gap" not in done.out  # strings are one, and there are none here


def test_without_verification(aitc: Aitc, small: Path) -> None:
    done = aitc("compile", small, "-t", "cpu", "--no-verify")
    assert done.code == 0 and "verification not run: not asked for" in done.out


def no_reference(path: Path) -> Path:
    """A model that no oracle runs: onnxruntime refuses its IR version, onnx.reference does not know com.microsoft."""
    model = small_model()
    model.ir_version = 99
    model.graph.node[2].op_type, model.graph.node[2].domain = "FastGelu", "com.microsoft"
    model.opset_import.append(oh.make_opsetid("com.microsoft", 1))
    onnx.save(model, path)
    return path


def test_require_verify(aitc: Aitc, tmp_path: Path) -> None:
    model = no_reference(tmp_path / "m.onnx")
    done = aitc("compile", model, "-t", "cpu", "-o", "o")
    assert done.code == 0 and "verification not run: no reference" in done.out
    *_, first, _why, way_out = done.err.splitlines()
    assert first.startswith("warning[V03]: m") and " is NOT VERIFIED: no reference" in first and "--data FOLDER" in way_out
    answer = json.loads(aitc("compile", model, "-t", "cpu", "-o", "o", "--json").out)
    assert answer["ok"] and answer["verified"] is False and answer["warnings"][0]["code"] == "V03"
    assert json.loads(next((tmp_path / "o").glob("*.json")).read_text())["verified"] is False
    assert "V03" not in aitc("compile", model, "-t", "cpu", "-o", "o", "--no-verify").err
    done = aitc("compile", model, "-t", "cpu", "-o", "p", "--require-verify")
    assert done.code == Exit.VERIFY and "error[V02]" in done.err
    assert not (tmp_path / "p").exists()


def test_outputs_that_usual_values_leave_constant(aitc: Aitc, tmp_path: Path) -> None:
    """Each says something in one range of values only."""
    text = """<ir_version: 10, opset_import: ["" : 18]> m (float[16] x, float[16] s) => (float[16] large, float[16] small, float[16] positive)
        <float c = {30}, float t = {0.02}> {
        d = Sub(x, c) large = Relu(d)
        g = Abs(s) r = ReduceMax<keepdims=1>(g) l = Less(r, t) f = Cast<to=1>(l) small = Mul(f, s)
        n = ReduceMin<keepdims=1>(x) q = Relu(n) positive = Mul(q, x) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    done = aitc("compile", tmp_path / "m.onnx", "-t", "cpu", "-o", tmp_path / "out", "--rtol", "1e-5", "--atol", "1e-6", "--require-verify")
    assert done.code == 0 and "WARNING" not in done.out, done.out + done.err
    report = json.loads(next((tmp_path / "out").glob("*.json")).read_text())
    assert report["verification"]["vacuous"] == {} and report["verification"]["runs"] == 4
    assert (report["verification"]["rtol"], report["verification"]["atol"]) == (1e-5, 1e-6)


def test_weights_in_a_file(aitc: Aitc, tmp_path: Path) -> None:
    onnx.save(small_model(), tmp_path / "small.onnx")
    done = aitc("compile", "small.onnx", "-t", "cpu", "--weights", "file", "-o", "out")
    assert done.code == 0 and "verification passed" in done.out, done.err
    assert (tmp_path / "out" / "small.weights").stat().st_size > 0


def test_what_else_is_in_the_output_folder_stays(aitc: Aitc, small: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    assert aitc("compile", small, "-t", "cpu").code == 0
    assert (tmp_path / "out" / "mine.txt").read_text() == "mine"
    assert (tmp_path / "out" / "libsmall.so").is_file()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("seconds", [0.3, 0.7, 1.5, 3.0])
def test_interruption_leaves_nothing(tmp_path: Path, how: signal.Signals, seconds: float) -> None:
    layers = [
        oh.make_node("Conv", [f"v{i}", "w"], [f"v{i + 1}"], pads=[1 + i % 2] * 4, dilations=[1 + i % 2] * 2)
        for i in range(8)
    ]
    graph = oh.make_graph(
        layers,
        "g",
        [oh.make_tensor_value_info("v0", 1, [1, 8, 32, 32])],
        [oh.make_tensor_value_info("v8", 1, None)],
        [nh.from_array(np.ones((8, 8, 3, 3), np.float32), "w")],
    )
    onnx.save(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    command = [sys.executable, "-m", "aitc_cli", "compile", "m.onnx", "-t", "cpu", "-o", "sub/out"]
    env = environment(tmp_path, AITC_CACHE_DIR=str(tmp_path / "cache"))
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    time.sleep(seconds)
    os.killpg(process.pid, how)  # as a terminal does
    _, err = process.communicate(timeout=60)
    if process.returncode == 0:
        pytest.skip("it was done before the signal came")
    assert process.returncode == Exit.INTERRUPTED, err
    assert "error[C01]: interrupted" in err and "Traceback" not in err
    assert not (tmp_path / "sub" / "out").exists()
    assert {p.name for p in tmp_path.iterdir()} <= {"m.onnx", "sub", "cache", "tmp"}
    assert not list((tmp_path / "sub").glob("*"))
    assert not [p for p in (tmp_path / "tmp").iterdir() if not p.name.startswith(".")]  # dot files there are onnxruntime's

def test_a_reference_that_never_ends(aitc: Aitc, tmp_path: Path) -> None:
    """onnxruntime hears no signal inside a Loop; the time limit and SIGTERM end it all the same."""
    body = oh.make_graph(
        [oh.make_node("Add", ["c", "x"], ["d"]), oh.make_node("Identity", ["go"], ["on"])],
        "body",
        [oh.make_tensor_value_info("i", 7, []), oh.make_tensor_value_info("go", 9, []), oh.make_tensor_value_info("c", 1, [4])],
        [oh.make_tensor_value_info("on", 9, []), oh.make_tensor_value_info("d", 1, [4])],
    )
    graph = oh.make_graph(
        [oh.make_node("Loop", ["trips", "", "x"], ["y"], body=body)],
        "endless",
        *([oh.make_tensor_value_info(n, 1, [4])] for n in "xy"),
        [nh.from_array(np.array(2**62), "trips")],
    )
    onnx.save(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8), tmp_path / "endless.onnx")
    command = ("compile", "endless.onnx", "-t", "cpu", "--isa", "avx2", "-o")
    done = aitc(*command, "a", "--require-verify", "--verify-timeout", "0.2")
    assert done.code == 6 and "the reference did not finish within 0.2 s; --verify-timeout gives it more" in done.err
    assert not (tmp_path / "a").exists()
    done = aitc(*command, "out", "--no-verify")
    assert done.code == 0, done.err
    process = subprocess.Popen(
        [sys.executable, "-m", "aitc_cli", "verify", "endless.onnx", "out"],
        cwd=tmp_path, env=environment(tmp_path), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not list((tmp_path / "tmp").glob("aitc-child-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    process.terminate()
    asked = time.monotonic()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "error[C01]: interrupted" in err and time.monotonic() - asked < 20
    assert list((tmp_path / "tmp").glob("aitc*")) == []



def test_an_interrupted_tuning_keeps_what_it_measured(tmp_path: Path) -> None:
    w = nh.from_array(np.ones((1536, 1536), np.float32), "w")
    x, y = (oh.make_tensor_value_info(name, 1, [1024, 1536]) for name in "xy")
    graph = oh.make_graph([oh.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [w])
    onnx.save(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    command = [sys.executable, "-m", "aitc_cli", "tune", "m.onnx", "-t", "cpu", "--seconds", "120", "--table", "t.json", "-v"]
    env = environment(tmp_path, AITC_CACHE_DIR=str(tmp_path / "cache"), AITC_ISA=isa_of_tests())
    process = subprocess.Popen(
        command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    passes = 0
    for line in process.stderr:
        passes += line.startswith("measure: ")
        if passes == 3:  # as many candidates are known
            break
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    if process.returncode == 0:
        pytest.skip("it was done before the signal came")
    assert process.returncode == Exit.INTERRUPTED, err
    assert "error[C01]: interrupted; 1 problems are kept in t.json" in err and "Traceback" not in err, err
    assert "kept in t.json" in out and '"tried"' in (tmp_path / "t.json").read_text()
    assert not [p for p in (tmp_path / "tmp").iterdir() if not p.name.startswith(".")]
