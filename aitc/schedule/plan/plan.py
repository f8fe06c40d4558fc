"""The Plan: all that the emitter needs to know, as plain data with a lossless JSON form."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from aitc.errors import Loc
from aitc.ir.dim import Dim
from aitc.ir.dtype import DType


@dataclass(frozen=True, slots=True)
class DimSource:
    """A run-time dim: symbol ``name`` (a C identifier) is axis ``axis`` of model input number ``input``; inclusive bounds."""

    name: str
    model_name: str  # as the model spells it
    input: int
    axis: int
    lo: int
    hi: int
    multiple_of: int = 1
    hint: int | None = None


@dataclass(frozen=True, slots=True)
class Port:
    """A model input or output. ``name`` as the model spells it; ``shape`` in Dims over the plan's dims.

    ``buffer`` names what holds it: usually a buffer of its own of kind INPUT or OUTPUT; an output may also name an input, a weight, or another output's
    buffer (then the host code copies, because the caller's pointers differ).
    """

    name: str
    dtype: DType
    shape: tuple[Dim, ...]
    buffer: str
    use: str = ""  # "" | "ids:LIMIT" | "mask" | "image": what random inputs have to respect


ALIGNMENT = 256  # bytes, of every buffer and weight


class Space(Enum):
    INPUT = "input"  # memory of the caller
    OUTPUT = "output"
    WEIGHT = "weight"  # one read-only blob
    ARENA = "arena"  # one block of scratch memory per instance
    STATE = "state"  # like the arena, but zeroed at creation and left alone between runs
    LATE = "late"  # taken from a pool when its size is known, which may be while the model runs, and given back after its last use


@dataclass(frozen=True, slots=True)
class Buffer:
    """A piece of memory. ``offset`` in bytes inside its space (0 for inputs and outputs), ``bytes`` may be symbolic; ``upper_bytes`` is what was reserved.

    ``first`` and ``last`` are the launches between which it is live; ``holds`` the names of the values in it, for reports.
    Where arena sizes are known only at run time, ``offset`` is -1 and the host code computes it when the dims change, buffers in the
    order of the plan: the largest ``offset + bytes`` (rounded up to ALIGNMENT) of the buffers named in ``above``, or 0.
    """

    name: str
    space: Space
    dtype: DType
    bytes: Dim
    upper_bytes: int
    offset: int = 0
    first: int = 0
    last: int = 0
    holds: tuple[str, ...] = ()
    above: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Weight:
    """A constant as kernels read it (already packed, transposed, narrowed). ``data`` is C-contiguous; it is not part of the JSON."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    offset: int
    bytes: int
    sha256: str
    data: np.ndarray = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class PointerArg:
    """``parameter`` = address of ``buffer`` + ``offset`` elements of ``c_type``.

    ``part``: what is written is a part of the buffer that no other launch writes (a Concat joins them).
    """

    parameter: str
    c_type: str  # element type
    buffer: str
    offset: Dim = 0
    const: bool = True
    part: bool = False


@dataclass(frozen=True, slots=True)
class DimArg:
    """An integer parameter: ``value`` over the plan's dims."""

    parameter: str
    value: Dim
    c_type: str = "int64_t"


@dataclass(frozen=True, slots=True)
class TensorMapArg:
    """A TMA descriptor (CUtensorMap) on ``buffer``, made by the host code whenever the buffer's address or the dims change.

    ``sizes`` innermost first in elements; ``strides`` in bytes, of every dim but the innermost; ``box`` in elements; ``swizzle`` 0, 32, 64 or 128
    bytes. ``im2col`` is None for tiled maps, else (lower corner, upper corner, channels per pixel, pixels per column). ``tf32``: floats are rounded as
    they are loaded. ``const`` and ``part`` as of pointers.
    """

    parameter: str
    dtype: DType
    buffer: str
    offset: Dim
    sizes: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    swizzle: int = 128
    im2col: tuple[tuple[int, ...], tuple[int, ...], int, int] | None = None
    tf32: bool = False
    const: bool = True
    part: bool = False


Arg = PointerArg | DimArg | TensorMapArg


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch. ``entry`` is the kernel's symbol; launches with equal kernel text share it."""

    name: str
    entry: str
    args: tuple[Arg, ...]
    grid: tuple[Dim, Dim, Dim] = (1, 1, 1)  # ignored on cpu
    block: tuple[int, int, int] = (1, 1, 1)
    smem_bytes: int = 0  # dynamic shared memory
    cluster: int = 1
    overlap: bool = False  # programmatic dependent launch
    skip_if_zero: Dim = 1  # not launched when this is 0 (empty tensors)
    locs: tuple[Loc, ...] = ()
    flops: Dim = 0
    bytes: Dim = 0  # least memory traffic: each operand once
    note: str = ""  # one line for reports: what is fused
    chosen: str = "model"  # on whose word its configuration was chosen: model, or table
    gone: str = ""  # the configuration that a table names for it, and that is none


# --- what the host does between launches, where the data decides: sizes, branches, trips


@dataclass(frozen=True, slots=True)
class LateDim:
    """A dim that is known only while the model runs; values outside of the inclusive bounds are the data's error. ``name`` is a C identifier."""

    name: str
    lo: int = 0
    hi: int = 2**62


@dataclass(frozen=True, slots=True)
class Place:
    """Element ``offset`` of a buffer, and those that follow it."""

    buffer: str
    offset: Dim
    dtype: DType


@dataclass(frozen=True, slots=True)
class Take:
    """From here on ``buffer`` (LATE, or an OUTPUT whose shape is late) has memory."""

    buffer: str


@dataclass(frozen=True, slots=True)
class Give:
    """The memory of ``buffer`` (LATE) is free again."""

    buffer: str


@dataclass(frozen=True, slots=True)
class ReadDims:
    """The elements at ``source`` become the values of late dims. ``what`` names the ONNX node, for the message when one is out of bounds."""

    source: Place
    dims: tuple[str, ...]
    what: str


@dataclass(frozen=True, slots=True)
class Require:
    """``less`` must not be more than ``more`` (with ``equal``: must be as much), or the run ends with an error that begins with ``what``."""

    less: Dim
    more: Dim
    equal: bool
    what: str


@dataclass(frozen=True, slots=True)
class Fail:
    """The run ends with the error ``what``: a branch that cannot run was taken."""

    what: str


@dataclass(frozen=True, slots=True)
class SetDims:
    """``dims`` become ``values``, all at once."""

    dims: tuple[str, ...]
    values: tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """LATE buffer ``to`` takes over the memory of ``source``."""

    to: str
    source: str


@dataclass(frozen=True, slots=True)
class Branch:
    """``then`` if the element at ``condition`` is true, else ``otherwise``."""

    condition: Place
    then: tuple[Any, ...]
    otherwise: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Carried:
    """A value that a loop carries: LATE buffer ``variable`` begins as a copy of ``bytes`` at ``initial``; each trip leaves the next in ``next``."""

    variable: str
    initial: Place
    bytes: Dim
    next: str


@dataclass(frozen=True, slots=True)
class Stacked:
    """What each trip leaves in LATE buffer ``part``, ``bytes`` of it, is appended to LATE buffer ``whole``."""

    whole: str
    part: str
    bytes: Dim


@dataclass(frozen=True, slots=True)
class Repeat:
    """Runs ``body`` while ``go`` (None: always true) and for at most ``trips`` (None: without end); late dim ``counter`` counts from 0.

    ``again`` is what the body says about going on; ``ends`` are the steps of a trip's end, when the parts are stacked already.
    """

    counter: str
    trips: Place | Dim | None
    go: Place | None
    again: Place | None
    carried: tuple[Carried, ...]
    stacked: tuple[Stacked, ...]
    body: tuple[Any, ...]
    ends: tuple[SetDims, ...]


Step = int | Take | Give | ReadDims | Require | Fail | SetDims | Move | Branch | Repeat  # an integer is the launch of that number


@dataclass(frozen=True, slots=True)
class Fork:
    """Launches from ``first`` on that run side by side, in lanes of so many launches each: those of a lane one after another, all after
    the launch before ``first``, and the launch behind them after all. One after another in the plan's order is right as well."""

    first: int
    lanes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KernelSource:
    """One generated file: template ``template`` (a stem of codegen_templates/kernels) with ``context``, a frozen dataclass of strings and numbers."""

    entry: str
    kernel: str
    config: str
    template: str
    context: Any
    parameters: tuple[str, ...]  # C declarations, in order, e.g. "const float* x"
    locs: tuple[Loc, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    version: int
    name: str  # a C identifier
    model: str
    targets: tuple[str, ...]
    api: str  # cpu, cuda, hip
    precision: str
    dims: tuple[DimSource, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    buffers: tuple[Buffer, ...]
    weights: tuple[Weight, ...]
    kernels: tuple[KernelSource, ...]
    launches: tuple[Launch, ...]
    arena_bytes: int  # -1: computed at run time from the buffers' sizes
    weights_bytes: int
    weights_digest: str
    state_bytes: int = 0
    metadata: tuple[tuple[str, str], ...] = ()  # the model's metadata_props
    statistics: tuple[tuple[str, int], ...] = ()  # nodes imported, after fusion, groups by kind ...
    late: tuple[LateDim, ...] = ()
    steps: tuple[Step, ...] = ()  # empty: the launches one after another; else what runs when, launches among it
    requires: tuple[Require, ...] = ()  # of the dims that the inputs' shapes give, before anything runs
    forks: tuple[Fork, ...] = ()  # in the order of the launches; plans with steps have none

    def buffer(self, name: str) -> Buffer:
        return next(b for b in self.buffers if b.name == name)
