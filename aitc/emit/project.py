"""Plan -> {path: text}: the generated CMake project. Pure: equal plans give equal bytes, with no clock and no absolute path."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aitc.emit.render import c_string, comment, read_template_file, render, template_root
from aitc.errors import Loc
from aitc.ir import dim as dims
from aitc.ir.dim import Dim
from aitc.ir.dtype import DType
from aitc.schedule.plan import Arg, Buffer, DimArg, KernelSource, Launch, Plan, PointerArg, Port, Space, TensorMapArg
from aitc.targets.target import Target, find_target

SUFFIX = {"cpu": "cpp", "cuda": "cu", "hip": "hip"}
IMAGE_SUFFIX = {"cpu": "", "cuda": "fatbin", "hip": "hsaco"}
HEADERS = {
    "cpu": ("kernels.h", "aitc/host/device_cpu.h", "aitc/host/instance.h", "aitc/host/thread_pool.h"),
    "cuda": ("kernels.h", "aitc/host/device_gpu.h", "aitc/host/instance.h"),
    "hip": ("kernels.h", "aitc/host/device_gpu.h", "aitc/host/instance.h"),
}
FUNCTIONS = ("abi_version", "model", "last_error", "create", "create_with_weights", "destroy", "output_shapes", "run")
C_BYTES = {
    "void": 1, "char": 1, "bool": 1, "int8_t": 1, "uint8_t": 1, "float8_e4m3_t": 1, "float8_e5m2_t": 1, "float8_e4m3fnuz_t": 1, "float8_e5m2fnuz_t": 1,
    "float8_e4m3fn_t": 1, "float8_e8m0_t": 1, "float4_e2m1_t": 1, "int16_t": 2, "uint16_t": 2, "half_t": 2, "bfloat16_t": 2, "int": 4, "int32_t": 4,
    "uint32_t": 4, "unsigned": 4, "float": 4, "int64_t": 8, "uint64_t": 8, "double": 8, "complex64_t": 8, "complex128_t": 16,
}  # fmt: skip
WIDTH = 116


@dataclass(frozen=True, slots=True)
class PortView:
    """A model input or output, as model.cpp.j2 spells it."""

    is_input: bool
    name: str
    dtype: str
    axes_name: str
    axes: tuple[str, ...]
    sizes: tuple[str, ...]
    use: str
    comment: str


@dataclass(frozen=True, slots=True)
class SymbolView:
    name: str
    lo: int
    hi: int
    multiple_of: int
    hint: int
    input: int
    axis: int


@dataclass(frozen=True, slots=True)
class KernelView:
    entry: str
    parameters: tuple[str, ...]
    smem_bytes: int


@dataclass(frozen=True, slots=True)
class LaunchView:
    name: str
    comments: tuple[str, ...]
    statement: str


@dataclass(frozen=True, slots=True)
class PlaceView:
    """A buffer placed at run time: expressions of its offset and of its end."""

    name: str
    offset: str
    end: str


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
    copies: tuple[str, ...]


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
        files[kernel_path(plan, kernel.entry)] = render(f"kernels/{kernel.template}.j2", kernel.context, c=kernel.context)
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
            if path not in found and not header.startswith(skip) and template_root().joinpath(*path.split("/")).is_file():
                found[path] = read_template_file(path)
                waiting.append(found[path])
    return found


# ---- names and expressions


def _banner_lines(name: str, locs: Sequence[Loc], note: str) -> list[str]:
    """``name: Conv "/conv1", Relu "/relu" | note``, wrapped: what a launch was made from."""
    nodes = ", ".join(f'{loc.op_type} "{loc.name}"' if loc.name else f"{loc.op_type} #{loc.index}" for loc in locs)
    text = comment(name + (f": {nodes}" if nodes else "") + (f" | {note}" if note else ""))
    return textwrap.wrap(text, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False) or [name]


def identifier(text: str) -> str:
    """``text`` as a C identifier (not unique)."""
    clean = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
    return clean if clean and not clean[0].isdigit() else f"_{clean}".rstrip("_") or "_"


class _Writer:
    """Spells the pointers, numbers and launches of one plan."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.cpu = plan.api == "cpu"
        self.buffers: dict[str, Buffer] = {b.name: b for b in plan.buffers}
        self.symbols = {alias: s.name for s in plan.dims for alias in (s.model_name, s.name)}
        self.entries = {k.entry: k for k in plan.kernels}
        self.pointers: dict[str, str] = {}  # of inputs and outputs, by buffer
        self.declarations: list[str] = []
        self.copies: list[str] = []
        self._bind_ports()

    def expr(self, d: Dim) -> str:
        return dims.c_expr(d, lambda s: f"dims.{self.symbols[s.name]}")

    def text(self, d: Dim) -> str:
        """``d`` as people read it, in the names that the C interface gives its symbols."""
        return str(dims.transform(d, lambda s: dims.symbol(self.symbols[s.name], s.lo, s.hi, s.multiple_of)))

    def _bind_ports(self) -> None:
        used: set[str] = set()

        def fresh(prefix: str, port: Port) -> str:
            name = f"{prefix}_{identifier(port.name)}"
            while name in used:
                name += "_"
            used.add(name)
            return name

        for i, port in enumerate(self.plan.inputs):
            name = fresh("in", port)
            if port.buffer not in self.pointers:
                self.pointers[port.buffer] = name
            self.declarations.append(f"[[maybe_unused]] char* const {name} = r.inputs[{i}];")
        for i, port in enumerate(self.plan.outputs):
            name = fresh("out", port)
            self.declarations.append(f"[[maybe_unused]] char* const {name} = r.outputs[{i}];")
            buffer = self.buffers[port.buffer]
            if buffer.space is Space.OUTPUT and port.buffer not in self.pointers:
                self.pointers[port.buffer] = name
            else:
                count = dims.product(port.shape)
                self.copies.append(f"r.copy({name}, {self.address(port.buffer, 0)}, {self.expr(dims.mul(count, port.dtype.bytes))});  // {comment(port.name)}")

    def address(self, name: str, offset_bytes: Dim) -> str:
        """The address ``offset_bytes`` into a buffer, as an expression."""
        buffer = self.buffers[name]
        if buffer.space in (Space.INPUT, Space.OUTPUT):
            base, offset = self.pointers[name], offset_bytes
        else:
            base = {Space.WEIGHT: "weights", Space.ARENA: "arena", Space.STATE: "state"}[buffer.space]
            if buffer.offset < 0:  # placed at run time
                return f"{base} + at.{name}" + ("" if offset_bytes == 0 else f" + ({self.expr(offset_bytes)})")
            offset = dims.add(buffer.offset, offset_bytes)
        if offset == 0:
            return base
        return f"{base} + {self.expr(offset)}" if isinstance(offset, int) else f"{base} + ({self.expr(offset)})"

    def places(self) -> tuple[PlaceView, ...]:
        """The buffers whose place in the arena is computed at run time, in the order in which that is possible."""
        views = []
        for b in self.plan.buffers:
            if b.space is Space.ARENA and b.offset < 0:
                below = [f"end_of(at.{name}, {self.expr(self.buffers[name].bytes)})" for name in b.above]
                offset = "0" if not below else below[0] if len(below) == 1 else f"last_of({{{', '.join(below)}}})"
                views.append(PlaceView(b.name, offset, f"end_of(at.{b.name}, {self.expr(b.bytes)})"))
        return tuple(views)

    def argument(self, arg: Arg) -> str:
        if isinstance(arg, PointerArg):
            return self.address(arg.buffer, dims.mul(arg.offset, C_BYTES[arg.c_type]))
        if isinstance(arg, DimArg):
            if self.cpu:
                return self.expr(arg.value)
            return f"{'int64_t' if C_BYTES[arg.c_type] == 8 else 'int32_t'}({self.expr(arg.value)})"
        return self._tensor_map(arg)

    def _tensor_map(self, arg: TensorMapArg) -> str:
        base = self.address(arg.buffer, dims.mul(arg.offset, arg.dtype.bytes))
        sizes, strides = (", ".join(self.expr(d) for d in group) for group in (arg.sizes, arg.strides))
        steps = ", ".join(map(str, arg.element_strides))
        if arg.im2col is None:
            return f"tiled_map({dtype_enum(arg.dtype)}, {base}, {{{sizes}}}, {{{strides}}}, {{{', '.join(map(str, arg.box))}}}, {{{steps}}}, {arg.swizzle})"
        lower, upper, channels, pixels = arg.im2col
        corners = f"{{{', '.join(map(str, lower))}}}, {{{', '.join(map(str, upper))}}}"
        return f"im2col_map({dtype_enum(arg.dtype)}, {base}, {{{sizes}}}, {{{strides}}}, {corners}, {channels}, {pixels}, {{{steps}}}, {arg.swizzle})"

    def launch(self, index: int, launch: Launch) -> LaunchView:
        kernel = self.entries[launch.entry]
        declared = [parameter_name(p) for p in kernel.parameters]
        given = [a.parameter for a in launch.args]
        if declared != given:
            raise ValueError(f"launch {launch.name}: kernel {launch.entry} declares parameters {declared}, the launch passes {given}")
        args = [self.argument(a) for a in launch.args]
        if self.cpu:
            call = f"r.launch({', '.join([str(index), f'k.{launch.entry}', *args])});"
        else:
            grid, block = ", ".join(self.expr(d) for d in launch.grid), ", ".join(map(str, launch.block))
            more = f", {launch.cluster}, {'true' if launch.overlap else 'false'}" if launch.cluster > 1 or launch.overlap else ""
            call = f"r.launch({index}, k.{launch.entry}, {{{{{grid}}}, {{{block}}}, {launch.smem_bytes}{more}}}, {{{', '.join(args)}}});"
        if dims.bounds(launch.skip_if_zero)[0] <= 0:
            call = f"if ({self.expr(launch.skip_if_zero)} != 0) {call}"
        return LaunchView(launch.name, tuple(_banner_lines(launch.name, launch.locs, launch.note)), call)

    def port(self, port: Port, is_input: bool, index: int) -> PortView:
        axes = tuple(f"nullptr, {d}" if isinstance(d, int) else f"{c_string(self.text(d))}, 0" for d in port.shape)
        return PortView(
            is_input=is_input,
            name=c_string(port.name),
            dtype=dtype_enum(port.dtype),
            axes_name=f"{'input' if is_input else 'output'}_{index}",
            axes=axes,
            sizes=tuple(self.expr(d) for d in port.shape),
            use=c_string(port.use),
            comment=comment(port.name),
        )

    def port_line(self, port: Port) -> str:
        return comment(f"{port.name}: {port.dtype}[{', '.join(self.text(d) for d in port.shape)}]" + (f" ({port.use})" if port.use else ""))


def parameter_name(declaration: str) -> str:
    """``x`` of the C declaration ``const float* x``."""
    match = re.search(r"(\w+)\s*(?:\[\d*\])?$", declaration.strip())
    if match is None:
        raise ValueError(f"not a parameter declaration: {declaration!r}")
    return match.group(1)


def _host_parameter(declaration: str) -> str:
    """The declaration as the host sees it: pointers are to void, since storage types belong to each instruction set's namespace."""
    if "*" not in declaration:
        return declaration
    const = "const " if re.match(r"\s*const\b", declaration) else ""
    return f"{const}void* {parameter_name(declaration)}"


def dtype_enum(dtype: DType) -> str:
    """The constant of abi.h."""
    return f"AITC_{dtype.name.upper()}"


def architectures(api: str, targets: Sequence[Target]) -> tuple[str, ...]:
    """Compiler flags that name the targets' architectures. CUDA: the oldest plain one also as PTX, for devices that are newer than the compiler."""
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


def _context(plan: Plan) -> ProjectContext:
    writer = _Writer(plan)
    smem = {k.entry: 0 for k in plan.kernels}
    for launch in plan.launches:
        smem[launch.entry] = max(smem[launch.entry], launch.smem_bytes)
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
        gencode=architectures(plan.api, [find_target(t) for t in plan.targets]),
        image_suffix=IMAGE_SUFFIX[plan.api],
        statistics=tuple(textwrap.wrap(", ".join(f"{k}: {v}" for k, v in plan.statistics), WIDTH)),
        abi=read_template_file("include/aitc/host/abi.h"),
        input_lines=tuple(writer.port_line(p) for p in plan.inputs),
        output_lines=tuple(writer.port_line(p) for p in plan.outputs),
        symbol_lines=tuple(f"{s.name} in {s.lo}..{s.hi}" + (f", a multiple of {s.multiple_of}" if s.multiple_of > 1 else "") for s in plan.dims),
        ports=tuple(writer.port(p, True, i) for i, p in enumerate(plan.inputs)) + tuple(writer.port(p, False, i) for i, p in enumerate(plan.outputs)),
        symbols=tuple(SymbolView(s.name, s.lo, s.hi, s.multiple_of, s.hint if s.hint is not None else max(s.lo, 1), s.input, s.axis) for s in plan.dims),
        kernels=tuple(_kernel_view(k, smem[k.entry]) for k in plan.kernels),
        pointers=tuple(writer.declarations),
        launches=tuple(writer.launch(i, launch) for i, launch in enumerate(plan.launches)),
        copies=tuple(writer.copies),
    )


def _kernel_view(kernel: KernelSource, smem_bytes: int) -> KernelView:
    return KernelView(kernel.entry, tuple(_host_parameter(p) for p in kernel.parameters), smem_bytes)
