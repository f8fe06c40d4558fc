"""Compilers: where they are looked for, and what was found.

Order: a flag, the environment, PATH, pip packages (``nvidia-cuda-nvcc``, ``cmake``, ``ninja``), the usual folders.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from aitc.errors import AitcError, Diagnostic, Exit


@dataclass(frozen=True, slots=True)
class Tool:
    """A program: its path, the version it reports, how it was found, and for CUDA and ROCm the root of its toolkit."""

    name: str
    path: str
    version: str
    origin: str  # flag, environment NAME, PATH, pip, or a folder
    root: str = ""


@dataclass(frozen=True, slots=True)
class Toolchain:
    """All that builds for one API. ``identity`` changes whenever any of the compilers does (it is part of every cache key)."""

    api: str
    cxx: Tool
    cmake: Tool
    ninja: Tool
    device: Tool | None = None  # nvcc or hipcc

    @property
    def identity(self) -> str:
        parts = [f"{t.name} {t.version}" for t in (self.cxx, self.device) if t is not None]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _run(*command: str) -> str:
    """Both streams of a command; empty if it cannot be run or fails."""
    try:
        environment = {**os.environ, "HIP_PLATFORM": "amd", "LC_ALL": "C"}  # hipcc speaks for nvcc where it finds one
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr if done.returncode == 0 else ""


def _candidates(
    name: str, flag: str | None, variables: tuple[tuple[str, str], ...], folders: tuple[str, ...], pip: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    """(path, origin) in the order of preference."""
    if flag:
        yield flag, "flag"
        return
    for variable, below in variables:
        value = os.environ.get(variable)
        if value:
            yield os.path.join(value, below) if below else _program(value), f"environment {variable}"
    on_path = shutil.which(name)
    if on_path:
        yield on_path, "PATH"
    beside = Path(sys.executable).parent / name  # a virtual environment that is not activated
    yield str(beside), "pip"
    for package in pip:
        try:
            files = metadata.distribution(package).files or []
        except metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name == name and "bin" in file.parts:
                yield str(file.locate()), "pip"
    for folder in folders:
        yield os.path.join(folder, name), folder


LAUNCHERS = ("ccache", "sccache", "distcc")


def _program(value: str) -> str:
    """The compiler in the value of a variable such as CXX, which may hold a launcher before it and flags behind it."""
    words = [w for w in value.split() if os.path.basename(w) not in LAUNCHERS]
    return shutil.which(value) or (shutil.which(words[0]) if words else None) or value


def _find(
    name: str,
    flag: str | None,
    variables: tuple[tuple[str, str], ...] = (),
    folders: tuple[str, ...] = (),
    pip: tuple[str, ...] = (),
) -> Tool | None:
    for path, origin in _candidates(name, flag, variables, folders, pip):
        if not (os.path.isfile(path) and os.access(path, os.X_OK)):
            continue
        version = _version(_run(path, "--version"))
        if version:
            return Tool(name, path, version, origin)
    return None


def _version(text: str) -> str:
    """The line that says the version, short: "13.0.88", "g++ 12.2.0"."""
    for pattern in (r"\bV(\d+(?:\.\d+)+)", r"HIP version: *([\w.\-]+)", r"\b(\d+(?:\.\d+)+)"):
        match = re.search(pattern, text)
        if match:
            return match.group(1)
    return ""


def find_cxx(flag: str | None = None) -> Tool | None:
    """The host compiler: gcc 9 or newer, or clang."""
    for name in ("g++", "clang++", "c++"):
        tool = _find(name, flag, (("CXX", ""),))
        if tool:
            text = _run(tool.path, "--version").splitlines()
            return Tool(Path(tool.path).name, tool.path, text[0] if text else tool.version, tool.origin)
    return None


def find_nvcc(flag: str | None = None) -> Tool | None:
    """nvcc and the root of its toolkit (which a wrapper script hides, so nvcc itself is asked)."""
    tool = _find(
        "nvcc",
        flag,
        (("AITC_NVCC", ""), ("CUDA_HOME", "bin/nvcc"), ("CUDA_PATH", "bin/nvcc")),
        ("/usr/local/cuda/bin", "/opt/cuda/bin"),
        ("nvidia-cuda-nvcc", "nvidia-cuda-nvcc-cu12"),
    )
    if tool is None:
        return None
    here = re.search(r"^#\$ _HERE_=(.*)$", _run(tool.path, "--dryrun", "-x", "cu", "/dev/null"), re.MULTILINE)
    root = Path(here.group(1)).parent if here else Path(tool.path).resolve().parent.parent
    return Tool(tool.name, tool.path, tool.version, tool.origin, str(root))


HIP_LLVM = {"gfx90a": 13, "gfx942": 17}
"""The first LLVM whose clang compiles for an architecture of AMD's."""
HIP_BITCODE = ("/opt/rocm/amdgcn/bitcode", "/usr/lib/x86_64-linux-gnu/amdgcn/bitcode")
"""Where ROCm's device library is, and Debian's."""


def find_hipcc(flag: str | None = None, arches: Iterable[str] = ()) -> Tool | None:
    """hipcc, or a clang that compiles HIP, and the root of ROCm: the first that compiles for all of ``arches``, else the first.

    A clang from LLVM itself does with ROCm's (or Debian's) headers and device library what a newer hipcc would.
    """
    first: Tool | None = None
    for tool in _hip_compilers(flag):
        if not lacking(tool, arches):
            return tool
        first = first or tool
    return first


def lacking(tool: Tool, arches: Iterable[str]) -> tuple[str, ...]:
    """Those of ``arches`` that an AMD compiler is too old for, as far as its version tells."""
    llvm = re.search(r"clang (\d+)", tool.version)
    return tuple(a for a in arches if llvm and int(llvm.group(1)) < HIP_LLVM.get(a, 0))


def _hip_compilers(flag: str | None) -> Iterator[Tool]:
    """Every AMD compiler that runs, in the order of preference. Versions end in that of their clang: ``5.2.3 (clang 15)``."""
    variables = (("AITC_HIPCC", ""), ("ROCM_PATH", "bin/hipcc"), ("HIP_PATH", "bin/hipcc"))
    places = list(_candidates("hipcc", flag, variables, ("/opt/rocm/bin",), ()))
    roots = [os.path.join(os.environ.get(v) or "/opt/rocm", "amdgcn/bitcode") for v in ("ROCM_PATH", "HIP_PATH")]
    if not flag and any(os.path.isdir(folder) for folder in (*roots, *HIP_BITCODE)):
        names = ("amdclang++", *(f"clang++-{n}" for n in range(30, 12, -1)), "clang++")
        places += [(path, "PATH") for path in map(shutil.which, names) if path]
    for path, origin in dict.fromkeys(places):
        if not (os.path.isfile(path) and os.access(path, os.X_OK)):
            continue
        text = _run(path, "--version")
        clang, version = re.search(r"clang version (\d+)", text), _version(text)
        if version:
            version += f" (clang {clang.group(1)})" if clang else ""
            name = "clang++" if "clang" in os.path.basename(path) else "hipcc"
            yield Tool(name, path, version, origin, str(Path(path).resolve().parent.parent))


def find_cmake(flag: str | None = None) -> Tool | None:
    return _find("cmake", flag, (("AITC_CMAKE", ""),), pip=("cmake",))


def find_ninja(flag: str | None = None) -> Tool | None:
    return _find("ninja", flag, (("AITC_NINJA", ""),), pip=("ninja",))


def found_tools() -> list[tuple[str, Tool | None, str]]:
    """What ``aitc list toolchains`` shows: (name, tool or None, what it is for)."""
    return [
        ("c++", find_cxx(), "host code, and cpu kernels"),
        ("cmake", find_cmake(), "every build"),
        ("ninja", find_ninja(), "every build"),
        ("nvcc", find_nvcc(), "CUDA kernels: t4, a100, h100, h200, b200 ..."),
        *((f"hip {arch}", _able(find_hipcc(None, (arch,)), arch), f"HIP kernels: {users}") for arch, users in HIP_USERS),
    ]


HIP_USERS = (("gfx90a", "mi210, mi250, mi250x"), ("gfx942", "mi300a, mi300x, mi325x"))


def _able(tool: Tool | None, arch: str) -> Tool | None:
    return None if tool is None or lacking(tool, (arch,)) else tool


NEWER_CLANG = (
    "install ROCm 6 or newer, or a newer clang beside Debian's hipcc (apt-get install clang-19 lld-19 clang-tools-19);"
    " AITC_HIPCC or --hipcc names one"
)


def find_toolchain(
    api: str,
    arches: Iterable[str] = (),
    *,
    nvcc: str | None = None,
    hipcc: str | None = None,
    cxx: str | None = None,
) -> Toolchain:
    """The toolchain for ``api`` (cpu, cuda, hip) that compiles for ``arches``.

    Raises AitcError (TOOLCHAIN) that names all that is missing and how to get it.
    """
    tools = {"c++ compiler": find_cxx(cxx), "cmake": find_cmake(), "ninja": find_ninja()}
    helps = {
        "c++ compiler": "install g++ (apt-get install g++), or name one in CXX",
        "cmake": "pip install cmake",
        "ninja": "pip install ninja",
        "nvcc": "pip install aitc[cuda], or set CUDA_HOME, or give --nvcc PATH",
        "hipcc": "install hipcc (apt-get install hipcc libamdhip64-dev rocm-device-libs, or ROCm), or set ROCM_PATH, or give --hipcc PATH",
    }
    device: Tool | None = None
    if api == "cuda":
        device = tools["nvcc"] = find_nvcc(nvcc)
    elif api == "hip":
        device = tools["hipcc"] = find_hipcc(hipcc, arches)
    orders = {"c++ compiler": "CXX", "cmake": "AITC_CMAKE", "ninja": "AITC_NINJA", "nvcc": "AITC_NVCC"}
    ignored = []
    for name, tool in tools.items():
        variable, found_by = orders.get(name, ""), tool.origin if tool is not None else ""
        if variable and os.environ.get(variable) and found_by not in ("flag", f"environment {variable}"):
            message = f"{variable}={os.environ[variable]} is no {name} that runs"
            ignored.append(Diagnostic("B01", message, stage="build", help=f"unset {variable}, or name another"))
    if ignored:
        raise AitcError(ignored, Exit.TOOLCHAIN)
    missing = [name for name, tool in tools.items() if tool is None]
    if missing:
        raise AitcError(
            [
                Diagnostic("B01", f"no {name} was found, which target API {api} needs", stage="build", help=helps[name])
                for name in missing
            ],
            Exit.TOOLCHAIN,
        )
    old = lacking(device, arches) if api == "hip" and device is not None else ()
    if old and device is not None:
        message = f"{device.path} {device.version} does not know {', '.join(old)}"
        raise AitcError(Diagnostic("B05", message, stage="build", help=NEWER_CLANG), Exit.TOOLCHAIN)
    c, m, n = tools["c++ compiler"], tools["cmake"], tools["ninja"]
    assert c is not None and m is not None and n is not None
    return Toolchain(api, c, m, n, device)


def emulator_toolchain(api: str) -> Toolchain:
    """A toolchain whose nvcc or hipcc compiles kernels for the CPU emulator. Raises AitcError (TOOLCHAIN) without a source checkout."""
    root = Path(__file__).resolve().parents[2] / "tests" / "emulator" / "toolkit"
    if not root.is_dir():
        where = "it comes with a checkout of the sources, not with the installed package"
        raise AitcError(Diagnostic("B01", "there is no emulator", stage="build", help=where), Exit.TOOLCHAIN)
    return find_toolchain(api, nvcc=str(root / "bin" / "nvcc"), hipcc=str(root / "bin" / "hipcc"))
