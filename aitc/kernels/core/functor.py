"""Functors: what a kernel does to each element it loads or stores, as C++ text.

``FunctorBuilder.value(v, index)`` writes the code that computes value ``v`` at ``index`` (Dims over coordinate symbols) and returns a
reference to it: pointwise nodes of the group become statements, views change the index, ops with an element rule (``elements/``) write loops or
conditions, everything else is loaded from memory. A functor handles V consecutive elements of its last coordinate: what does not
vary along them is computed once, contiguous operands become vector loads, the rest is done element by element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from aitc.ir.cpp import c_expr
from aitc.ir.dim import Dim, Sum, Symbol, as_symbol, bounds, symbol, symbols, transform
from aitc.ir.graph import Node, Value
from aitc.ir.index import Index, broadcast_index, is_view, source_index
from aitc.ir.op import Kind
from aitc.kernels.core.spelling import address, converted, dim_name, literal, note, stored
from aitc.kernels.core.vectors import as_dim, split_index, vector_step, vectorizes
from aitc.registry import Registry


@dataclass(frozen=True, slots=True)
class Storage:
    """Where a value lies: element ``offset + Σ strides · index`` of ``root``, whose memory is dense."""

    root: Value
    offset: Dim
    strides: tuple[Dim, ...]

    def at(self, index: Index) -> Dim:
        total: Dim = self.offset
        for s, i in zip(self.strides, index, strict=True):
            total = total + s * i
        return total


StorageOf = Callable[[Value], Storage]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of code and the ONNX node it came from (shown as a comment, left out of the identity of a kernel)."""

    code: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A pointer parameter of a kernel: ``name``, element type, and the value it points to."""

    name: str
    c_type: str
    root: Value
    const: bool

    @property
    def declaration(self) -> str:
        return f"{'const ' if self.const else ''}{self.c_type}* {self.name}"


class Parameters:
    """The parameters of one kernel, shared by its functors: pointers named x0 w0 y0 … (so that equal kernels have equal texts) and dims."""

    def __init__(self) -> None:
        self.pointers: dict[tuple[int, bool], Parameter] = {}
        self.dims: dict[str, Symbol] = {}
        self._count = {"x": 0, "w": 0, "y": 0}

    def clone(self) -> "Parameters":
        other = Parameters()
        other.pointers, other.dims, other._count = dict(self.pointers), dict(self.dims), dict(self._count)
        return other

    def adopt(self, other: "Parameters") -> None:
        """Takes over what a clone has gained."""
        self.pointers, self.dims, self._count = other.pointers, other.dims, other._count

    def pointer(self, root: Value, const: bool) -> str:
        key = (id(root), const)
        if key not in self.pointers:
            letter = "y" if not const else "w" if root.const is not None else "x"
            name = f"{letter}{self._count[letter]}"
            self._count[letter] += 1
            self.pointers[key] = Parameter(name, root.type.dtype.c, root, const)
        return self.pointers[key].name

    def dim(self, s: Symbol) -> str:
        """The C++ name of a run-time dim; coordinates and locals (names that begin with @) are spelled as they are."""
        if s.name.startswith("@"):
            return s.name[1:]
        self.dims[s.name] = s
        return dim_name(s.name)


@dataclass(slots=True)
class Ref:
    """A computed value: C++ text in the compute type, whether it is the same for all V elements, and whether nested loops see it."""

    text: str
    uniform: bool
    outer: bool  # declared outside the element loop


@dataclass(slots=True)
class _Block:
    """``pre`` runs once, ``body`` for each of the V elements, ``post`` once. An element block has a body alone, inside somebody's loop."""

    element: bool
    pre: list[Line] = field(default_factory=list)
    body: list[Line] = field(default_factory=list)
    post: list[Line] = field(default_factory=list)
    memo: dict[tuple[int, Index], Ref] = field(default_factory=dict)


INDENT = "  "


class FunctorBuilder:
    """Writes one functor.

    ``vector`` is the coordinate along which V elements are consecutive (None: V is always 1);
    ``inside`` the nodes of the group; ``given`` what the kernel itself supplies: value -> (index, text per element).
    ``aligned``: V is always ``width`` and the coordinate a multiple of it, so that what an element adds to an index can be seen.
    ``rows``: coordinates that the kernel tells the functor before it computes, by ``enter``: what depends on nothing else is computed there, once
    (``entered``). ``prefetch``: it also asks for constants that depend on the vector coordinate alone, before it may read anything else.
    """

    def __init__(
        self,
        inside: frozenset[Node] | set[Node],
        vector: Symbol | None,
        width: int,
        parameters: Parameters,
        storage: StorageOf,
        given: dict[Value, tuple[Index, str]] | None = None,
        aligned: bool = False,
        rows: Sequence[Symbol] = (),
        prefetch: bool = False,
    ):
        self.inside = inside
        self.vector = vector
        self.width = width
        self.parameters = parameters
        self.storage = storage
        self.given = given or {}
        self.aligned = aligned and width > 1 and vector is not None
        self.used: dict[str, None] = {}  # parameter names this functor mentions, in order
        self.used_dims: dict[str, None] = {}
        self._locals: dict[str, bool] = {}  # symbol name -> varies along the vector
        self._blocks = [_Block(element=False)]
        self._count = 0
        self.reads: list[
            tuple[Value, Dim, str]
        ] = []  # (root, offset, access), for choosing widths and for in-place reuse
        self.rows = frozenset(rows)
        self.held: list[str] = []  # members that ``enter`` and ``settle`` fill
        self.enter: list[Line] = []
        self.settle: list[Line] = []
        self.prefetch = prefetch
        self.columns: dict[str, None] = {}  # addresses of constants that depend on the vector coordinate alone

    # --- names and expressions
    def fresh(self, letter: str) -> str:
        self._count += 1
        return f"{letter}{self._count - 1}"

    def local(self, name: str, lo: int, hi: int | None, varies: bool, below: Dim | None = None) -> Dim:
        """A symbol for a C++ variable that the functor declares itself (a loop counter, a gathered index)."""
        self._locals["@" + name] = varies
        return Sum((((Symbol("@" + name, lo, hi, 1, None, below),), 1),))

    def c(self, d: Dim, element: bool = False) -> str:
        """``d`` as C++; with ``element`` the vector coordinate is that of element j."""
        if element and self.vector is not None and self.width > 1:
            j = symbol("@j", 0, self.width - 1)
            vector = self.vector
            if self.aligned:
                pack = Symbol(f"@({vector.name[1:]} / {self.width})", 0, None if vector.hi is None else vector.hi // self.width)
                d = transform(d, lambda s: as_dim(pack) * self.width + j if s == vector else as_dim(s))
            else:
                d = transform(d, lambda s: (as_dim(s) + j) if s == vector else as_dim(s))
        return c_expr(d, self._name)

    def _name(self, s: Symbol) -> str:
        if not s.name.startswith("@"):
            self.used_dims[dim_name(s.name)] = None
        return self.parameters.dim(s)

    def varies(self, d: Dim) -> bool:
        """Whether ``d`` differs between the V elements. (The row of element i does not, where V elements never cross a row.)"""
        found = symbols(d)
        if any(self._locals.get(s.name, False) for s in found):
            return True
        if self.width == 1 or self.vector is None or self.vector not in found:
            return False
        return any(s.name == "@j" for s in symbols(split_index(d, self.vector, self.width)))

    # --- blocks
    @property
    def block(self) -> _Block:
        return self._blocks[-1]

    def emit(self, code: str, uniform: bool, note: str = "") -> None:
        """A statement, once or for each element."""
        b = self.block
        (b.pre if uniform and not b.element else b.body).append(Line(code, note))

    def after(self, code: str, note: str = "") -> None:
        """A statement behind the element loop."""
        self.block.post.append(Line(code, note))

    @contextmanager
    def nested(self, opening: Sequence[str], element: bool, closing: str = "}") -> Iterator[None]:
        """Code inside ``opening`` (lines that each end in a brace, or none). With ``element`` it runs inside the loop over the V elements."""
        element = element or self.block.element
        block = _Block(element=element)
        for outer in self._blocks:  # what inner code may use of outer results
            block.memo.update({k: r for k, r in outer.memo.items() if r.outer or element})
        self._blocks.append(block)
        yield
        self._blocks.pop()
        lines = block.body if element else self._render(block)
        target = self.block.body if element else self.block.pre
        for depth, line in enumerate(opening):
            target.append(Line(INDENT * depth + line))
        target.extend(Line(INDENT * len(opening) + line.code, line.note) for line in lines)
        target.extend(Line(INDENT * depth + closing) for depth in reversed(range(len(opening))))

    def _render(self, block: _Block) -> list[Line]:
        lines = list(block.pre)
        if block.body:
            if self.width == 1 or self.vector is None:
                lines += (
                    [Line("constexpr int j = 0;")] if any("[j]" in b.code or " j" in b.code for b in block.body) else []
                )
                lines += block.body
            else:
                lines.append(Line("AITC_UNROLL for (int j = 0; j < V; ++j) {"))
                lines += [Line(INDENT + b.code, b.note) for b in block.body]
                lines.append(Line("}"))
        return lines + block.post

    def lines(self) -> tuple[Line, ...]:
        """The finished body."""
        assert len(self._blocks) == 1
        return tuple(self._render(self._blocks[0]))

    # --- values
    def value(self, v: Value, index: Index) -> Ref:
        """``v`` at ``index``, in its compute type."""
        if v in self.given:
            at, text = self.given[v]
            if at != index:
                raise ValueError(
                    f"{v.name} is needed at ({', '.join(map(str, index))}), but computed at ({', '.join(map(str, at))})"
                )
            return Ref(text, uniform=False, outer=True)
        key = (id(v), index)
        found = self.block.memo.get(key)
        if found is None:
            found = self._compute(v, index)
            self.block.memo[key] = found
        return found

    def _compute(self, v: Value, index: Index) -> Ref:
        node = v.producer
        if v.const is not None and v.const.size == 1 and v.type.dtype.kind != "complex":
            return Ref(literal(v.const.reshape(-1)[0].item(), v.type.dtype), uniform=True, outer=True)
        if node is not None and is_view(node):
            return self.value(node.input, source_index(node, index))
        if node is not None and node in self.inside:
            if node.op.kind is Kind.POINTWISE:
                return self._pointwise(node, index)
            return ELEMENTS[node.op.name](self, node, v, index)
        return self.load(v, index)

    def _pointwise(self, node: Node, index: Index) -> Ref:
        refs = [self.value(v, broadcast_index(index, v.shape)) for v in node.inputs if v is not None]
        if node.op.name == "Copy":
            return refs[0]
        expression = node.op.expression(node.attrs, [r.text for r in refs])
        dtype = node.output.type.dtype
        if node.op.name == "Cast":
            source = node.input.type.dtype
            if source.compute_c == dtype.compute_c and dtype.is_float and dtype.bits >= 16:
                return refs[0]  # narrower floats are computed in float, and rounded when they are stored
        name = self.fresh("t")
        uniform = all(r.uniform for r in refs)
        self.emit(f"const {dtype.compute_c} {name} = {expression};", uniform, note(node))
        return Ref(name, uniform, outer=uniform and not self.block.element)

    def load(self, v: Value, index: Index) -> Ref:
        """``v`` at ``index`` from memory."""
        storage = self.storage(v)
        pointer = self.parameters.pointer(storage.root, const=True)
        self.used[pointer] = None
        offset = storage.at(index)
        dtype = v.type.dtype
        mode = self.access(offset)
        strided = mode == "element" and self.aligned and (vector_step(offset, self.vector, self.width) or 0) > 1
        self.reads.append((storage.root, offset, "strided" if strided else mode))
        if mode == "uniform":
            name = self.fresh("s")
            self.emit(f"const {dtype.compute_c} {name} = {converted(f'{pointer}[{self.c(offset)}]', dtype)};", True)
            return Ref(name, uniform=True, outer=not self.block.element)
        if mode == "vector" and not self.block.element:
            name, where = self.fresh("v"), address(pointer, self.c(offset))
            if storage.root.const is not None and all(s == self.vector for s in symbols(offset)):
                self.columns[where] = None
            self.emit(f"const auto {name} = load<V>({where});", True)
            return Ref(converted(f"{name}[j]", dtype), uniform=False, outer=True)
        name = self.fresh("e")
        self.emit(
            f"const {dtype.compute_c} {name} = {converted(f'{pointer}[{self.c(offset, element=True)}]', dtype)};", False
        )
        return Ref(name, uniform=False, outer=False)

    def access(self, offset: Dim) -> str:
        """How V elements at ``offset`` are read: ``uniform`` (all the same), ``vector`` (consecutive and aligned) or ``element``."""
        if not self.varies(offset):
            return "uniform"
        if any(self._locals.get(s.name, False) for s in symbols(offset)):
            return "element"
        return "vector" if vectorizes(offset, self.vector, self.width) else "element"

    # --- what element rules use
    def entered(self, offset: Dim, loaded: tuple[str, str], merged: tuple[str, str], note: str = "") -> str:
        """The name of a member that the lanes that share a row fill before the product: ``enter`` loads into a member of type ``loaded[0]``, by
        ``{0}.loaded[1]``, what lies at ``offset``, and ``settle`` makes one of type ``merged[0]`` of it, ``merged[1]`` with ``{0}``.
        "" if it depends on more than the row, or there is no ``enter``."""
        if not self.rows or any(s.name.startswith("@") and s not in self.rows for s in symbols(offset)):
            return ""
        n = len(self.enter)
        self.held += [f"{loaded[0]} p{n};", f"{merged[0]} h{n};"]
        self.enter.append(Line(f"p{n}.{loaded[1]};", note))
        self.settle.append(Line(f"h{n} = {merged[1].format(f'p{n}')};", note))
        return f"h{n}"

    def index(self, d: Dim, name: str = "i") -> Dim:
        """Declares a variable holding ``d`` unless it is simple already, and returns its symbol."""
        if isinstance(d, int) or as_symbol(d):
            return d
        variable = self.fresh(name)
        varies = self.varies(d)
        self.emit(f"const index_t {variable} = {self.c(d, element=varies)};", not varies)
        lo, hi = bounds(d)
        return self.local(
            variable, int(lo) if lo != float("-inf") else 0, None if hi == float("inf") else int(hi), varies
        )

    def integer(self, ref: Ref, lo: int, hi: int | None, wrap: Dim | None = None) -> Dim:
        """A symbol for an integer that was computed at run time; with ``wrap`` negative values count from that end."""
        name = self.fresh("g")
        text = f"wrap_index({ref.text}, {self.c(wrap)})" if wrap is not None else ref.text
        self.emit(f"const index_t {name} = {text};", ref.uniform)
        return self.local(name, lo, hi, varies=not ref.uniform)

    def accumulators(self, c_type: str, initial: str) -> str:
        """An array of V variables (one, inside an element block) to be updated by nested code; returns the text of element j."""
        name = self.fresh("a")
        if self.block.element:
            self.emit(f"{c_type} {name} = {initial};", False)
            return name
        if self.width == 1 or self.vector is None:
            self.emit(f"{c_type} {name} = {initial};", True)
            return name
        self.emit(f"{c_type} {name}[V];", True)
        self.emit(f"AITC_UNROLL for (int j = 0; j < V; ++j) {name}[j] = {initial};", True)
        return f"{name}[j]"

    # --- stores
    def store(self, v: Value, index: Index, ref: Ref, storage: Storage | None = None) -> None:
        """Writes ``ref`` as ``v`` at ``index``."""
        storage = storage or self.storage(v)
        pointer = self.parameters.pointer(storage.root, const=False)
        self.used[pointer] = None
        offset = storage.at(index)
        dtype = v.type.dtype
        value = stored(ref.text, dtype)
        if self.width > 1 and self.access(offset) == "vector":
            name = self.fresh("r")
            self.emit(f"Vec<{dtype.c}, V> {name};", True)
            self.emit(f"{name}[j] = {value};", False)
            self.after(f"store<V>({address(pointer, self.c(offset))}, {name});")
        else:
            self.emit(f"{pointer}[{self.c(offset, element=True)}] = {value};", False)


ElementRule = Callable[[FunctorBuilder, Node, Value, Index], Ref]
ELEMENTS: Registry[ElementRule] = Registry("element rule")
