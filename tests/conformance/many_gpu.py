"""Many compiled models in one library for a GPU (see many.py): kernels in a few units for nvcc, hipcc or the emulator's stand-in of either, and the
host code in one unit beside them.

The flags are those of the generated CMake project. A unit's image is embedded once, under the name of each of its kernels.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from conformance.many import INCLUDE, cached, kernel_unit, shared_kernels

from aitc.build.toolchain import Tool, Toolchain, emulator_toolchain, find_toolchain
from aitc.build.weights import write_weights
from aitc.emit.project import IMAGE_SUFFIX, SUFFIX, architectures, emit
from aitc.emit.render import template_root
from aitc.schedule.plan.plan import Plan
from aitc.targets.target import find_target

_making_bitcode = Lock()
UNIT = 24  # kernels that one call of a compiler compiles
FAST_MATH = "#define AITC_FAST_MATH"


@dataclass(frozen=True, slots=True)
class Compilers:
    """The compilers of a target's API: the real ones, or those of the emulator."""

    target: str
    chain: Toolchain

    @classmethod
    def of(cls, target: str, emulate: bool) -> Compilers:
        """Raises AitcError (TOOLCHAIN) where a compiler is missing."""
        found = find_target(target)
        return cls(target, emulator_toolchain(found.api) if emulate else find_toolchain(found.api, (found.arch,)))

    @property
    def api(self) -> str:
        return self.chain.api

    def kernel_command(self, source: Path, image: Path) -> list[str]:
        """The call that makes an image of a file of kernels."""
        assert self.chain.device is not None
        arches = architectures(self.api, [find_target(self.target)])
        flags = ["-fatbin", "-ccbin", self.chain.cxx.path] if self.api == "cuda" else ["--genco"]
        if self.chain.device.name == "clang++":
            flags = ["-xhip", "--offload-device-only", "-D__HIP_PLATFORM_AMD__", f"--rocm-path={self.chain.device.root}"]
            flags.append(f"--rocm-device-lib-path={_bitcode(self.chain.device, find_target(self.target).arch, image.parent)}")
        include = str(template_root() / "include")
        return [self.chain.device.path, *flags, *arches, "-O3", "-std=c++17", "-I", include, "-o", str(image), str(source)]

    def host_command(self, source: Path, result: Path) -> list[str]:
        """The call that compiles the host code."""
        flags = ["-std=c++17", "-O0", "-fPIC", "-w", f"-DAITC_API_{self.api}", "-I", str(template_root() / "include")]
        if self.api == "hip":
            flags.append("-D__HIP_PLATFORM_AMD__")
        for folder in self._toolkit("include"):
            flags += ["-isystem", str(folder)]
        return [self.chain.cxx.path, *flags, "-c", str(source), "-o", str(result)]

    def link_command(self, objects: Sequence[Path], library: Path) -> list[str]:
        """The call that makes a library of host code and images."""
        folders = [f"-L{folder}" for folder in (*self._toolkit("lib64"), *self._toolkit("lib"))]
        libraries = ["-lcudart_static", "-lrt"] if self.api == "cuda" else ["-lamdhip64"]
        return [self.chain.cxx.path, "-shared", *map(str, objects), "-o", str(library), *folders, *libraries, "-pthread", "-ldl"]

    def _toolkit(self, name: str) -> list[Path]:
        """Folders of the toolkit's headers or libraries; the system's own need not be named."""
        assert self.chain.device is not None
        root = Path(self.chain.device.root)
        return [f for f in (root / name, root / "targets" / "x86_64-linux" / name) if f.is_dir() and root != Path("/usr")]


def kernel_units(texts: Sequence[tuple[str, str]], size: int = UNIT) -> list[tuple[list[str], str]]:
    """(entries, source) of a few files that hold all kernels. Fast math is a matter of the whole file."""
    units = []
    for fast in (False, True):
        mine = [(name, text) for name, text in texts if (FAST_MATH in text) == fast]
        for first in range(0, len(mine), size):
            part = mine[first : first + size]
            units.append(([name for name, _ in part], _unit(part, fast)))
    return units


def _unit(texts: Sequence[tuple[str, str]], fast: bool) -> str:
    """Entry points stand outside of the namespaces, so that the emulator's wrappers find them."""
    source = kernel_unit([(name, text.replace(FAST_MATH, "")) for name, text in texts])
    names = "".join(f"using in_{name}::{name};\n" for name, _ in texts)
    return (f"{FAST_MATH}\n" if fast else "") + source + names


def host_unit(plans: Sequence[Plan]) -> str:
    """The host code of all models, each in a namespace of its own, and a function that chooses the one to load."""
    parts = ['#include "aitc/host/device_gpu.h"', '#include "aitc/host/instance.h"']
    for plan in plans:
        files = emit(plan)
        table = re.sub(r"^#.*$", "", files["kernels.h"], flags=re.MULTILINE)
        model = INCLUDE.sub("", files["model.cpp"])
        model = "\n".join(line for line in model.split("\n") if "aitc_model_v1" not in line)
        parts.append(f"namespace of_{plan.name} {{\nusing {plan.name}_instance = aitc_instance;\n{table}\n{model}\n}}")
    models = ", ".join(f"of_{plan.name}::{plan.name}_model" for plan in plans)
    exported = 'extern "C" __attribute__((visibility("default")))'
    parts.append(f"using Getter = const aitc_model* (*)();\nconst Getter all_models[] = {{{models}}};\nint chosen = 0;")
    parts.append(f"{exported} void choose_model(int n) {{ chosen = n; }}")
    parts.append(f"{exported} const aitc_model* aitc_model_v1() {{ return all_models[chosen](); }}")
    return "\n".join(parts) + "\n"


def image_unit(units: Sequence[tuple[Sequence[str], Path]]) -> str:
    """Assembly that embeds each image once, under the names that its kernels' host code knows."""
    lines = ['.section .rodata.images,"a",%progbits']
    for entries, image in units:
        lines.append(".balign 64")
        for entry in entries:
            lines += [f".global {entry}_image", f".hidden {entry}_image", f"{entry}_image:"]
        lines += [f'.incbin "{image}"', ".byte 0"]
    return "\n".join([*lines, '.section .note.GNU-stack,"",%progbits', ""])


def _bitcode(clang: Tool, arch: str, folder: Path) -> Path:
    """ROCm's device library with the version of ``arch``, which may be newer than it: what the generated CMake project makes."""
    places = [Path(clang.root) / "amdgcn" / "bitcode", *Path("/usr/lib").glob("*/amdgcn/bitcode")]
    installed = next(p for p in places if (p / "ocml.bc").is_file())
    made = folder / "bitcode"
    number = re.fullmatch(r"gfx(\d+)([0-9a-f])([0-9a-f])", arch)
    assert number is not None
    version = f"oclc_isa_version_{arch.removeprefix('gfx')}"
    with _making_bitcode:
        if (made / f"{version}.bc").exists():
            return made
        made.mkdir(exist_ok=True)
        for part in installed.glob("*.bc"):
            shutil.copy(part, made)
        constant = 'const __attribute__((address_space(4), visibility("protected"))) unsigned __oclc_ISA_version'
        value = int(number[1]) * 1000 + int(number[2], 16) * 100 + int(number[3], 16)
        (made / f"{version}.c").write_text(f"extern {constant};\n{constant} = {value};\n")
        flags = ["-xc", "--target=amdgcn-amd-amdhsa", "-nogpulib", "-O2", "-emit-llvm", "-c"]
        call([clang.path, *flags, str(made / f"{version}.c"), "-o", str(made / f"{version}.bc")])
    return made


def compile_kernels(texts: Sequence[tuple[str, str]], folder: Path, compilers: Compilers, jobs: int = 1) -> list[tuple[list[str], Path]]:
    """(entries, image) of all units. Raises RuntimeError with what the compiler said."""
    folder.mkdir(parents=True, exist_ok=True)

    def one(numbered: tuple[int, tuple[list[str], str]]) -> tuple[list[str], Path]:
        number, (entries, text) = numbered
        source = folder / f"kernels_{number}.{SUFFIX[compilers.api]}"
        image = source.with_suffix(f".{IMAGE_SUFFIX[compilers.api]}")
        source.write_text(text, encoding="utf-8")
        call(compilers.kernel_command(source, image), compilers.chain.identity)
        return entries, image

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(one, enumerate(kernel_units(texts))))


def build_many(plans: Sequence[Plan], folder: Path, compilers: Compilers, jobs: int = 1) -> Path:
    """A library with all ``plans`` (their names differ), and the weights of each beside it as NAME.weights.

    Raises RuntimeError with what a compiler said.
    """
    folder.mkdir(parents=True, exist_ok=True)
    renamed, texts = shared_kernels(plans)
    host, images = folder / "host.cpp", folder / "images.s"
    host.write_text(host_unit(renamed), encoding="utf-8")
    with ThreadPoolExecutor(1) as beside:
        compiled = beside.submit(call, compilers.host_command(host, folder / "host.o"), compilers.chain.identity)
        units = compile_kernels(texts, folder, compilers, jobs)
        compiled.result()
    images.write_text(image_unit(units), encoding="utf-8")
    call([compilers.chain.cxx.path, "-c", str(images), "-o", str(folder / "images.o")])
    for plan in plans:
        if plan.weights_bytes:
            write_weights(plan, folder / f"{plan.name}.weights")
    library = folder / "libmany.so"
    call(compilers.link_command([folder / "host.o", folder / "images.o"], library))
    return library


def call(command: Sequence[str], toolchain: str = "") -> None:
    """Runs a compiler, through the object cache if the toolchain's identity is given. Raises RuntimeError with what it said."""
    line, environment = cached(command, toolchain) if toolchain else (command, {**os.environ})
    done = subprocess.run(line, capture_output=True, text=True, check=False, env={**environment, "HIP_PLATFORM": "amd"})
    if done.returncode:
        raise RuntimeError(f"{Path(command[0]).name}: {(done.stderr or done.stdout)[:4000]}")
