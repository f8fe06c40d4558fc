"""Plan -> {path: text}: the generated CMake project. Pure: equal plans give equal bytes, with no clock and no absolute path."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aitc.emit.host import WIDTH, KernelView, LaunchView, PlaceView, PortView, SymbolView, Writer, host_parameter
from aitc.emit.render import Lines, c_string, comment, read_template_file, render, template_root
from aitc.emit.steps import StepWriter
from aitc.schedule.plan.dims import typical_sizes
from aitc.schedule.plan.plan import KernelSource, Launch, Plan
from aitc.targets.isa import X86
from aitc.targets.target import Target, find_target

SUFFIX = {"cpu": "cpp", "cuda": "cu", "hip": "hip"}
IMAGE_SUFFIX = {"cpu": "", "cuda": "fatbin", "hip": "hsaco"}
HEADERS = {
    "cpu": ("kernels.h", "aitc/host/device_cpu.h", "aitc/host/instance.h", "aitc/host/thread_pool.h"),
    "cuda": ("kernels.h", "aitc/host/device_gpu.h", "aitc/host/instance.h"),
    "hip": ("kernels.h", "aitc/host/device_gpu.h", "aitc/host/instance.h"),
}
FUNCTIONS = ("abi_version", "model", "last_error", "create", "create_with_weights", "destroy", "output_shapes", "run", "run_sized")


@dataclass(frozen=True, slots=True)
class ProjectContext:
    """What every file of the project is rendered from."""

    name: str
    api: str
    model: str
    model_literal: str
    targets: str
    digest: str
    weights_bytes: int
    arena_bytes: int
    places: tuple[PlaceView, ...]
    state_bytes: int
    input_count: int
    output_count: int
    output_rank_total: int
    headers: tuple[str, ...]
    functions: tuple[str, ...]
    isas: tuple[tuple[str, str], ...]  # of x86-64, with the flags of each
    gencode: tuple[str, ...]
    image_suffix: str
    statistics: tuple[str, ...]
    abi: str
    input_lines: tuple[str, ...]
    output_lines: tuple[str, ...]
    symbol_lines: tuple[str, ...]
    ports: tuple[PortView, ...]
    symbols: tuple[SymbolView, ...]
    kernels: tuple[KernelView, ...]
    pointers: tuple[str, ...]
    launches: tuple[LaunchView, ...]
    nodes: tuple[str, ...]  # of each launch, as string literals
    copies: tuple[str, ...]
    lanes: int = 0  # the most of a fork
    late: tuple[str, ...] = ()  # dims that are known only while the model runs
    requires: tuple[str, ...] = ()  # what has to be true of the dims before anything runs
    steps: tuple[str, ...] = ()  # the lines of run() between launches and with them, where the data decides


def emit(plan: Plan) -> dict[str, str]:
    """The project's files by path relative to its root (``src/``). The weights are not among them: see ``aitc.build.weights``."""
    context = _context(plan)
    files = {
        "CMakeLists.txt": render("project/CMakeLists.txt.j2", context),
        f"{plan.name}.h": render("project/model.h.j2", context),
        "model.cpp": render("project/model.cpp.j2", context),
        "main.cpp": render("project/main.cpp.j2", context),
        "kernels.h": render("project/kernels.h.j2", context),
        "exports.map": render("project/exports.map.j2", context),
    }
    if plan.api == "cpu":
        files["table.cpp"] = render("project/table.cpp.j2", context)
    else:
        files["images.cpp"] = render("project/images.cpp.j2", context)
    for kernel in plan.kernels:
        files[kernel_path(plan, kernel.entry)] = render(
            f"kernels/{kernel.template}.j2", kernel.context, c=kernel.context
        )
    files.update(_headers(files.values(), skip="aitc/gpu/" if plan.api == "cpu" else "aitc/cpu/"))
    return dict(sorted(files.items()))


def kernel_path(plan: Plan, entry: str) -> str:
    """Where the generated file of kernel ``entry`` lies in the project."""
    return f"kernels/{entry}.{SUFFIX[plan.api]}"


def _headers(texts: Iterable[str], skip: str) -> dict[str, str]:
    """All headers under include/aitc that ``texts`` include, directly or not, but those of the other back end (folder ``skip``)."""
    found: dict[str, str] = {}
    waiting = list(texts)
    while waiting:
        for header in re.findall(r'^\s*#\s*include\s+"(aitc/[^"]+)"', waiting.pop(), re.MULTILINE):
            path = f"include/{header}"
            if (
                path not in found
                and not header.startswith(skip)
                and template_root().joinpath(*path.split("/")).is_file()
            ):
                found[path] = read_template_file(path)
                waiting.append(found[path])
    return found


def architectures(api: str, targets: Sequence[Target]) -> tuple[str, ...]:
    """Compiler flags that name the targets' architectures. CUDA: the oldest plain one also as PTX, for newer devices."""
    arches = sorted({t.arch for t in targets}, key=lambda a: (int(re.sub(r"\D", "", a) or 0), a))
    if api == "hip":
        return tuple(f"--offload-arch={a}" for a in arches)
    if api != "cuda":
        return ()
    flags = []
    portable = next((a for a in arches if a.isdigit()), None)
    for a in arches:
        code = f"[sm_{a},compute_{a}]" if a == portable else f"sm_{a}"
        flags.append(f"-gencode=arch=compute_{a},code={code}")
    return tuple(flags)


NODES_SAID = 4  # of a launch, in a line of a profile


def nodes_of(launch: Launch) -> str:
    """The ONNX nodes that a launch stands for, as a line of a profile names them: the first few, and how many more."""
    named = dict.fromkeys(f"{loc.op_type} {loc.name}" if loc.name else f"{loc.op_type} #{loc.index}" for loc in launch.locs)
    more = f" and {len(named) - NODES_SAID} more" if len(named) > NODES_SAID else ""
    return ", ".join(list(named)[:NODES_SAID]) + more


def _context(plan: Plan) -> ProjectContext:
    writer = Writer(plan)
    steps = StepWriter(plan, writer) if plan.steps else None
    smem = {k.entry: 0 for k in plan.kernels}
    for launch in plan.launches:
        smem[launch.entry] = max(smem[launch.entry], launch.smem_bytes)
    sizes = typical_sizes(plan.dims, plan.inputs, plan.requires)
    return ProjectContext(
        name=plan.name,
        api=plan.api,
        model=comment(plan.model),
        model_literal=c_string(plan.model),
        targets=", ".join(plan.targets),
        digest=plan.weights_digest,
        weights_bytes=plan.weights_bytes,
        arena_bytes=plan.arena_bytes,
        places=writer.places(),
        state_bytes=plan.state_bytes,
        input_count=len(plan.inputs),
        output_count=len(plan.outputs),
        output_rank_total=sum(len(p.shape) for p in plan.outputs),
        headers=HEADERS[plan.api],
        functions=FUNCTIONS,
        isas=tuple((isa, " ".join(flags)) for isa, flags in X86.items()),
        gencode=architectures(plan.api, [find_target(t) for t in plan.targets]),
        image_suffix=IMAGE_SUFFIX[plan.api],
        statistics=tuple(textwrap.wrap(", ".join(f"{k}: {v}" for k, v in plan.statistics), WIDTH)),
        abi=Lines(read_template_file("include/aitc/host/abi.h")),
        input_lines=tuple(writer.port_line(p) for p in plan.inputs),
        output_lines=tuple(writer.port_line(p) for p in plan.outputs),
        symbol_lines=tuple(
            f"{s.name} in {s.lo}..{s.hi}" + (f", a multiple of {s.multiple_of}" if s.multiple_of > 1 else "")
            for s in plan.dims
        ),
        ports=tuple(writer.port(p, True, i) for i, p in enumerate(plan.inputs))
        + tuple(writer.port(p, False, i) for i, p in enumerate(plan.outputs)),
        symbols=tuple(
            SymbolView(s.name, s.lo, s.hi, s.multiple_of, sizes[s.name], s.input, s.axis)
            for s in plan.dims
        ),
        kernels=tuple(_kernel_view(k, smem[k.entry]) for k in plan.kernels),
        requires=tuple(writer.require(r) for r in plan.requires),
        pointers=(*writer.declarations, *(steps.declarations() if steps else ())),
        launches=tuple(writer.launch(i, launch) for i, launch in enumerate(plan.launches)),
        nodes=tuple(c_string(nodes_of(launch)) for launch in plan.launches),
        copies=tuple(writer.copies),
        lanes=max((len(f.lanes) for f in plan.forks), default=0),
        late=tuple(d.name for d in plan.late),
        steps=tuple(steps.lines()) if steps else (),
    )


def _kernel_view(kernel: KernelSource, smem_bytes: int) -> KernelView:
    return KernelView(kernel.entry, tuple(host_parameter(p) for p in kernel.parameters), smem_bytes)
