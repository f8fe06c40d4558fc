"""Stands in for nvcc and hipcc: compiles a kernel for the emulator. The "image" it writes is a shared library, which the emulated runtime
(include/emulated_runtime.h) loads from memory. `nvcc` and `hipcc` beside this file call `main`.

With CUDA_HOME (or ROCM_PATH) set to this toolkit, `aitc compile --target h200` (or mi250) builds the unchanged generated project
for the emulator.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

TOOLKIT = Path(__file__).resolve().parent.parent
EMULATOR = TOOLKIT.parent


def version() -> str:
    """A version that changes with the emulator, for caches of what was compiled."""
    digest = hashlib.sha256()
    for path in sorted([*EMULATOR.glob("*.h"), *TOOLKIT.rglob("*.h"), Path(__file__)]):
        digest.update(path.read_bytes())
    return f"13.0.{int(digest.hexdigest()[:8], 16)}"


def target_of(arguments: list[str]) -> str:
    """The newest architecture that is asked for: a kernel runs in one form only."""
    text = " ".join(arguments)
    gpus = re.findall(r"--offload-arch=gfx([0-9a-f]+)", text)
    if gpus:
        return f"-DAITC_EMULATOR_GFX=0x{gpus[-1]}"
    numbers = [int(n) for n in re.findall(r"(?:sm|compute)_(\d+)", text)]
    if not numbers:
        raise SystemExit("emulated compiler: no architecture was given")
    return f"-DAITC_EMULATOR_SM={max(numbers)}"


def vector_flags() -> list[str]:
    try:
        features = Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return []
    return ["-mavx2", "-mfma", "-mf16c"] if {"avx2", "fma", "f16c"} <= set(features) else []


def compile_kernel(arguments: list[str]) -> int:
    """Compiles the one .cu or .hip file among the arguments into -o; -I, -D and dependency files are honoured."""
    source = output = ""
    options: list[str] = []
    rest = iter(arguments)
    for a in rest:
        if a == "-o":
            output = next(rest)
        elif a in ("-MF", "-I", "-D", "-isystem"):
            options += [a, next(rest)]
        elif a == "-MD" or a.startswith(("-I", "-D")):
            options.append(a)
        elif a.endswith((".cu", ".hip")):
            source = a
    if not source or not output:
        print("emulated compiler: needs one .cu or .hip file and -o", file=sys.stderr)
        return 1
    text = Path(source).read_text()
    entries = re.findall(r"^AITC_KERNEL\((.+?)\)\s+void\s+AITC_ENTRY\((\w+)\)", text, re.M)
    if "-MD" in options:
        options += ["-MT", output]
    wrapped = f'#line 1 "{source}"\n{text}\n' + "".join(
        f"AITC_EMULATOR_ENTRY({name}, {threads})\n" for threads, name in entries
    )
    flags = [
        "-std=c++17",
        "-O1",
        "-g1",
        "-fno-strict-aliasing",
        "-shared",
        "-fPIC",
        "-fno-gnu-unique",
        "-pthread",
        "-w",
        "-fsanitize=bounds",
        "-DAITC_EMULATOR",
    ]
    command = [os.environ.get("AITC_EMULATOR_CXX", "g++"), *flags, *vector_flags(), target_of(arguments)]
    command += [
        *options,
        f"-I{Path(source).parent}",
        f"-I{EMULATOR}",
        f"-I{EMULATOR.parent}",
        "-x",
        "c++",
        "-",
        "-o",
        output,
    ]
    return subprocess.run(command, input=wrapped, text=True, check=False).returncode


def main(name: str) -> int:
    """The compiler's main program."""
    arguments = sys.argv[1:]
    if "--version" in arguments:
        print(f"HIP version: {version()}" if name == "hipcc" else f"Emulated nvcc (aitc), V{version()}")
        return 0
    if "--dryrun" in arguments:
        print(f"#$ _HERE_={TOOLKIT / 'bin'}", file=sys.stderr)
        return 0
    return compile_kernel(arguments)
