"""Runs CMake and Ninja on a generated project: cached objects, bounded parallel jobs, progress, and errors led back to ONNX nodes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from aitc.build import cache
from aitc.build.memory import available_bytes
from aitc.build.output import io_error
from aitc.build.ownership import SUMS, sums_text
from aitc.build.resources import Resources, from_image, from_ptxas
from aitc.build.scratch import scratch
from aitc.build.toolchain import Toolchain
from aitc.build.weights import append_weights, write_weights
from aitc.emit.project import SUFFIX
from aitc.errors import AitcError, Diagnostic, Exit, Loc
from aitc.schedule.plan.plan import Plan
from aitc.targets.machine import processor

Progress = Callable[[int, int, str], None]  # objects done, objects in all, what was finished last
JOB_BYTES = {"cpu": 500 << 20, "cuda": 700 << 20, "hip": 700 << 20}  # memory that one compiler may take


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """``jobs`` 0: what cores and memory allow. ``weights_file``: weights beside the library. ``isas``: of cpu kernels, () for all."""

    jobs: int = 0
    weights_file: bool = False
    isas: tuple[str, ...] = ()
    keep_build: Path | None = None  # a folder for CMake's build tree, for those who want to look into it
    use_cache: bool = True
    device_flags: tuple[str, ...] = ()  # more of them for nvcc or hipcc


@dataclass(frozen=True, slots=True)
class BuildResult:
    """Paths inside the output folder; ``compiled`` and ``cached`` count objects; ``log`` is what the compilers said.

    ``resources``: of each GPU kernel, once for every architecture.
    """

    library: Path
    executable: Path
    header: Path
    sources: Path
    compiled: int
    cached: int
    seconds: float
    log: str
    resources: tuple[Resources, ...] = ()


def default_jobs(api: str) -> int:
    """Cores this process may use, and no more jobs than the free memory holds."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, available_bytes() // JOB_BYTES[api]))


def write_project(plan: Plan, files: Mapping[str, str], folder: Path, weights: bool = True) -> None:
    """Writes the generated sources with their digests, and the weights that the project appends to the library."""
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    (folder / SUMS).write_text(sums_text(files), encoding="utf-8")
    if weights and plan.weights_bytes:
        write_weights(plan, folder / "weights.bin")


def build(
    plan: Plan,
    files: Mapping[str, str],
    out: Path,
    toolchain: Toolchain,
    options: BuildOptions = BuildOptions(),
    progress: Progress | None = None,
) -> BuildResult:
    """Builds ``files`` into ``out`` (an existing folder, usually a staged one): src/, the library, the executable and the header.

    Raises AitcError: TOOLCHAIN when a compiler fails, naming the ONNX nodes; IO when something cannot be written.
    """
    began = time.monotonic()
    sources = out / "src"
    try:
        write_project(plan, files, sources, weights=not options.weights_file)
        if options.weights_file and plan.weights_bytes:
            write_weights(plan, out / f"{plan.name}.weights")
        library, program = out / f"lib{plan.name}.so", out / plan.name
        folder = cache.cache_folder() if options.use_cache else ""
        key = _project_key(files, toolchain, options)
        compiled = cached = 0
        log = ""
        figures = cache.entry_path(folder, key, ".json")
        resources: tuple[Resources, ...] = ()
        if (
            folder
            and os.path.isfile(figures)
            and cache.fetch(cache.entry_path(folder, key, ".so"), str(library))
            and cache.fetch(cache.entry_path(folder, key, ".exe"), str(program))
        ):
            cached = _object_count(plan, options)
            resources = tuple(Resources(**r) for r in json.loads(Path(figures).read_text(encoding="utf-8")))
        else:
            _require_plain_tools(toolchain)
            with scratch("build", plain_place()) as temporary:
                tree = options.keep_build or temporary
                project = sources
                if not is_plain(sources):
                    project = temporary.parent / "project"
                    shutil.copytree(sources, project, ignore=shutil.ignore_patterns("weights.bin"))
                log = _configure_and_make(plan, project, tree, toolchain, options, folder, progress)
                resources = resources_of(plan, tree, log)
                (tree / "resources.json").write_text(json.dumps([asdict(r) for r in resources]), encoding="utf-8")
                if folder:
                    cache.keep(str(tree / "resources.json"), figures)
                compiled, cached = _counts(tree) if folder else (_object_count(plan, options), 0)
                shutil.copyfile(tree / f"lib{plan.name}.so", library)
                shutil.copyfile(tree / plan.name, program)
            if folder:
                cache.keep(str(library), cache.entry_path(folder, key, ".so"))
                cache.keep(str(program), cache.entry_path(folder, key, ".exe"))
                cache.prune(folder, cache.limit_bytes())
        for path in (library, program):
            path.chmod(0o755)
        if not options.weights_file and plan.weights_bytes:
            append_weights(library, sources / "weights.bin")
        header = out / f"{plan.name}.h"
        header.write_text(files[header.name], encoding="utf-8")
    except OSError as e:
        raise io_error(e, Path(e.filename2 or e.filename or out), "write") from e  # of a copy, the second is written
    return BuildResult(library, program, header, sources, compiled, cached, time.monotonic() - began, log, resources)


def is_plain(path: Path) -> bool:
    """Whether CMake, Ninja, the shell and compilers all take ``path`` for one word. Of others, a list, a variable or a flag is made."""
    return re.fullmatch(r"[\w./+=@~%-]*", os.path.abspath(path), re.ASCII) is not None


def plain_place() -> Path | None:
    """Where to build: None for the folder for temporary files, else one whose path ``is_plain``. Raises AitcError (IO)."""
    given = tempfile.gettempdir()
    if is_plain(Path(given)):
        return None
    for other in ("/tmp", "/var/tmp", "/dev/shm"):
        if os.path.isdir(other) and os.access(other, os.W_OK | os.X_OK):
            return Path(other)
    message = f"the folder for temporary files has a name that build tools do not take: {given!r}"
    raise AitcError(Diagnostic("B04", message, stage="build", help="set TMPDIR to another"), Exit.IO)


def _require_plain_tools(toolchain: Toolchain) -> None:
    tools = [t for t in (toolchain.cxx, toolchain.device, toolchain.cmake, toolchain.ninja) if t is not None]
    odd = [t.path for t in tools if set(t.path) & set(';"$\\\n\r`')]
    if odd:
        message = f"CMake does not take the path of a tool: {', '.join(map(repr, odd))}"
        raise AitcError(Diagnostic("B03", message, stage="build", help="call it by a path without these characters"), Exit.TOOLCHAIN)


def resources_of(plan: Plan, tree: Path, log: str) -> tuple[Resources, ...]:
    """The figures of the kernels that were built in ``tree``, in the order of the plan; none on cpu and for the emulator."""
    if plan.api == "hip":
        found = [r for path in (tree / "images").glob("*.hsaco") for r in from_image(path.read_bytes())]
    else:
        found = from_ptxas(log) if plan.api == "cuda" else []
    place = {kernel.entry: i for i, kernel in enumerate(plan.kernels)}
    return tuple(sorted((r for r in found if r.entry in place), key=lambda r: (place[r.entry], r.arch)))


def _project_key(files: Mapping[str, str], toolchain: Toolchain, options: BuildOptions) -> str:
    figures = ",".join(f.name for f in fields(Resources))  # are kept, too
    digest = hashlib.sha256(f"{toolchain.identity} {toolchain.cmake.version} {options.isas} {options.device_flags} {figures}".encode())
    if "native" in options.isas or platform.machine() not in ("x86_64", "AMD64"):
        digest.update(processor().encode())
    for path, text in sorted(files.items()):
        digest.update(f"{path}\0{len(text)}\0{text}".encode())
    return digest.hexdigest()


def _object_count(plan: Plan, options: BuildOptions) -> int:
    return len(plan.kernels) * (max(1, len(options.isas) or 2) if plan.api == "cpu" else 1) + 2


def _counts(tree: Path) -> tuple[int, int]:
    try:
        marks = (tree / "cache.log").read_bytes()
    except OSError:
        return 0, 0
    return marks.count(b"-"), marks.count(b"+")


def configure_arguments(toolchain: Toolchain, options: BuildOptions, launcher: bool) -> list[str]:
    """-D arguments for the generated project. The weights are appended by ``build``, so that the cached library has none."""
    arguments = [
        "-DAITC_WEIGHTS:FILEPATH=none",  # with its type, or CMake puts the current folder before it
        f"-DCMAKE_CXX_COMPILER={toolchain.cxx.path}",
        f"-DCMAKE_MAKE_PROGRAM={toolchain.ninja.path}",
    ]
    if launcher and is_plain(Path(sys.executable)) and is_plain(Path(cache.__file__)):
        arguments.append(f"-DAITC_LAUNCHER={sys.executable};-I;-S;{cache.__file__}")
    if toolchain.api == "cuda" and toolchain.device:
        arguments += [f"-DAITC_NVCC={toolchain.device.path}", f"-DAITC_CUDA_ROOT={toolchain.device.root}"]
    if toolchain.api == "hip" and toolchain.device:
        arguments.append(f"-DAITC_HIPCC={toolchain.device.path}")
        static = Path(toolchain.device.root) / "lib" / "libamdhip64.a"  # the emulator's
        if static.is_file():
            arguments += [f"-DHIP_INCLUDE={toolchain.device.root}/include", f"-DAMDHIP64={static}"]
    if options.device_flags:
        arguments.append(f"-DAITC_DEVICE_FLAGS={';'.join(options.device_flags)}")
    if options.isas:
        arguments.append(f"-DAITC_ISAS={';'.join(options.isas)}")
    return arguments


# What would change the build behind its back: a rpath from conda's LDFLAGS, say, and no key of the cache would know.
FOREIGN = re.compile(
    r"(C|CXX|CPP|LD|AS|AR|NINJA|MAKE)FLAGS$|CMAKE_(?!\w+_PATH$)|NVCC_(PREPEND|APPEND)_FLAGS$|HIPCC_(COMPILE|LINK)_FLAGS_APPEND$"
)


def _configure_and_make(
    plan: Plan,
    sources: Path,
    tree: Path,
    toolchain: Toolchain,
    options: BuildOptions,
    folder: str,
    progress: Progress | None,
) -> str:
    tree.mkdir(parents=True, exist_ok=True)
    environment = {
        "PATH": os.defpath,
        **{name: value for name, value in os.environ.items() if not FOREIGN.match(name)},
        "NINJA_STATUS": "[%f/%t] ",
        **({} if is_plain(Path(tempfile.gettempdir())) else {"TMPDIR": str(tree)}),
        "AITC_CACHE_DIR": folder,
        "AITC_CACHE_TOOLCHAIN": toolchain.identity,
        "AITC_CACHE_PROCESSOR": hashlib.sha256(processor().encode()).hexdigest(),
        "AITC_CACHE_LOG": str(tree / "cache.log"),
    }
    configure = [
        toolchain.cmake.path,
        "-S",
        str(sources),
        "-B",
        str(tree),
        "-G",
        "Ninja",
        *configure_arguments(toolchain, options, bool(folder)),
    ]
    log: list[str] = []
    if _stream(configure, environment, log, None) != 0:
        if full := full_disk(log, tree):
            raise full
        raise AitcError(
            Diagnostic(
                "B03",
                "CMake cannot configure the generated project",
                stage="build",
                detail=tuple(_tail(log)),
                help="is the compiler complete? See `aitc list toolchains`",
            ),
            Exit.TOOLCHAIN,
        )
    jobs = options.jobs or default_jobs(plan.api)

    def line(text: str) -> None:
        match = re.match(r"\[(\d+)/(\d+)\] (.*)", text)
        if match and progress:
            progress(int(match.group(1)), int(match.group(2)), match.group(3))

    start = len(log)
    if _stream([toolchain.ninja.path, "-C", str(tree), "-j", str(jobs)], environment, log, line) != 0:
        raise full_disk(log[start:], tree) or build_error(plan, log[start:])
    return "\n".join(log)


def _stream(
    command: list[str], environment: Mapping[str, str], log: list[str], each: Callable[[str], None] | None
) -> int:
    """Runs a command in a process group of its own, which dies with this call (Ctrl-C, errors). Returns the exit status."""
    with subprocess.Popen(
        command,
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        try:
            for text in process.stdout:
                log.append(text.rstrip("\n"))
                if each:
                    each(log[-1])
            return process.wait()
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            raise


def _tail(log: list[str], count: int = 20) -> list[str]:
    return [text for text in log if text.strip()][-count:]


FULL_BYTES = 16 << 20


def full_disk(log: list[str], tree: Path) -> AitcError | None:
    """The error for a build that failed for want of space. Compilers do not always say so: g++ may end without a word."""
    full = [p for p in (tree, Path(tempfile.gettempdir())) if shutil.disk_usage(p).free < FULL_BYTES]
    if not full and not any("No space left on device" in text for text in log):
        return None
    message = f"the disk of {full[0]} is full" if full else "the disk is full"
    help_ = "TMPDIR and AITC_CACHE_DIR say where objects go"
    return AitcError(Diagnostic("B04", message, stage="build", detail=tuple(_tail(log, 4)), help=help_), Exit.IO)


def build_error(plan: Plan, log: list[str]) -> AitcError:
    """The failure in ninja's output, led back to the ONNX nodes that the failing file was made from."""
    text = "\n".join(log)
    unknown = re.search(
        r"Unsupported gpu architecture '?(\w+)|invalid target ID '(\w+)'|unsupported HIP gpu architecture: (\w+)", text
    )
    if unknown:
        arch, names = next(filter(None, unknown.groups())), ", ".join(plan.targets)
        message = f"this compiler does not know {arch}, the architecture of {names}"
        help_ = "install a newer one: `aitc list toolchains` shows which was found, and `aitc list targets` the others"
        return AitcError(Diagnostic("B05", message, stage="build", help=help_), Exit.TOOLCHAIN)
    help_ = "this is a defect of aitc: please report it with the output of --dump"
    if re.search(r"\bKilled\b|out of memory|[Cc]annot allocate memory|virtual memory exhausted", text):
        help_ = "the compiler ran out of memory: --jobs 1 runs one at a time"
    failed = _failed_kernels(text, plan.api)
    locs: dict[str, tuple[Loc, ...]] = {k.entry: k.locs for k in plan.kernels}
    errors = [t for t in log if re.search(r"\berror\b|undefined reference|fatal\b", t)] or _tail(log, 8)
    if not failed:
        return AitcError(
            Diagnostic("B02", "the compiler failed", stage="build", detail=tuple(errors[:12]), help=help_),
            Exit.TOOLCHAIN,
        )
    found = []
    for entry in failed:
        mine = tuple([t for t in errors if entry in t] or errors)[:6]
        found.append(
            Diagnostic("B02", f"the compiler failed on kernel {entry}", locs.get(entry, ()), "build", mine, help_)
        )
    return AitcError(found, Exit.TOOLCHAIN)


def _failed_kernels(text: str, api: str) -> list[str]:
    """Entries of the kernels whose compile failed, in order: ninja names the output, the next lines the command."""
    entries: dict[str, None] = {}
    for block in re.split(r"^FAILED: ", text, flags=re.MULTILINE)[1:]:
        match = re.search(rf"kernels/(\w+)\.{SUFFIX[api]}\b", block)
        if match:
            entries[match.group(1)] = None
    return list(entries)
