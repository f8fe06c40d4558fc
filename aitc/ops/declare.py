"""How ONNX operators are declared: one function each, whose positional parameters are the inputs and whose keywords the
attributes.

    @onnx_op("Flatten")
    def flatten(b: Scope, x: Value, *, axis: int = 1) -> Value:
        ...

The importer picks the function by domain, name and opset version (the newest ``since`` that is not above the model's)
and binds inputs and attributes to its signature. A function returns its outputs: a Value, or a tuple where there are
several (None for one that it does not make). It raises ``Unsupported`` for what aitc cannot do and ValueError for what
the model must not do; both become diagnostics.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

import numpy as np

from aitc.errors import Loc
from aitc.ir import content as contents
from aitc.ir import dim as d
from aitc.ir.builder import Builder
from aitc.ir.dim import Dim
from aitc.ir.dtype import DType
from aitc.ir.graph import Graph, Node, Value
from aitc.ops import indices
from aitc.ops.attribute import Contract, contract

RANKS_HELP = "give both branches one rank, or make the condition a constant"


class Unsupported(Exception):
    """A valid use of an operator that aitc cannot compile; ``help`` says what would make it possible."""

    def __init__(self, message: str, help: str = ""):
        super().__init__(message)
        self.help = help


def refuse(help: str, **given: Any) -> None:
    """Raises Unsupported with those inputs and attributes of ``given`` that are not absent, 0 or empty, and what they are."""
    named = []
    for name, v in given.items():
        if isinstance(v, Value):
            named.append(f"input {name} ({v.type})")
        elif v:
            named.append(f"{name} = {v!r}")
    if named:
        raise Unsupported(", ".join(named), help)


def binding(*dims: Dim) -> str:
    """The way out where sizes must be known: the flags that bind the symbols in ``dims``."""
    names = sorted({s.name for x in dims if not isinstance(x, int) for s in d.symbols(x)})
    return f"bind it with {' '.join(f'--dim {name}=SIZE' for name in names)}" if names else "make the sizes constants"


class Unjoined(Unsupported):
    """Results of an If whose branches give different ranks; ``outputs`` says which. What reads them can move into the branches."""

    def __init__(self, message: str, outputs: Sequence[int]):
        super().__init__(message, RANKS_HELP)
        self.outputs = tuple(outputs)


class UseBody(Exception):
    """Raised by an importer that leaves this use of an operator to the function body that ONNX defines for it."""


@dataclass(frozen=True, slots=True)
class SequenceValue:
    """An ONNX sequence whose length is known at compile time. It exists at import only."""

    items: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class OptionalValue:
    """An ONNX optional that is known to be there (or not: ``item`` is None). It exists at import only."""

    item: Any


@dataclass(frozen=True, slots=True)
class Importer:
    """A registered importer function with its signature taken apart."""

    domain: str
    op_type: str
    since: int
    function: Callable[..., Any]
    required: int  # how many inputs must be listed
    inputs: tuple[str, ...]
    nullable: frozenset[str]  # those that may be absent (annotated as ``Value | None``)
    variadic: bool  # more inputs may follow
    attributes: Mapping[str, Any]  # name -> default; ``inspect.Parameter.empty`` if it must be given
    contracts: Mapping[str, Contract]  # name -> what it may be


IMPORTERS: dict[tuple[str, str], list[Importer]] = {}


def onnx_op(*op_types: str, domain: str = "", since: int = 1) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function as importer of ``op_types`` from opset version ``since`` of ``domain`` on."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for op_type in op_types:
            add_importer(op_type, function, domain, since)
        return function

    return register


def add_importer(op_type: str, function: Callable[..., Any], domain: str = "", since: int = 1) -> None:
    """As ``onnx_op``, for functions that are made in a loop. Raises ValueError if the version is taken."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    positional = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    keywords = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    hints = get_type_hints(function, include_extras=True) if keywords else {}
    entry = Importer(
        domain, op_type, since, function,
        sum(p.default is p.empty for p in positional),
        tuple(p.name for p in positional),
        frozenset(p.name for p in positional if "None" in str(p.annotation) or "Any" in str(p.annotation)),
        any(p.kind is p.VAR_POSITIONAL for p in parameters),
        keywords,
        {name: contract(hints.get(name, Any)) for name in keywords},
    )  # fmt: skip
    versions = IMPORTERS.setdefault((domain, op_type), [])
    if any(v.since == since for v in versions):
        raise ValueError(f"importer of {domain or 'ai.onnx'}.{op_type} since {since} is registered twice")
    versions.append(entry)
    versions.sort(key=lambda v: v.since)


def find_importer(domain: str, op_type: str, version: int) -> Importer | None:
    """The importer for an operator at an opset version of its domain, or None."""
    fitting = [v for v in IMPORTERS.get((domain, op_type), ()) if v.since <= version]
    return fitting[-1] if fitting else None


class Scope(Builder):
    """The builder an importer function gets: it knows the ONNX node being imported and its surroundings.

    ``opset`` is the version of the node's domain, ``wanted`` says for each output whether somebody reads it,
    ``body`` imports a subgraph, ``branches`` those of an If, ``fresh`` makes a symbol for a size that only the data decides.
    """

    def __init__(self, graph: Graph, symbols: dict[str, Dim] | None = None, taken: set[str] | None = None):
        super().__init__(graph)
        self.opset = 1
        self.wanted: tuple[bool, ...] = (True,)
        self.symbols: dict[str, Dim] = {} if symbols is None else symbols
        self.taken: set[str] = set() if taken is None else taken  # names of symbols that the model calls by another
        self.body: Callable[..., Any] = _no_body
        self.inline: Callable[..., Any] = _no_body
        self.branches: Callable[..., Any] = _no_body
        self.read: dict[tuple[Graph, Value], tuple[Dim, ...]] = {}  # what ReadDims nodes have read already

    def at(self, loc: Loc, opset: int, wanted: Sequence[bool]) -> None:
        """Turns to the next ONNX node."""
        self.locs = (loc,)
        self.opset = opset
        self.wanted = tuple(wanted)

    def node(self, name: str, *inputs: Value | None, names: Sequence[str] = (), bodies: Sequence[Graph] = (), **attrs: Any) -> Node:
        """As of Builder. Raises ValueError also for constant indices outside of their axis."""
        made = super().node(name, *inputs, names=names, bodies=bodies, **attrs)
        indices.check(name, inputs, made.attrs)
        return made

    def wants(self, index: int) -> bool:
        """Whether output ``index`` of the present node is read."""
        return index < len(self.wanted) and self.wanted[index]

    def fresh(self, stem: str, lo: int = 0, hi: int | None = None) -> Dim:
        """A symbol that nothing else has, for a size that is known when the model runs."""
        n = 0
        while (name := f"{stem}_{n}" if n else stem) in self.symbols or name in self.taken:
            n += 1
        self.symbols[name] = d.symbol(name, lo, hi)
        return self.symbols[name]

    def dims(self, v: Value, what: str, lo: int = 0) -> tuple[Dim, ...]:
        """The elements of an integer tensor as Dims. What only the data decides is read at run time, by a
        ReadDims node, into fresh symbols with ``lo`` as lower bound. Raises Unsupported if even the number
        of elements is not known."""
        known = contents.elements(v)
        if known is not None:
            return known
        if len(v.shape) > 1 or not v.type.is_static:
            names = ", ".join(f"--dim {s}=SIZE" for s in v.shape if d.as_symbol(s) is not None)
            way = f"bind it with {names}" if names else "give its shape where it is made, or in value_info"
            raise Unsupported(f"{what} is computed from the data and its number of elements is not known", way)
        count = v.shape[0] if v.shape else 1
        assert isinstance(count, int)
        key = (self.graph, v)
        if key not in self.read or any(d.bounds(s)[0] < lo for s in self.read[key]):
            symbols = tuple(self.fresh("u", lo) for _ in range(count))
            self.op("ReadDims", v, dims=symbols)
            self.read[key] = symbols
        return self.read[key]


def _no_body(*_: Any, **__: Any) -> Any:
    raise Unsupported("subgraphs can be imported only as part of a model", "import the model that the node is of")


# --- reading parameters -----------------------------------------------------------------------------------------------


def ints(v: Value, what: str) -> tuple[int, ...]:
    """The elements of a tensor as integers, flattened. Raises Unsupported if they are not known at compile time."""
    array = numbers(v)
    if array is None:
        raise Unsupported(
            f"{what} must be known at compile time", "make it a constant, or bind the dims it depends on with --dim"
        )
    return tuple(int(i) for i in array.ravel())


def numbers(v: Value | None) -> np.ndarray | None:
    """The tensor as a numpy array, if it is known at compile time."""
    if v is None:
        return None
    if v.const is not None:
        return v.const
    if 0 in v.shape and v.type.is_static:
        return np.zeros([int(s) for s in v.shape], v.type.dtype.numpy)  # type: ignore[arg-type]
    if v.content is not None and contents.is_numeric(v.content):
        return contents.as_numpy(v.content, v.type.dtype)
    return None


def known(v: Value, what: str) -> np.ndarray:
    """The tensor as a numpy array. Raises Unsupported if it is not known at compile time."""
    array = numbers(v)
    if array is None:
        raise Unsupported(f"{what} must be known at compile time", "make it a constant or an initializer")
    return array


def scalar(v: Value, what: str) -> Any:
    """The one element of a tensor as a Python number. Raises Unsupported if it is not known, ValueError if there
    are several."""
    array = known(v, what)
    if array.size != 1:
        raise ValueError(f"{what} must have one element, got shape {list(array.shape)}")
    return array.reshape(()).item()


def normalize_axis(axis: int, rank: int, what: str = "axis") -> int:
    """``axis`` counted from the front. Raises ValueError if it is outside [-rank, rank)."""
    if not -rank <= axis < rank:
        raise ValueError(f"{what} {axis} is outside of [{-rank}, {rank - 1}] for rank {rank}")
    return axis % rank if rank else 0


def normalize_axes(axes: Iterable[int], rank: int, what: str = "axes") -> tuple[int, ...]:
    """Axes counted from the front, sorted. Raises ValueError for one outside of the rank or given twice."""
    result = tuple(sorted(normalize_axis(a, rank, what) for a in axes))
    if len(set(result)) != len(result):
        raise ValueError(f"{what} {list(axes)} names an axis twice")
    return result


def distinct_axes(axes: Iterable[int], rank: int, what: str = "axes") -> tuple[int, ...]:
    """Axes counted from the front, in the order given. Raises ValueError for one outside of the rank or given twice."""
    axes = tuple(axes)
    normalize_axes(axes, rank, what)
    return tuple(normalize_axis(a, rank, what) for a in axes)


def dtype_of(code: int, what: str = "to") -> DType:
    """The DType of a TensorProto.DataType. Raises ValueError for one that is unknown."""
    from aitc.ir.dtype import BY_ONNX

    if code not in BY_ONNX:
        raise ValueError(f"{what} = {code} is not an element type")
    return BY_ONNX[code]


# --- small pieces that many importers need ----------------------------------------------------------------------------


def reshape(b: Builder, x: Value, shape: Iterable[Dim], names: Sequence[str] = ()) -> Value:
    """``x`` with another shape of as many elements; ``x`` itself if it has that shape already."""
    shape = tuple(shape)
    return x if shape == x.shape else b.op("Reshape", x, shape=shape, names=names)


def transpose(b: Builder, x: Value, perm: Iterable[int]) -> Value:
    """``x`` with its axes permuted; ``x`` itself if they stay."""
    perm = tuple(perm)
    return x if perm == tuple(range(x.type.rank)) else b.op("Transpose", x, perm=perm)


def expand(b: Builder, x: Value, shape: Iterable[Dim]) -> Value:
    """``x`` broadcast to ``shape`` (its own rank or more)."""
    shape = tuple(shape)
    return x if shape == x.shape else b.op("Expand", x, shape=shape)


def cast(b: Builder, x: Value, to: DType) -> Value:
    """``x`` as element type ``to``; ``x`` itself if it has it."""
    return x if x.type.dtype is to else b.op("Cast", x, to=to)


def slice_axis(b: Builder, x: Value, axis: int, start: Dim, size: Dim, step: int = 1) -> Value:
    """``size`` elements of ``x`` along ``axis``, from ``start`` on."""
    if start == 0 and step == 1 and size == x.shape[axis]:
        return x
    starts: list[Dim] = [0] * x.type.rank
    sizes: list[Dim] = list(x.shape)
    steps = [1] * x.type.rank
    starts[axis], sizes[axis], steps[axis] = start, size, step
    return b.op("Slice", x, starts=tuple(starts), sizes=tuple(sizes), steps=tuple(steps))


def unsqueeze(b: Builder, x: Value, axes: Iterable[int]) -> Value:
    """``x`` with axes of size 1 put in, counted in the result."""
    axes = tuple(axes)
    rank = x.type.rank + len(axes)
    where = normalize_axes(axes, rank)
    rest = iter(x.shape)
    return reshape(b, x, (1 if i in where else next(rest) for i in range(rank)))


def along_channel(b: Builder, v: Value, rank: int, axis: int = 1) -> Value:
    """A vector [C] shaped so that it broadcasts along ``axis`` of a tensor of ``rank``."""
    shape: list[Dim] = [1] * rank
    shape[axis] = v.shape[0] if v.shape else 1
    return reshape(b, v, shape)
