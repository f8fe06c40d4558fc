"""How a user's library is compiled: the calls that the generated CMake project makes, as CMake itself lists them. No test repeats a flag."""

from __future__ import annotations

import functools
import getpass
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hand_plans import scale_then_shift

from aitc.build.cmake import BuildOptions, configure_arguments
from aitc.build.toolchain import find_toolchain
from aitc.emit.project import emit
from aitc.targets.machine import cpu_isa

INCLUDE = Path(__file__).resolve().parents[1] / "codegen_templates" / "include"
FOLDER = Path(tempfile.gettempdir()) / f"aitc-test-product-{getpass.getuser()}"


@dataclass(frozen=True, slots=True)
class Calls:
    """Flags of the compiler, without sources, outputs and folders: of kernels of one instruction set, and of the host code."""

    kernel: tuple[str, ...]
    host: tuple[str, ...]


def isa_of_tests() -> str:
    """The instruction set of whole test libraries: AITC_TEST_ISA, else what a library with all of them takes on this machine."""
    return os.environ.get("AITC_TEST_ISA") or cpu_isa()


@functools.cache
def calls(isa: str, compiler: str = "g++", processor: str = "") -> Calls:
    """What ``aitc compile --isa`` compiles with. ``processor`` is CMake's name of another one than this machine's."""
    files = emit(scale_then_shift())
    path = shutil.which(compiler)
    assert path is not None, f"there is no {compiler}"
    about = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    key = hashlib.sha256(f"{isa} {path} {about} {processor} {files['CMakeLists.txt']}".encode()).hexdigest()[:24]
    kept = FOLDER / f"{key}.json"
    if not kept.exists():
        FOLDER.mkdir(mode=0o700, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER) as work:
            made = _configure(files, Path(work), isa, path, processor)
            partial = Path(work) / "commands.json"
            partial.write_text(json.dumps(made))
            partial.replace(kept)
    found: dict[str, list[str]] = json.loads(kept.read_text())
    return Calls(tuple(found["kernel"]), tuple(found["host"]))


def _configure(files: dict[str, str], work: Path, isa: str, path: str, processor: str) -> dict[str, list[str]]:
    sources = work / "src"
    for name, text in files.items():
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        (sources / name).write_text(text)
    chain = find_toolchain("cpu")
    arguments = configure_arguments(chain, BuildOptions(isas=(isa,)), launcher=False)
    arguments += [f"-DCMAKE_CXX_COMPILER={path}", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    if processor:
        arguments += ["-DCMAKE_SYSTEM_NAME=Linux", f"-DCMAKE_SYSTEM_PROCESSOR={processor}"]
    command = [chain.cmake.path, "-S", str(sources), "-B", str(work / "build"), "-G", "Ninja", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    commands = {
        Path(entry["file"]).relative_to(sources).as_posix(): _flags(entry["command"])
        for entry in json.loads((work / "build" / "compile_commands.json").read_text())
    }
    kernel = next(name for name in commands if name.startswith("kernels/"))
    return {"kernel": commands[kernel], "host": commands["model.cpp"]}


def _flags(command: str) -> list[str]:
    kept = []
    rest = iter(shlex.split(command)[1:])
    for word in rest:
        if word in ("-o", "-c", "-I", "-isystem"):
            next(rest, None)
        elif not word.startswith(("-I", "-ffile-prefix-map=")):
            kept.append(word)
    return kept
