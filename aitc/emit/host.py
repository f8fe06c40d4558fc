"""How model.cpp spells a plan: pointers, sizes, launches, inputs and outputs as C++ text."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from aitc.emit.render import c_string, comment
from aitc.errors import Loc
from aitc.ir import dim as dims
from aitc.ir.cpp import c_expr
from aitc.ir.dim import Dim
from aitc.ir.dtype import DType
from aitc.schedule.plan.plan import Arg, Buffer, DimArg, Launch, Plan, PointerArg, Port, Require, Space, TensorMapArg

WIDTH = 116
C_BYTES = {
    **dict.fromkeys(("void", "char", "bool", "int8_t", "uint8_t"), 1),
    **dict.fromkeys(("float8_e4m3_t", "float8_e5m2_t", "float8_e4m3fnuz_t", "float8_e5m2fnuz_t", "float8_e4m3fn_t"), 1),
    **dict.fromkeys(("float8_e8m0_t", "float4_e2m1_t"), 1),
    **dict.fromkeys(("int16_t", "uint16_t", "half_t", "bfloat16_t"), 2),
    **dict.fromkeys(("int", "int32_t", "unsigned", "uint32_t", "float"), 4),
    **dict.fromkeys(("int64_t", "uint64_t", "double", "complex64_t"), 8),
    "complex128_t": 16,
}


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
    before: tuple[str, ...] = ()  # statements that put it into a lane
    behind: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlaceView:
    """A buffer placed at run time: expressions of its offset and of its end."""

    name: str
    offset: str
    end: str


def banner(name: str, locs: Sequence[Loc], note: str) -> list[str]:
    """``name: Conv "/conv1", Relu "/relu" | note``, wrapped: what a launch was made from."""
    nodes = ", ".join(comment(f'{loc.op_type} "{loc.name}"' if loc.name else f"{loc.op_type} #{loc.index}") for loc in locs)
    text = comment(name + (f": {nodes}" if nodes else "") + (f" | {note}" if note else ""), most=100 * WIDTH)
    return textwrap.wrap(text, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False) or [
        name
    ]


def identifier(text: str) -> str:
    """``text`` as a C identifier (not unique)."""
    clean = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
    return clean if clean and not clean[0].isdigit() else f"_{clean}".rstrip("_") or "_"


class Writer:
    """Spells the pointers, numbers and launches of one plan."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.cpu = plan.api == "cpu"
        self.buffers: dict[str, Buffer] = {b.name: b for b in plan.buffers}
        self.symbols = {alias: s.name for s in plan.dims for alias in (s.model_name, s.name)} | {d.name: d.name for d in plan.late}
        self.late = frozenset(d.name for d in plan.late)
        self.entries = {k.entry: k for k in plan.kernels}
        self.pointers: dict[str, str] = {}  # of inputs and outputs, by buffer
        self.declarations: list[str] = []
        self.copies: list[str] = []
        self._takes: dict[str, str] = {}  # variable of an output whose shape is late -> the statement that gives it memory
        self._lanes = _lane_statements(plan)
        self._bind_ports()

    def expr(self, d: Dim) -> str:
        return c_expr(d, lambda s: f"dims.{self.symbols[s.name]}")

    def require(self, r: Require) -> str:
        """The statement that ends the run with an error if ``r`` is not true."""
        equal = "true" if r.equal else "false"
        return f"require({self.expr(r.less)}, {self.expr(r.more)}, /*equal*/ {equal}, {c_string(r.what)});"

    def text(self, d: Dim) -> str:
        """``d`` as people read it, in the names that the C interface gives its symbols."""
        return str(dims.transform(d, lambda s: dims.symbol(self.symbols[s.name], s.lo, s.hi, s.multiple_of)))

    def is_late(self, shape: Sequence[Dim]) -> bool:
        """Whether a size is known only while the model runs."""
        return any(s.name in self.late for d in shape for s in dims.symbols(d))

    def variable(self, buffer: str) -> str:
        """The variable of run() that holds the address of a late buffer or of an output."""
        return self.pointers.get(buffer, f"late_{buffer}")

    def take_output(self, buffer: str) -> str:
        """The statement that gives an output memory as soon as its shape is known."""
        return self._takes[self.pointers[buffer]]

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
            buffer = self.buffers[port.buffer]
            if self.is_late(port.shape):
                self.declarations.append(f"[[maybe_unused]] char* {name} = nullptr;")
                self._takes[name] = f"{name} = r.output({i}, {{{', '.join(self.expr(d) for d in port.shape)}}});"
            else:
                self.declarations.append(f"[[maybe_unused]] char* const {name} = r.outputs[{i}];")
            if buffer.space is Space.OUTPUT and port.buffer not in self.pointers:
                self.pointers[port.buffer] = name
            else:
                count = dims.product(port.shape)
                source, size = self.address(port.buffer, 0), self.expr(dims.mul(count, port.dtype.bytes))
                if name in self._takes:
                    self.copies.append(self._takes[name])
                self.copies.append(f"r.copy({name}, {source}, {size});  // {comment(port.name)}")

    def address(self, name: str, offset_bytes: Dim) -> str:
        """The address ``offset_bytes`` into a buffer, as an expression."""
        buffer = self.buffers[name]
        if buffer.space in (Space.INPUT, Space.OUTPUT, Space.LATE):
            base, offset = self.variable(name), offset_bytes
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
        def braces(*values: Dim) -> str:
            return f"{{{', '.join(self.expr(v) for v in values)}}}"

        base = self.address(arg.buffer, dims.mul(arg.offset, arg.dtype.bytes))
        element = "tensor_maps::AITC_TF32" if arg.tf32 else dtype_enum(arg.dtype)
        tensor = f"{element}, {base}, {braces(*arg.sizes)}, {braces(*arg.strides)}"
        steps = f"{braces(*arg.element_strides)}, {arg.swizzle}"
        if arg.im2col is None:
            return f"tiled_map({tensor}, {braces(*arg.box)}, {steps})"
        lower, upper, channels, pixels = arg.im2col
        return f"im2col_map({tensor}, {braces(*lower)}, {braces(*upper)}, {channels}, {pixels}, {steps})"

    def launch(self, index: int, launch: Launch) -> LaunchView:
        kernel = self.entries[launch.entry]
        declared = [parameter_name(p) for p in kernel.parameters]
        given = [a.parameter for a in launch.args]
        if declared != given:
            raise ValueError(
                f"launch {launch.name}: kernel {launch.entry} declares parameters {declared}, the launch passes {given}"
            )
        args = [self.argument(a) for a in launch.args]
        if self.cpu:
            call = f"r.launch({', '.join([str(index), f'k.{launch.entry}', *args])});"
        else:
            grid, block = ", ".join(self.expr(d) for d in launch.grid), ", ".join(map(str, launch.block))
            more = (
                f", {launch.cluster}, {'true' if launch.overlap else 'false'}"
                if launch.cluster > 1 or launch.overlap
                else ""
            )
            call = f"r.launch({index}, k.{launch.entry}, {{{{{grid}}}, {{{block}}}, {launch.smem_bytes}{more}}}, {{{', '.join(args)}}});"
        if dims.bounds(launch.skip_if_zero)[0] <= 0:
            call = f"if ({self.expr(launch.skip_if_zero)} != 0) {call}"
        before, behind = self._lanes.get(index, ((), ()))
        return LaunchView(launch.name, tuple(banner(launch.name, launch.locs, launch.note)), call, before, behind)

    def port(self, port: Port, is_input: bool, index: int) -> PortView:
        axes = tuple(f"nullptr, {d}" if isinstance(d, int) else f"{c_string(self.text(d))}, 0" for d in port.shape)
        return PortView(
            is_input=is_input,
            name=c_string(port.name),
            dtype=dtype_enum(port.dtype),
            axes_name=f"{'input' if is_input else 'output'}_{index}",
            axes=axes,
            sizes=tuple("-1" if self.is_late([d]) else self.expr(d) for d in port.shape),
            use=c_string(port.use),
            comment=comment(port.name),
        )

    def port_line(self, port: Port) -> str:
        return comment(
            f"{port.name}: {port.dtype}[{', '.join(self.text(d) for d in port.shape)}]"
            + (f" ({port.use})" if port.use else "")
        )


def _lane_statements(plan: Plan) -> dict[int, tuple[tuple[str, ...], tuple[str, ...]]]:
    """What stands before and behind the launches that begin or end a lane."""
    found: dict[int, tuple[tuple[str, ...], tuple[str, ...]]] = {}
    for fork in plan.forks:
        at = fork.first
        for lane, count in enumerate(fork.lanes):
            begin = f"r.lane({lane});" if lane else f"r.fork({len(fork.lanes)});  // {len(fork.lanes)} lanes, side by side in a recorded run"
            found[at] = (begin,), ()
            at += count
        before, _ = found.get(at - 1, ((), ()))
        found[at - 1] = before, ("r.join();",)
    return found


def parameter_name(declaration: str) -> str:
    """``x`` of the C declaration ``const float* x``."""
    match = re.search(r"(\w+)\s*(?:\[\d*\])?$", declaration.strip())
    if match is None:
        raise ValueError(f"not a parameter declaration: {declaration!r}")
    return match.group(1)


def host_parameter(declaration: str) -> str:
    """The declaration as the host sees it: pointers are to void, since storage types belong to each instruction set's namespace."""
    if "*" not in declaration:
        return declaration
    const = "const " if re.match(r"\s*const\b", declaration) else ""
    return f"{const}void* {parameter_name(declaration)}"


def dtype_enum(dtype: DType) -> str:
    """The constant of abi.h."""
    return f"AITC_{dtype.name.upper()}"
