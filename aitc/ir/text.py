"""The text IR: prints a graph, and reads it back without loss.

    graph "main" {
      dim batch in 1..32 multiple_of 1 hint 8
      input %x: f32[batch, 64]
      const %w: f32[64, 10] = sha256:3f1c…       (data in a side table; small constants stand in place)
      %y: f32[batch, 10] = MatMul(%x, %w) @("model.onnx", "main", 3, "/fc/MatMul", "Gemm")
      output "logits" = %y
    }

A name with ``^`` is of the graph around, one ``^`` a level. Attributes that have their default are left out. ``;`` begins a comment.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import MISSING, fields
from typing import Any

import numpy as np

from aitc.errors import Loc
from aitc.ir import content, parse
from aitc.ir import dim as dm
from aitc.ir.dtype import STRING
from aitc.ir.graph import Graph, Node, Value
from aitc.ir.op import OPS
from aitc.ir.parse import RECORDS, ParseError, Scanner, Symbols, format_value
from aitc.ir.types import TensorType

Constants = MutableMapping[str, np.ndarray]
INLINE = 16  # elements of a constant that is printed in place


def digest(array: np.ndarray) -> str:
    """What names a constant in the text: its type, shape and bytes."""
    h = hashlib.sha256(f"{array.dtype}{array.shape}".encode())
    h.update(
        repr(array.tolist()).encode()
        if array.dtype == object
        else np.ascontiguousarray(array).view(np.uint8).data
        if array.size and array.ndim
        else array.tobytes()
    )
    return h.hexdigest()[:16]


# --- printing
def to_text(graph: Graph, constants: Constants | None = None, locs: bool = True) -> str:
    """``graph`` as text; constants too large to stand in it are put into ``constants`` by digest, if given."""
    return "\n".join(_Printer(constants, locs).graph(graph, [], "", symbols_of(graph))) + "\n"


def symbols_of(graph: Graph) -> dict[str, dm.Symbol]:
    """Every symbol in the types and attributes of ``graph`` and its bodies, by name."""
    found: dict[str, dm.Symbol] = {}

    def see(x: Any) -> None:
        if isinstance(x, dm.Sum):
            for s in sorted(dm.symbols(x), key=str):
                see(s.below)  # is printed, and read, before what it bounds
                found.setdefault(s.name, s)
        elif isinstance(x, tuple):
            for e in x:
                if not isinstance(e, (int, str)):
                    see(e)
        elif RECORDS.get(type(x).__name__) is type(x):
            for f in fields(x):
                see(getattr(x, f.name))

    for g in walk(graph):
        for v in (*g.inputs, *g.outputs):
            see(v.shape)
        for node in g.nodes:
            for f in fields(node.attrs):
                see(getattr(node.attrs, f.name))
            for v in node.outputs:
                see(v.shape)
    return found


def walk(graph: Graph) -> Iterator[Graph]:
    """``graph`` and the graphs inside it."""
    yield graph
    for node in graph.nodes:
        for body in node.bodies:
            yield from walk(body)


class _Printer:
    def __init__(self, constants: Constants | None, locs: bool):
        self.constants = constants
        self.locs = locs

    def graph(
        self, graph: Graph, outer: list[dict[Value, str]], indent: str, symbols: Mapping[str, dm.Symbol] | None = None
    ) -> list[str]:
        names: dict[Value, str] = {}
        taken: set[str] = set()
        scopes = [names, *outer]
        pad = indent + "  "

        def declare(v: Value) -> str:
            name, n = v.name, 1
            while name in taken:  # a constant made for another graph
                name, n = f"{v.name}_{n}", n + 1
            taken.add(name)
            names[v] = name
            return f"{_name(name)}: {v.type}"

        lines = [f"{indent}graph {json.dumps(graph.name)} {{"]
        for s in (symbols or {}).values():
            bound = f" in {s.lo}..{'' if s.hi is None else s.hi}" if (s.lo, s.hi) != (0, None) else ""
            multiple = f" multiple_of {s.multiple_of}" if s.multiple_of != 1 else ""
            lines.append(
                f"{pad}dim {s.name}{bound}{multiple}"
                + (f" hint {s.hint}" if s.hint is not None else "")
                + (f" below {s.below}" if s.below is not None else "")
            )
        lines += [f"{pad}input {declare(v)}" for v in graph.inputs]
        nodes = list(graph.nodes)
        taken.update(v.name for node in nodes for v in node.outputs)
        for v in (*(v for node in nodes for v in node.inputs), *graph.outputs):
            if v is not None and v.const is not None and not any(v in s for s in scopes):
                lines.append(f"{pad}const {declare(v)} = {self.constant(v.const)}")
        for node in nodes:
            for v in node.outputs:
                taken.discard(v.name)
            lines += self.node(node, declare, scopes, pad)
        for i, v in enumerate(graph.outputs):
            name = f"{json.dumps(graph.output_names[i])} = " if graph.output_names else ""
            lines.append(f"{pad}output {name}{_use(v, scopes)}")
        return [*lines, f"{indent}}}"]

    def node(self, node: Node, declare: Any, scopes: list[dict[Value, str]], pad: str) -> list[str]:
        inputs = ", ".join("none" if v is None else _use(v, scopes) for v in node.inputs)
        attrs = format_attrs(node.attrs)
        bodies = [line for body in node.bodies for line in self.graph(body, scopes, pad + "  ")]
        outputs = ", ".join(declare(v) for v in node.outputs)
        text = f"{pad}{outputs} = {node.op.name}({inputs})" + (f" {{{attrs}}}" if attrs else "")
        if self.locs:
            text += "".join(
                f" @({_strings(loc.model, loc.path)}, {loc.index}, {_strings(loc.name, loc.op_type)})"
                for loc in node.locs
            )
        return [f"{text} do {{", *bodies, f"{pad}}}"] if bodies else [text]

    def constant(self, array: np.ndarray) -> str:
        if (
            array.size > 1
            and array.dtype != object
            and array.flat[0] == array.flat[-1]
            and np.all(array.flat[0] == array)
        ):
            text = f"full({_literal(array.flat[0])})"
            if _same(parse_constant(Scanner(text), array.dtype, array.shape, {}), array):
                return text
        if array.size <= INLINE or array.dtype == object:
            text = "[" + ", ".join(_literal(x) for x in array.reshape(-1)) + "]"
            if _same(parse_constant(Scanner(text), array.dtype, array.shape, {}), array):
                return text
            return f'bytes "{np.ascontiguousarray(array).tobytes().hex()}"'
        key = digest(array)
        if self.constants is not None:
            self.constants[key] = array
        return f'sha256 "{key}"'


def format_attrs(attrs: Any) -> str:
    """Attributes that differ from their defaults."""
    parts = []
    for f in fields(attrs):
        x = getattr(attrs, f.name)
        default = f.default_factory() if f.default_factory is not MISSING else f.default
        if default is MISSING or type(x) is not type(default) or x != default:
            parts.append(f"{f.name} = {format_value(x)}")
    return ", ".join(parts)


def _strings(*texts: str) -> str:
    return ", ".join(json.dumps(t) for t in texts)


def _name(name: str, up: int = 0) -> str:
    return "%" + "^" * up + (name if parse.BARE.match(name) else json.dumps(name))


def _use(v: Value, scopes: list[dict[Value, str]]) -> str:
    for up, scope in enumerate(scopes):
        if v in scope:
            return _name(scope[v], up)
    raise ValueError(f"%{v.name} is read, but no graph around it defines it")


def _literal(x: Any) -> str:
    if isinstance(x, (str, bytes)):
        return json.dumps(x if isinstance(x, str) else x.decode("latin-1"))
    if isinstance(x, (bool, np.bool_)):
        return "true" if x else "false"
    if isinstance(x, (int, np.integer)):
        return str(int(x))
    if isinstance(x, (complex, np.complexfloating)):
        return "0"  # never reads back as the same: complex constants are printed as bytes
    text = str(np.float32(x)) if np.dtype(type(x)).itemsize < 4 else str(x)
    if text in ("inf", "-inf", "nan"):
        return format_value(float(text))
    return text


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and (
        a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == np.ascontiguousarray(b).tobytes()
    )


# --- parsing
def from_text(text: str, constants: Mapping[str, np.ndarray] | None = None) -> Graph:
    """The graph that prints as ``text``. ``constants`` holds the large ones by digest. Raises ParseError."""
    s = Scanner(text)
    graph = _graph(s, {}, [], constants or {})
    if s.kind != "end":
        raise s.error(f"{s.token!r} after the graph")
    return graph


def parse_constant(
    s: Scanner, dtype: np.dtype, shape: tuple[int, ...], constants: Mapping[str, np.ndarray]
) -> np.ndarray:
    """``[1, 2]``, ``full(0.5)``, ``bytes "00ff"``, ``sha256 "…"``; in tests also ``random(seed)``: normal, a tenth wide."""
    size = int(np.prod(shape))
    if s.accept("["):
        items = s.listed(lambda: parse.value(s, {}), "]")
        if len(items) != size:
            raise s.error(f"{len(items)} elements for shape {list(shape)}")
        return _typed(items, dtype).reshape(shape)
    form = s.take("name")
    if form == "full":
        s.expect("(")
        item = parse.value(s, {})
        s.expect(")")
        return np.full(shape, _typed([item], dtype)[0], dtype)
    if form == "random":
        s.expect("(")
        seed = s.integer()
        s.expect(")")
        return np.asarray(np.random.default_rng(seed).standard_normal(shape) * 0.1).astype(dtype)
    if form == "bytes":
        return np.array(np.frombuffer(bytes.fromhex(s.string()), dtype).reshape(shape))
    if form == "sha256":
        key = s.string()
        if key not in constants:
            raise s.error(f"the data of constant {key} is not given")
        return constants[key]
    raise s.error(f"no constant is written as {form!r}")


def _typed(items: list[Any], dtype: np.dtype) -> np.ndarray:
    if dtype.kind in "fV" or dtype.kind == "c":
        return np.array(items, np.float64).astype(dtype)
    return np.array(items, dtype) if dtype.kind in "biuO" else np.array(items).astype(dtype)


Scopes = list[dict[str, Value]]


def _graph(s: Scanner, symbols: Symbols, outer: Scopes, constants: Mapping[str, np.ndarray]) -> Graph:
    s.expect("graph")
    graph = Graph(s.string())
    s.expect("{")
    known = dict(symbols)
    names: dict[str, Value] = {}
    scopes = [names, *outer]
    while not s.accept("}"):
        if s.kind == "value":
            _node(s, graph, known, scopes, constants)
        elif s.accept("dim"):
            d = _symbol(s, known)
            known[d.name] = d
        elif s.accept("input"):
            name, type = _declared(s, known)
            names[name] = graph.add_input(name, type)
        elif s.accept("const"):
            name, type = _declared(s, known)
            s.expect("=")
            array = parse_constant(s, type.dtype.numpy, tuple(int(d) for d in type.shape), constants)  # type: ignore[arg-type]
            names[name] = Value(graph.unique(name), type, const=array)
            if type.dtype is not STRING:
                content.of_constant(names[name])
        elif s.accept("output"):
            if s.kind == "string":
                graph.output_names.append(s.string())
                s.expect("=")
            graph.outputs.append(_used(s, graph, scopes))
        else:
            raise s.error(f"expected a node, dim, input, const or output, found {s.token!r}")
    return graph


def _symbol(s: Scanner, symbols: Symbols) -> dm.Symbol:
    name = s.take("name")
    lo, hi, multiple, hint = 0, None, 1, None
    if s.token == "in":  # lo..hi: the scanner would take "1." for a number
        m = _BOUNDS.match(s.text, s.at)
        if m is None:
            raise s.error("expected lo..hi")
        lo, hi = int(m[1]), int(m[2]) if m[2] else None
        s.at = m.end()
        s.next()
    if s.accept("multiple_of"):
        multiple = s.integer()
    if s.accept("hint"):
        hint = s.integer()
    below = parse.dim(s, symbols) if s.accept("below") else None
    return dm.Symbol(name, lo, hi, multiple, hint, below)


_BOUNDS = parse.re.compile(r"\s*(-?\d+)\.\.(-?\d+)?")


def _spelled(s: Scanner) -> tuple[int, str]:
    token = s.take("value")[1:]
    name = token.lstrip("^")
    return len(token) - len(name), json.loads(name) if name.startswith('"') else name


def _declared(s: Scanner, symbols: Symbols) -> tuple[str, TensorType]:
    _, name = _spelled(s)
    s.expect(":")
    return name, parse.tensor_type(s, symbols)


def _used(s: Scanner, graph: Graph, scopes: Scopes) -> Value:
    up, name = _spelled(s)
    if up >= len(scopes) or name not in scopes[up]:
        raise s.error(f"nothing before this defines %{'^' * up}{name}")
    v = scopes[up][name]
    if up and v.const is None and v not in graph.captured:
        graph.captured.append(v)
    return v


def _output(s: Scanner, symbols: Symbols) -> tuple[str, TensorType | None]:
    """A name and its type, which may be left out in text that people write: then it is inferred."""
    _, name = _spelled(s)
    return name, parse.tensor_type(s, symbols) if s.accept(":") else None


def _node(s: Scanner, graph: Graph, symbols: Symbols, scopes: Scopes, constants: Mapping[str, np.ndarray]) -> None:
    outputs = [_output(s, symbols)]
    while s.accept(","):
        outputs.append(_output(s, symbols))
    s.expect("=")
    op_name = s.take("name")
    op = OPS.get(op_name)
    if op is None:
        raise s.error(f"no op is called {op_name!r}")
    s.expect("(")
    inputs = s.listed(lambda: None if s.accept("none") else _used(s, graph, scopes), ")")
    attrs = _attrs(s, symbols) if s.accept("{") else {}
    locs: list[Loc] = []
    while s.accept("@"):
        s.expect("(")
        model, path = s.string(), s.accept(",") and s.string()
        s.expect(",")
        index = s.integer()
        s.expect(",")
        name, op_type = s.string(), s.accept(",") and s.string()
        s.expect(")")
        locs.append(Loc(model, str(path), index, name, str(op_type)))
    bodies: list[Graph] = []
    if s.accept("do"):
        s.expect("{")
        while not s.accept("}"):
            bodies.append(_graph(s, symbols, scopes, constants))
    for body in bodies:  # what a nested body reads from around this graph, this graph captures as well
        for v in body.captured:
            if not any(v is own for own in scopes[0].values()) and v not in graph.captured:
                graph.captured.append(v)
    try:
        bound = op.attrs(**attrs)
    except TypeError as e:
        raise s.error(f"{op_name}: {e}") from e
    types = [t for _, t in outputs if t is not None]
    if len(types) < len(outputs):
        try:
            types = list(op.infer([None if v is None else v.type for v in inputs], bound))
        except ValueError as e:
            raise s.error(f"{op_name}: {e}") from e
    node = graph.append(Node(op, inputs, bound, locs, bodies), types, [n for n, _ in outputs])
    scopes[0].update(zip((n for n, _ in outputs), node.outputs))
    content.propagate(node)


def _attrs(s: Scanner, symbols: Symbols) -> dict[str, Any]:
    attrs: dict[str, Any] = {}
    while not s.accept("}"):
        name = s.take("name")
        s.expect("=")
        attrs[name] = parse.value(s, symbols)
        if not s.accept(","):
            s.expect("}")
            break
    return attrs


__all__ = [
    "Constants",
    "ParseError",
    "digest",
    "format_attrs",
    "from_text",
    "parse_constant",
    "symbols_of",
    "to_text",
    "walk",
]
