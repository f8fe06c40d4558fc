"""Building generated projects: results, caching, progress, and failures led back to nodes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hand_plans import broken, scale_then_shift
from product import isa_of_tests

from aitc.build.cmake import BuildOptions, build, build_error, default_jobs, full_disk
from aitc.build.output import staged
from aitc.build.toolchain import Toolchain, find_toolchain
from aitc.emit.project import emit
from aitc.errors import AitcError, Exit

ONE_SET = BuildOptions(isas=(isa_of_tests(),))


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    return find_toolchain("cpu")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AITC_CACHE_DIR", str(tmp_path / "cache"))


def test_a_plan_becomes_a_library_a_program_a_header_and_sources(tmp_path: Path, toolchain: Toolchain) -> None:
    plan = scale_then_shift()
    seen: list[tuple[int, int, str]] = []
    with staged(tmp_path / "out") as stage:
        result = build(plan, emit(plan), stage, toolchain, ONE_SET, progress=lambda *a: seen.append(a))
    assert sorted(e.name for e in (tmp_path / "out").iterdir()) == ["hand", "hand.h", "libhand.so", "src"]
    assert (result.compiled, result.cached) == (6, 0)
    assert [s[0] for s in seen] == list(range(1, seen[-1][1] + 1))
    assert not list((tmp_path / "out").rglob("*.tmp"))


def test_the_second_time_nothing_is_compiled(tmp_path: Path, toolchain: Toolchain) -> None:
    plan = scale_then_shift()
    for out in ("a", "b"):
        (tmp_path / out).mkdir()
        result = build(plan, emit(plan), tmp_path / out, toolchain, ONE_SET)
    assert result.compiled == 0 and result.seconds < 10
    for name in ("libhand.so", "hand"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_another_model_shares_equal_kernels(tmp_path: Path, toolchain: Toolchain) -> None:
    for name in ("one", "two"):
        plan = scale_then_shift(name)
        (tmp_path / name).mkdir()
        result = build(plan, emit(plan), tmp_path / name, toolchain, ONE_SET)
    assert (result.compiled, result.cached) == (3, 3)  # the model's own files, and the kernels


def test_by_hand_the_same_library(tmp_path: Path, toolchain: Toolchain) -> None:
    plan = scale_then_shift()
    (tmp_path / "out").mkdir()
    result = build(plan, emit(plan), tmp_path / "out", toolchain, ONE_SET)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    tree = tmp_path / "by" / "hand"
    subprocess.run(
        [toolchain.cmake.path, "-S", result.sources, "-B", tree, "-G", "Ninja", f"-DAITC_ISAS={isa_of_tests()}"],
        check=True,
        capture_output=True,
        env=environment,
    )
    subprocess.run([toolchain.cmake.path, "--build", tree], check=True, capture_output=True, env=environment)
    assert (tree / "libhand.so").read_bytes() == result.library.read_bytes()
    assert (tree / "hand").read_bytes() == result.executable.read_bytes()


def test_a_kernel_that_does_not_compile_names_its_node(tmp_path: Path, toolchain: Toolchain) -> None:
    plan = broken(scale_then_shift())
    with pytest.raises(AitcError) as e, staged(tmp_path / "out") as stage:
        build(plan, emit(plan), stage, toolchain, ONE_SET)
    assert e.value.exit_code is Exit.TOOLCHAIN
    text = str(e.value)
    assert (
        "the compiler failed on kernel add_1" in text
        and 'hand.onnx: node #1 "shift" (Add), stage build' in text
        and "this_is_no_function" in text
    )
    assert not (tmp_path / "out").exists()


def test_several_failures_are_all_named() -> None:
    log = [
        "[1/9] Building CXX object x.o",
        "FAILED: CMakeFiles/kernels_avx2.dir/kernels/add_1.cpp.o",
        "g++ -c /tmp/src/kernels/add_1.cpp",
        "/tmp/src/kernels/add_1.cpp:7:3: error: first",
        "FAILED: images/multiply_0.fatbin",
        "nvcc /tmp/src/kernels/multiply_0.cpp",
        "/tmp/src/kernels/multiply_0.cpp(9): error: second",
    ]
    found = build_error(scale_then_shift(), log).diagnostics
    assert [d.message for d in found] == [
        "the compiler failed on kernel add_1",
        "the compiler failed on kernel multiply_0",
    ]
    assert "first" in found[0].detail[0] and "second" in found[1].detail[0]


def test_a_failure_of_no_kernel_and_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = build_error(scale_then_shift(), ["FAILED: libhand.so", "ld: undefined reference to `f'"])
    assert link.exit_code is Exit.TOOLCHAIN and "undefined reference" in str(link)
    silent = ["FAILED: x.o", "g++ -c x.cpp", "ninja: build stopped"]
    assert full_disk(silent, tmp_path) is None
    for log in (["cc1plus: fatal error: error writing to /tmp/x.s: No space left on device"], silent):
        full = full_disk(log, tmp_path)
        assert full is not None and full.exit_code is Exit.IO and "is full" in str(full)
        monkeypatch.setattr("aitc.build.cmake.FULL_BYTES", 1 << 62)


def test_flags_of_the_environment_stay_out(tmp_path: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch) -> None:
    """conda's LDFLAGS, say, would put a rpath into the library, and the cache would keep it for everyone."""
    flags = {"CXXFLAGS": "-fno-such-flag", "LDFLAGS": "-Wl,--no-such-flag", "CMAKE_GENERATOR": "none", "NINJAFLAGS": "-x"}
    for name, value in {**flags, "CMAKE_TOOLCHAIN_FILE": "/none"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PATH")
    plan = scale_then_shift()
    assert build(plan, emit(plan), tmp_path, toolchain, ONE_SET).library.is_file()


@pytest.mark.parametrize(
    ("line", "text", "code"),
    [
        (
            "nvcc fatal   : Unsupported gpu architecture 'compute_120'",
            "does not know compute_120, the architecture of cpu",
            "B05",
        ),
        ("clang-15: error: invalid target ID 'gfx942'; format is a processor name", "does not know gfx942", "B05"),
        ("g++: fatal error: Killed signal terminated program cc1plus", "--jobs 1 runs one at a time", "B02"),
    ],
)
def test_failures_with_a_way_out(line: str, text: str, code: str) -> None:
    found = build_error(scale_then_shift(), ["FAILED: x", "g++ -c kernels/add_1.cpp", line])
    assert text in str(found) and found.diagnostics[0].code == code and found.exit_code is Exit.TOOLCHAIN


def test_a_compiler_that_is_none(tmp_path: Path, toolchain: Toolchain) -> None:
    from dataclasses import replace

    (tmp_path / "out").mkdir()
    bad = replace(toolchain, cxx=replace(toolchain.cxx, path="/bin/false"))
    with pytest.raises(AitcError, match="CMake cannot configure") as e:
        build(scale_then_shift(), emit(scale_then_shift()), tmp_path / "out", bad, ONE_SET)
    assert e.value.exit_code is Exit.TOOLCHAIN


def test_weights_beside(tmp_path: Path, toolchain: Toolchain) -> None:
    plan = scale_then_shift()
    build(plan, emit(plan), tmp_path, toolchain, BuildOptions(isas=(isa_of_tests(),), weights_file=True))
    assert (tmp_path / "hand.weights").stat().st_size == 80 + 128
    assert (
        b"AITCWGT1" not in (tmp_path / "libhand.so").read_bytes()[-128:]
        and not (tmp_path / "src" / "weights.bin").exists()
    )


def test_jobs_are_bounded_by_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aitc.build.cmake.available_bytes", lambda: 800 << 20)
    assert default_jobs("cuda") == 1
    monkeypatch.setattr("aitc.build.cmake.available_bytes", lambda: 0)
    assert default_jobs("cpu") == 1
    monkeypatch.setattr("aitc.build.cmake.available_bytes", lambda: 1 << 50)
    assert default_jobs("cpu") == len(os.sched_getaffinity(0))


SCRIPT = """
import sys
from pathlib import Path
from aitc.build.cmake import BuildOptions, build
from aitc.build.output import staged
from aitc.build.toolchain import find_toolchain
from aitc.emit.project import emit
from hand_plans import scale_then_shift
plan = scale_then_shift()
with staged(Path(sys.argv[1])) as stage:
    build(plan, emit(plan), stage, find_toolchain("cpu"), BuildOptions(isas=("native",)), progress=lambda *a: print(a, flush=True))
"""


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    work = tmp_path / "work"
    work.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(work / "out")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    timer = threading.Timer(60, process.kill)
    timer.start()
    assert process.stdout is not None and process.stdout.readline().startswith("(1,")  # in the middle of it
    process.send_signal(signal.SIGINT)
    process.communicate()
    timer.cancel()
    assert process.returncode != 0
    assert list(work.iterdir()) == [] and not list(tmp_path.glob("aitc-build-*"))


ODD = ["a;b\"c$HOME${x} d#e'f,g", os.fsdecode(b"-a\\b\nc\xffd")]


def test_paths_that_build_tools_read_as_something_else(
    tmp_path: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Output, folder for temporary files and cache: all with a name that CMake, make or a shell takes for more than a name."""
    plan = scale_then_shift()
    files = emit(plan)
    made = set()
    for number, name in enumerate(ODD):
        folder = tmp_path / name
        (folder / "tmp").mkdir(parents=True)
        monkeypatch.setattr("tempfile.tempdir", str(folder / "tmp"))
        monkeypatch.setenv("AITC_CACHE_DIR", str(folder / "cache") if name == ODD[0] else str(tmp_path / ODD[0] / "cache"))
        monkeypatch.chdir(folder)
        how = replace(ONE_SET, device_flags=(f"-D{number}",))  # so that no whole library comes out of the cache
        made.add(build(plan, files, folder, toolchain, how).library.read_bytes())
        assert list((folder / "tmp").iterdir()) == []
    assert len(made) == 1


def test_tools_whose_paths_cmake_does_not_take(tmp_path: Path, toolchain: Toolchain) -> None:
    odd = replace(toolchain, cxx=replace(toolchain.cxx, path='/opt/a;b"/g++'))
    with pytest.raises(AitcError, match="does not take the path of a tool") as e:
        build(scale_then_shift(), emit(scale_then_shift()), tmp_path, odd, replace(ONE_SET, use_cache=False))
    assert e.value.exit_code is Exit.TOOLCHAIN
