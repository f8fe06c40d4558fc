"""Whatever is wrong with what a user gives: a clear error with its exit code, nothing half-written, no traceback."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper as nh
import pytest

from aitc.errors import Exit
from tests.cli.support import Aitc, environment, small_model

Maker = Callable[[Path], None]


def saved(change: Callable[[onnx.ModelProto], None]) -> Maker:
    def make(path: Path) -> None:
        model = small_model()
        change(model)
        onnx.save(model, path)

    return make


def raw(data: bytes) -> Maker:
    return lambda path: path.write_bytes(data) and None


def truncated(path: Path) -> None:
    data = small_model().SerializeToString()
    path.write_bytes(data[: len(data) * 2 // 3])


def cycle(model: onnx.ModelProto) -> None:
    model.graph.node[0].input[0] = "s"


def dangling(model: onnx.ModelProto) -> None:
    model.graph.node[1].input[1] = "nobody"


def twice(model: onnx.ModelProto) -> None:
    model.graph.node[2].output[0] = "s"


def newest_opset_and_more(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 999


def unknown_ops(model: onnx.ModelProto) -> None:
    model.graph.node[0].op_type = "Frobnicate"
    model.graph.node[2].op_type = "Relu"
    model.graph.node[2].domain = "com.example"
    model.opset_import.append(oh.make_opsetid("com.example", 1))


def bad_types(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].CopyFrom(nh.from_array(np.ones((5, 3), np.float32), "w"))


def bad_attribute(model: onnx.ModelProto) -> None:
    model.graph.node[2].attribute.append(oh.make_attribute("slope", 0.5))


def missing_data(path: Path) -> None:
    model = small_model()
    onnx.save(
        model, path, save_as_external_data=True, all_tensors_to_one_file=True, location="weights.bin", size_threshold=0
    )
    (path.parent / "weights.bin").unlink()


def short_data(path: Path) -> None:
    missing_data(path)
    (path.parent / "weights.bin").write_bytes(b"1234")


def escaping_data(path: Path) -> None:
    model = small_model()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../../../etc/passwd")
    path.write_bytes(model.SerializeToString())


CASES: dict[str, tuple[Maker, Exit, str, str]] = {
    # name: (how the file is made, exit code, error code, words of the message)
    "empty": (raw(b""), Exit.MODEL, "I02", "empty"),
    "text": (raw(b"this is no model\n" * 20), Exit.MODEL, "I02", "not an ONNX"),
    "git lfs pointer": (
        raw(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n"),
        Exit.MODEL,
        "I02",
        "not an ONNX",
    ),
    "truncated": (truncated, Exit.MODEL, "I02", "truncated"),
    "cycle": (saved(cycle), Exit.MODEL, "I03", "cycle"),
    "dangling": (saved(dangling), Exit.MODEL, "I03", "nobody"),
    "made twice": (saved(twice), Exit.MODEL, "I03", "twice"),
    "opset": (saved(newest_opset_and_more), Exit.UNSUPPORTED, "I07", "999"),
    "unknown ops": (saved(unknown_ops), Exit.UNSUPPORTED, "I06", "Frobnicate"),
    "shapes": (saved(bad_types), Exit.MODEL, "I04", "product"),
    "attribute": (saved(bad_attribute), Exit.MODEL, "I04", "slope"),
    "missing data": (missing_data, Exit.MODEL, "I08", "weights.bin"),
    "short data": (short_data, Exit.MODEL, "I08", "weights.bin"),
    "escaping data": (escaping_data, Exit.MODEL, "I08", "passwd"),
    "no file": (lambda path: None, Exit.IO, "I01", "cannot read"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_models(aitc: Aitc, tmp_path: Path, case: str) -> None:
    make, exit_code, code, words = CASES[case]
    model, out = tmp_path / "bad.onnx", tmp_path / "made" / "out"
    make(model)
    before = set(tmp_path.rglob("*"))
    done = aitc("compile", model, "-t", "cpu", "-o", out)
    assert done.code == exit_code, done.err
    assert f"error[{code}]" in done.err
    assert words in done.err
    assert done.out == ""
    assert not out.exists()
    left = {
        p for p in tmp_path.rglob("*") if p.parent.name != "tmp" or not p.name.startswith(".")
    }  # dot files there are onnxruntime's
    assert left - before <= {out.parent, tmp_path / "tmp"}


@pytest.mark.parametrize("case", ["truncated", "unknown ops", "no file"])
def test_json_has_the_problems(aitc: Aitc, tmp_path: Path, case: str) -> None:
    make, exit_code, code, _ = CASES[case]
    make(tmp_path / "bad.onnx")
    for verb in ("compile", "check", "show"):
        done = aitc(verb, "bad.onnx", "-t", "cpu", "--json")
        assert done.code == exit_code
        answer = json.loads(done.out)
        errors = answer["models"][0]["errors"] if verb == "check" else answer["errors"]
        assert answer["exit"] == exit_code and answer["ok"] is False
        assert errors[0]["code"] == code and errors[0]["message"]


def test_all_unknown_operators_are_listed_at_once(aitc: Aitc, tmp_path: Path) -> None:
    saved(unknown_ops)(tmp_path / "m.onnx")
    done = aitc("check", "m.onnx", "-t", "cpu")
    assert "Frobnicate" in done.err and "com.example" in done.err
    assert done.err.count("error[I06]") == 2
    assert "no, 2 problems" in done.out


def test_unwritable_output(aitc: Aitc, small: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    done = aitc("compile", small, "-t", "cpu", "-o", tmp_path / "file")
    assert done.code == Exit.IO and "error[B04]" in done.err
    assert (tmp_path / "file").read_text() == "mine"
    done = aitc("compile", small, "-t", "cpu", "-o", tmp_path / "file" / "below")
    assert done.code == Exit.IO and "error[B04]" in done.err


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_folder_without_permission(aitc: Aitc, small: Path, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    assert aitc("compile", small, "-t", "cpu", "-o", locked / "out").code == Exit.IO


def test_the_users_files_are_never_replaced(aitc: Aitc, small: Path, tmp_path: Path) -> None:
    """A C++ project as output, a folder of dumps that is none, a model as report: all refused before anything is built."""
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "src" / "main.cpp").write_text("int main() {}")
    (project / "07-emit").write_text("mine")
    before = sorted(project.rglob("*"))
    for more, named in ((["-o", "."], "src/"), (["--dump", "."], "07-emit")):
        done = aitc("compile", small, "-t", "cpu", "--no-verify", *more, cwd=project)
        assert done.code == Exit.IO and named in done.err and "cmake" not in done.err.lower()
    assert sorted(project.rglob("*")) == before


def test_no_compiler(aitc: Aitc, small: Path, tmp_path: Path) -> None:
    empty = tmp_path / "bin"
    empty.mkdir()
    done = aitc("compile", small, "-t", "cpu", "-o", "out", env={"PATH": str(empty), "CXX": ""})
    assert done.code == Exit.TOOLCHAIN
    assert "error[B01]" in done.err and "install g++" in done.err
    assert not (tmp_path / "out").exists()


def test_compiler_that_fails(aitc: Aitc, small: Path, tmp_path: Path) -> None:
    fake = tmp_path / "cxx"
    fake.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "fake 1.0" && exit 0\necho "fatal error: no" >&2\nexit 1\n'
    )
    fake.chmod(0o755)
    done = aitc("compile", small, "-t", "cpu", "-o", "out", env={"CXX": str(fake)})
    assert done.code == Exit.TOOLCHAIN
    assert "error[B0" in done.err
    assert not (tmp_path / "out").exists()


def test_no_space(small: Path, tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk: the dump is what hits it."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (256, 256))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    command = [
        sys.executable,
        "-B",
        "-m",
        "aitc_cli",
        "compile",
        str(small),
        "-t",
        "cpu",
        "--dump",
        "d",
        "--stop-after",
        "import",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, preexec_fn=limit
    )
    assert done.returncode == Exit.IO
    assert "error[O02]" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compile"], "MODEL"),
        (["compile", "small.onnx", "--dim", "batch"], "batch"),
        (["compile", "small.onnx", "--dim", "batch=0..x"], "batch=0..x"),
        (["compile", "small.onnx", "--dim", "batch=8..2"], "batch=8..2"),
        (["compile", "small.onnx", "--dim", "bath=8"], "batch"),
        (["compile", "small.onnx", "--input", "z=1,4"], "x"),
        (["compile", "small.onnx", "--input", "x=1,5"], "x"),
        (["compile", "small.onnx", "--input", "x"], "SIZE"),
        (["compile", "small.onnx", "--value", "x"], "NAME=NUMBER"),
        (["compile", "small.onnx", "--value", "x=1,two"], "NAME=NUMBER"),
        (["compile", "small.onnx", "--value", "z=1"], "its inputs: x"),
        (["show", "small.onnx", "--value", "x=1,2,3"], "3 elements"),
        (["compile", "small.onnx", "--target", "h900"], "h200"),
        (["compile", "small.onnx", "--target", "cpu", "--target", "h200"], "API"),
        (["compile", "small.onnx", "--precision", "fp7"], "fp16"),
        (["compile", "small.onnx", "--jobs", "0"], "jobs"),
        (["compile", "small.onnx", "--require-verify", "--no-verify"], "exclude"),
        (["frob"], "frob"),
        (["list", "things"], "targets"),
        (["explain", "Q99"], "B01"),
        (["show", "small.onnx", "--stage", "emit", "--file", "nope.cpp"], "nope.cpp"),
    ],
)
def test_wrong_arguments(aitc: Aitc, small: Path, arguments: list[str], words: str) -> None:
    done = aitc(*arguments, env={"AITC_TARGET": "cpu"})
    assert done.code == Exit.USAGE, done.err
    assert "error[" in done.err and words in done.err
    assert done.out == ""


@pytest.mark.parametrize("jobs", ["zero", "0", "-1", "1.5"])
def test_wrong_settings(aitc: Aitc, small: Path, jobs: str) -> None:
    done = aitc("compile", small, "-t", "cpu", env={"AITC_JOBS": jobs})
    assert done.code == Exit.USAGE and "AITC_JOBS" in done.err


def test_outputs_that_are_none(aitc: Aitc, small: Path, tmp_path: Path) -> None:
    for arguments in (
        ["verify", small, "nowhere"],
        ["bench", "nowhere"],
        ["verify", small, tmp_path],
        ["bench", tmp_path],
    ):
        done = aitc(*arguments)
        assert done.code == Exit.IO and "error[O03]" in done.err


def test_a_defect_asks_for_a_report(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from aitc_cli import main

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr("aitc.pipeline.compile", broken)
    assert main.main(["check", "x.onnx"]) == Exit.INTERNAL
    err = capsys.readouterr().err
    assert "error[X01]" in err and "boom" in err and "report" in err and "Traceback" not in err
    assert main.main(["check", "x.onnx", "-v"]) == Exit.INTERNAL
    assert "Traceback" in capsys.readouterr().err


def test_out_of_memory_and_disk(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from aitc_cli import main

    for error, words in (
        (MemoryError(), "out of memory"),
        (OSError(28, "No space left on device", "/x"), "free some space"),
    ):

        def broken(*_: object, error: BaseException = error, **__: object) -> None:
            raise error

        monkeypatch.setattr("aitc.pipeline.compile", broken)
        assert main.main(["check", "x.onnx"]) == Exit.IO
        assert words in capsys.readouterr().err
