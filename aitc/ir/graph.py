"""The graph: nodes over values, in topological order, mutated only by insert, replace and sweep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from aitc.errors import Loc
from aitc.ir.dim import Dim, Sum, symbols
from aitc.ir.op import Op
from aitc.ir.types import TensorType

Content = np.ndarray  # object array of Dims: what a small integer tensor holds, as far as it is known at compile time


class Value:
    """A tensor: a graph input (no producer), a constant (``const``), or one output of a node.

    ``content`` is set for small integer tensors (shapes, axes, bounds) whose elements are known Dims, constant or not: it is
    how shape arithmetic disappears. ``keep_fp32`` and the like are decisions of passes and live with the passes.
    """

    __slots__ = ("name", "type", "producer", "index", "users", "const", "content")

    def __init__(self, name: str, type: TensorType, producer: "Node | None" = None, index: int = 0,
                 const: np.ndarray | None = None, content: Content | None = None):  # fmt: skip
        self.name = name
        self.type = type
        self.producer = producer
        self.index = index
        self.users: dict[Node, int] = {}  # node -> how many of its inputs this is
        self.const = const
        self.content = content

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.type.shape

    @property
    def dtype(self) -> Any:
        return self.type.dtype

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


class Node:
    """One application of a core op. ``locs`` are the ONNX nodes it stands for; ``bodies`` the graphs of a control op."""

    __slots__ = ("op", "inputs", "attrs", "outputs", "locs", "bodies")

    def __init__(self, op: Op, inputs: Sequence[Value | None], attrs: Any, locs: Iterable[Loc] = (), bodies: Sequence["Graph"] = ()):
        self.op = op
        self.inputs: tuple[Value | None, ...] = tuple(inputs)
        self.attrs = attrs
        self.outputs: tuple[Value, ...] = ()
        self.locs: tuple[Loc, ...] = tuple(dict.fromkeys(locs))
        self.bodies: tuple[Graph, ...] = tuple(bodies)

    @property
    def output(self) -> Value:
        return self.outputs[0]

    @property
    def input(self) -> Value:
        value = self.inputs[0]
        assert value is not None
        return value

    def __repr__(self) -> str:
        return f"{', '.join(o.name for o in self.outputs)} = {self.op.name}({', '.join('-' if i is None else i.name for i in self.inputs)})"


class Graph:
    """Nodes in topological order. ``inputs`` and ``outputs`` keep ONNX's order and names; ``captured`` are outer values of a body."""

    def __init__(self, name: str):
        self.name = name
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.output_names: list[str] = []  # the model's names: an output value may serve two of them
        self.captured: list[Value] = []  # also those that only a nested body reads
        self._holders: dict[Node, None] = {}  # nodes with bodies, attached here
        self._nodes: dict[Node, None] = {}  # insertion order is topological order
        self._names: set[str] = set()
        self._fresh = 0

    # --- reading
    @property
    def nodes(self) -> Iterator[Node]:
        """The nodes, in topological order; a snapshot is taken, so the graph may change while iterating."""
        return iter(list(self._nodes))

    @property
    def holders(self) -> tuple[Node, ...]:
        """The nodes that have bodies."""
        return tuple(self._holders)

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, node: Node) -> bool:
        return node in self._nodes

    def values(self) -> Iterator[Value]:
        """Inputs, then constants and node outputs in order of first use."""
        seen: set[int] = set()
        for v in self.inputs:
            seen.add(id(v))
            yield v
        for node in self.nodes:
            for read in (*node.inputs, *node.outputs):
                if read is not None and id(read) not in seen:
                    seen.add(id(read))
                    yield read

    # --- making values
    def unique(self, name: str) -> str:
        """``name``, or with a number behind it if it is taken; reserved from now on."""
        name = name or "v"
        candidate, n = name, 1
        while candidate in self._names:
            self._fresh += 1
            n = self._fresh
            candidate = f"{name}_{n}"
        self._names.add(candidate)
        return candidate

    def add_input(self, name: str, type: TensorType) -> Value:
        v = Value(self.unique(name), type)
        self.inputs.append(v)
        return v

    def constant(self, array: np.ndarray, name: str = "c", type: TensorType | None = None) -> Value:
        """A constant value; it belongs to the graph as long as a node reads it."""
        from aitc.ir import dtype as dt

        array = np.asarray(array)
        return Value(self.unique(name), type or TensorType(dt.of(array), tuple(int(d) for d in array.shape)), const=array)

    # --- mutation
    def append(self, node: Node, types: Sequence[TensorType], names: Sequence[str] = ()) -> Node:
        """Adds ``node`` at the end with fresh output values of ``types``."""
        self._attach(node, types, names)
        self._nodes[node] = None
        return node

    def insert(self, before: Node, nodes: Sequence[Node]) -> None:
        """Puts nodes (already attached with ``attach``) in front of ``before``, in order. One call is linear in the graph:
        rewrites that replace many nodes collect them and use ``reorder`` once."""
        order: dict[Node, None] = {}
        for n in self._nodes:
            if n is before:
                order.update(dict.fromkeys(nodes))
            order[n] = None
        self._nodes = order

    def attach(self, node: Node, types: Sequence[TensorType], names: Sequence[str] = ()) -> Node:
        """Gives ``node`` its outputs and registers its uses without placing it: ``insert``, ``replace`` or ``reorder`` place it."""
        self._attach(node, types, names)
        return node

    def _attach(self, node: Node, types: Sequence[TensorType], names: Sequence[str]) -> None:
        node.outputs = tuple(
            Value(self.unique(names[i] if i < len(names) and names[i] else node.op.name.lower()), t, node, i)
            for i, t in enumerate(types)
        )
        for v in node.inputs:
            if v is not None:
                v.users[node] = v.users.get(node, 0) + 1
        if node.bodies:
            self._holders[node] = None

    def place_behind(self, behind: Mapping[Node, Sequence[Node]]) -> None:
        """Puts attached nodes behind nodes of the graph. Linear, for any number of them."""
        order: dict[Node, None] = {}
        for n in self._nodes:
            order[n] = None
            order.update(dict.fromkeys(behind.get(n, ())))
        self._nodes = order

    def replace_uses(self, old: Value, new: Value) -> None:
        """Every reader of ``old``, in bodies too, and the graph's outputs, read ``new``; the caller keeps topological order valid."""
        if old is new:
            return
        self._rebind(old, new)
        for node in list(old.users):
            node.inputs = tuple(new if v is old else v for v in node.inputs)
            new.users[node] = new.users.get(node, 0) + old.users.pop(node)

    def rebind(self, old: Value, new: Value) -> None:
        """Lets this body, and those inside it, read the outer value ``new`` where they read ``old``."""
        if old not in self.captured:
            return
        for node in self._nodes:
            if old in node.inputs:
                self.set_inputs(node, [new if v is old else v for v in node.inputs])
            for body in node.bodies:
                body.rebind(old, new)
        self.captured = [new if v is old else v for v in self.captured]
        self.outputs = [new if v is old else v for v in self.outputs]

    def _rebind(self, old: Value, new: Value) -> None:
        self.outputs = [new if v is old else v for v in self.outputs]
        for node in self._holders:
            for body in node.bodies:
                if old in body.captured:
                    fresh = [new] if new.const is None and new not in body.captured else []
                    at = body.captured.index(old)
                    body.captured[at : at + 1] = fresh
                    body._rebind(old, new)

    def set_inputs(self, node: Node, inputs: Sequence[Value | None]) -> None:
        """Changes what ``node`` reads, keeping users in step."""
        for v in node.inputs:
            if v is not None:
                v.users[node] -= 1
                if not v.users[node]:
                    del v.users[node]
        node.inputs = tuple(inputs)
        for v in node.inputs:
            if v is not None:
                v.users[node] = v.users.get(node, 0) + 1

    def remove(self, node: Node) -> None:
        """Removes a node that nobody reads. Raises ValueError if somebody does."""
        if any(o.users for o in node.outputs) or any(o in self.outputs for o in node.outputs):
            raise ValueError(f"{node!r} is still in use")
        self.release(node)
        del self._nodes[node]

    def release(self, node: Node) -> None:
        """Drops what ``node`` and its bodies read. The node is of no more use; ``remove`` and ``sweep`` end with this."""
        self.set_inputs(node, ())
        self._holders.pop(node, None)
        for body in node.bodies:
            body.discard()

    def discard(self) -> None:
        """Drops all that this body's nodes read outside of it: for a body that no node takes."""
        for node in self.nodes:
            self.release(node)

    def adopt(self, place: Node, nodes: Sequence[Node]) -> None:
        """Puts ``nodes`` of a body of ``place`` where it stands; ``place``, which nobody reads, goes. Names stay unique."""
        for n in nodes:
            for v in n.outputs:
                v.name = self.unique(v.name)
            if n.bodies:
                self._holders[n] = None
        self.insert(place, nodes)
        self.set_inputs(place, ())
        self._holders.pop(place, None)
        del self._nodes[place]

    def sweep(self) -> int:
        """Removes nodes whose results nobody needs; returns how many."""
        live = {id(v) for v in self.outputs}
        given = {s.name for v in self.inputs for d in v.shape for s in symbols(d)}
        defined = {node: found for node in self._nodes if (found := _defined_by(node))}
        for node, found in defined.items():
            if node.op.name == "ReadDims":  # it reads what a node that it stands beside counted before it was lowered
                given |= found
        defined = {node: found if node.op.name == "ReadDims" else found - given for node, found in defined.items()}
        needed: set[str] = set()  # symbols of what is live, collected only where a node defines some
        removed = 0
        for node in reversed(list(self._nodes)):
            if not defined.get(node, set()) & needed and not any(o.users or id(o) in live for o in node.outputs):
                self.release(node)
                del self._nodes[node]
                removed += 1
                continue
            if defined:
                needed |= _symbols_of(node)
            for body in node.bodies:  # a body's output may be an outer value that no node reads
                live.update(id(v) for v in body.captured)
        return removed

    def reorder(self, extra: Iterable[Node] = ()) -> None:
        """Sorts nodes (with newly attached ``extra``) topologically, keeping the present order where it is free. Linear."""
        pool = dict(self._nodes)
        pool.update(dict.fromkeys(extra))
        done: dict[Node, None] = {}
        for root in pool:
            if root in done:
                continue
            stack: list[tuple[Node, Iterator[Value | None]]] = [(root, iter(_reads(root)))]
            while stack:
                node, inputs = stack[-1]
                for v in inputs:
                    p = v.producer if v is not None else None
                    if p is not None and p in pool and p not in done:
                        stack.append((p, iter(_reads(p))))
                        break
                else:
                    done[node] = None
                    stack.pop()
        self._nodes = done


def _defined_by(node: Node) -> set[str]:
    """Names of the symbols that get their values when ``node`` runs: counts and sizes that only the data decides."""
    if node.op.name == "ReadDims":
        return {s.name for d in node.attrs.dims for s in symbols(d)}
    if node.bodies:
        read = [*node.inputs, *(v for body in node.bodies for v in body.captured)]
        known = {s.name for v in read if v is not None for d in v.shape for s in symbols(d)}
        return {s.name for v in node.outputs for d in v.shape for s in symbols(d)} - known
    count = getattr(node.attrs, "count", 0)
    return {s.name for s in symbols(count)} if isinstance(count, Sum) else set()


def _symbols_of(node: Node) -> set[str]:
    """Names of the symbols in a node's attributes, in its outputs' types and in its bodies."""
    found = {s.name for v in node.outputs for d in v.shape for s in symbols(d)}
    for name in getattr(node.attrs, "__dataclass_fields__", ()) if node.op.name != "ReadDims" else ():
        x = getattr(node.attrs, name)
        for d in x if isinstance(x, tuple) else (x,):
            if isinstance(d, Sum):
                found |= {s.name for s in symbols(d)}
    for body in node.bodies:
        for inner in body.nodes:
            found |= _symbols_of(inner)
    return found


def _reads(node: Node) -> list[Value | None]:
    return [*node.inputs, *(v for body in node.bodies for v in body.captured)]
