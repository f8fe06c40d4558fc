"""Walks ONNX nodes and makes core nodes of them; inlines functions and resolves bodies."""

from __future__ import annotations

import inspect
import math
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

import onnx

from aitc.errors import Diagnostic, Loc
from aitc.importer import attributes, bodies, functions, limits
from aitc.importer.check import normalized
from aitc.importer.external import BadTensor
from aitc.importer.joining import Placed, Tail, move
from aitc.importer.opinion import rejected
from aitc.importer.order import ordered, subgraphs
from aitc.importer.weights import sparse_to_array, to_array
from aitc.ir.graph import Graph, Value
from aitc.ir.types import TensorType
from aitc.ops.declare import (
    Importer,
    OptionalValue,
    Scope,
    SequenceValue,
    Unjoined,
    Unsupported,
    UseBody,
    find_importer,
)

Lazy = Union[onnx.TensorProto, onnx.SparseTensorProto]


class Failed:
    """What stands for the outputs of a node that could not be imported: whoever reads it is skipped, without a
    second error."""


FAILED = Failed()


@dataclass(slots=True)
class Environment:
    """The names visible at one place: those of a graph or function body, then the outer graph's."""

    opsets: Mapping[str, int]
    path: str
    outer: Environment | None = None
    values: dict[str, Any] = field(default_factory=dict)
    lazy: dict[str, Lazy] = field(default_factory=dict)  # initializers that nobody has read yet
    attributes: Mapping[str, Any] | None = None  # of the function call that is being inlined
    calls: tuple[tuple[str, str, str], ...] = ()  # functions that are being inlined, to find recursion
    results: frozenset[str] = frozenset()  # names that the graph or function gives
    gives: tuple[str, ...] = ()  # the same, in order, where this is what follows in a branch of an If

    def defines(self, name: str) -> bool:
        """Whether a name stands for something here, or in a graph around."""
        at: Environment | None = self
        while at is not None:
            if name in at.values or name in at.lazy:
                return True
            at = at.outer
        return False


class Walker:
    """Imports nodes of one model. ``count`` is how many ONNX nodes were seen."""

    def __init__(
        self, model: onnx.ModelProto, name: str, folder: Path | None, scope: Scope, problems: list[Diagnostic]
    ):
        self.model = model
        self.name = name
        self.folder = folder
        self.scope = scope
        self.problems = problems
        self.count = 0
        self.functions = {(f.domain, f.name, f.overload): f for f in model.functions}

    # --- before the walk: are all operators known?
    def check_operators(self, opsets: Mapping[str, int]) -> None:
        """Notes every operator that nothing can import, all at once, with the nodes that use it."""
        unknown: dict[tuple[str, str, int], list[Loc]] = {}
        self._check(self.model.graph.node, opsets, "main", unknown)
        for function in self._called():
            self._check(function.node, normalized(function.opset_import), f"{function.domain}.{function.name}", unknown)
        for (domain, op_type, version), locs in unknown.items():
            self.problems.append(functions.unknown_operator(domain, op_type, version, tuple(locs), self.functions))

    def _called(self) -> Iterable[onnx.FunctionProto]:
        """The local functions that the model's nodes call, in the file's order; what nobody calls may hold anything."""
        called: set[int] = set()
        pending = [self.model.graph.node]
        while pending:
            for node in pending.pop():
                pending += [body.node for _, body in subgraphs(node)]
                function = self._function(node)
                if function is not None and id(function) not in called:
                    called.add(id(function))
                    pending.append(function.node)
        return [f for f in self.functions.values() if id(f) in called]

    def _check(
        self,
        nodes: Iterable[onnx.NodeProto],
        opsets: Mapping[str, int],
        path: str,
        unknown: dict[tuple[str, str, int], list[Loc]],
    ) -> None:
        for i, node in enumerate(nodes):
            domain = "" if node.domain == "ai.onnx" else node.domain
            version = opsets.get(domain, 1)
            if not self._known(domain, node, version):
                unknown.setdefault((domain, node.op_type, version), []).append(
                    Loc(self.name, path, i, node.name, node.op_type)
                )
            for label, body in subgraphs(node):
                self._check(body.node, opsets, f"{path}/{node.name or f'{node.op_type}_{i}'}.{label}", unknown)

    def _known(self, domain: str, node: onnx.NodeProto, version: int) -> bool:
        return (
            self._function(node) is not None
            or find_importer(domain, node.op_type, version) is not None
            or functions.schema_has_body(domain, node.op_type, version)
        )

    def _function(self, node: onnx.NodeProto) -> onnx.FunctionProto | None:
        """The local function that a node calls."""
        if functions.built_in(node):
            return None
        return self.functions.get((node.domain, node.op_type, node.overload))

    # --- names
    def lookup(self, name: str, environment: Environment) -> Any:
        """What a name stands for; initializers become constants when they are first read. None for no name."""
        if not name:
            return None
        at: Environment | None = environment
        while at is not None:
            if name in at.values:
                return at.values[name]
            if name in at.lazy:
                tensor = at.lazy.pop(name)
                at.values[name] = self._constant(tensor, name)
                return at.values[name]
            at = at.outer
        return FAILED

    def _constant(self, tensor: Lazy, name: str) -> Any:
        try:
            array = (
                to_array(tensor, self.folder)
                if isinstance(tensor, onnx.TensorProto)
                else sparse_to_array(tensor, self.folder)
            )
            return self.scope.constant(array, name=name)
        except (BadTensor, KeyError) as problem:
            message = str(problem) if isinstance(problem, BadTensor) else f"initializer {name!r} holds strings"
            code, help = (problem.code, problem.help) if isinstance(problem, BadTensor) else ("I05", "")
            self.problems.append(Diagnostic(code, message, stage="import", help=help))
            return FAILED

    @staticmethod
    def describe(value: Any) -> str:
        return (
            "sequence"
            if isinstance(value, SequenceValue)
            else "optional"
            if isinstance(value, OptionalValue)
            else type(value).__name__.lower()
        )

    # --- nodes
    def nodes(self, nodes: Sequence[onnx.NodeProto], environment: Environment, graph: Graph) -> None:
        """Imports nodes in the order of what they read into ``graph``; names of their outputs go into the environment."""
        self.placed(ordered(nodes, environment.defines), environment, graph)

    def placed(self, nodes: Sequence[Placed], environment: Environment, graph: Graph) -> None:
        """Imports nodes as they come. What reads results of an If that differ in rank is imported in its branches."""
        previous, self.scope.graph = self.scope.graph, graph
        tails: dict[int, Tail] = {}
        try:
            pending = list(nodes)[::-1]
            while pending:
                index, node = pending.pop()
                self.count += 1
                if self.count % 4096 == 0:  # loops that are unrolled inside of each other are counted here alone
                    limits.check_count(self.count, self.name)
                tail = tails.get(index)
                try:
                    self._node(node, index, environment, tail)
                except Unjoined as problem:
                    given, hidden, inside = (tail.outputs, tail.hidden, tail.nodes) if tail else (node.output, (), ())
                    apart = {*hidden, *(given[i] for i in problem.outputs)}
                    moved = move(list(node.output), apart, [*inside, *pending[::-1]], environment.results)
                    if moved is None and environment.gives:  # the If around has to take in more
                        raise Unjoined(str(problem), [i for i, n in enumerate(environment.gives) if n in apart]) from None
                    if moved is None:
                        self._report("I05", f"{node.op_type}: {problem}", Loc(self.name, environment.path, index, node.name, node.op_type), [])
                        self._fail(node, environment)
                        continue
                    self.count -= 1
                    tails[index] = moved.tail
                    pending = [*moved.before, (index, node), *moved.behind][::-1]
        finally:
            self.scope.graph = previous

    def _node(self, node: onnx.NodeProto, index: int, environment: Environment, tail: Tail | None = None) -> None:
        loc = Loc(self.name, environment.path, index, node.name, node.op_type)
        inputs = [self.lookup(i, environment) for i in node.input]
        if any(i is FAILED for i in inputs):
            self._fail(node, environment)
            return
        scope = self.scope
        saved = (scope.locs, scope.opset, scope.wanted, scope.body, scope.inline, scope.branches)
        try:
            results = self._dispatch(node, inputs, loc, environment, tail)
        except bodies.BodyFailed:
            self._fail(node, environment)
        except Unjoined:
            raise
        except Unsupported as problem:
            self._report("I05", f"{node.op_type}: {problem}", loc, inputs, problem.help)
            self._fail(node, environment)
        except BadTensor as problem:
            self._report(problem.code, f"{node.op_type}: {problem}", loc, inputs, problem.help)
            self._fail(node, environment)
        except ValueError as problem:
            self._report("I04", f"{node.op_type}: {problem}", loc, inputs)
            self._fail(node, environment)
        except (TypeError, IndexError, KeyError, AttributeError, AssertionError, ArithmeticError) as problem:
            refusal = rejected(node, inputs, environment.opsets, self.model.ir_version)
            if refusal:
                self._report("I04", f"{node.op_type}: {refusal}", loc, inputs)
                self._fail(node, environment)
                return
            where = traceback.extract_tb(problem.__traceback__)[-1]
            message = (
                f"{node.op_type}: {type(problem).__name__}: {problem} (at {Path(where.filename).name}:{where.lineno})"
            )
            self._report("I13", message, loc, inputs, "this is a defect of aitc: please report it with the model")
            self._fail(node, environment)
        else:
            self._bind(node, tail.outputs if tail else node.output, results, environment)
        finally:
            scope.locs, scope.opset, scope.wanted, scope.body, scope.inline, scope.branches = saved

    def _fail(self, node: onnx.NodeProto, environment: Environment) -> None:
        for o in node.output:
            environment.values[o] = FAILED

    def _report(self, code: str, message: str, loc: Loc, inputs: Sequence[Any], help: str = "") -> None:
        types = tuple(
            "absent" if v is None else f"{v.name} {v.type}" if isinstance(v, Value) else self.describe(v)
            for v in inputs
        )
        self.problems.append(Diagnostic(code, message, (loc,), "import", types[:6], help))

    def _bind(self, node: onnx.NodeProto, names: Sequence[str], results: Sequence[Any], environment: Environment) -> None:
        for i, name in enumerate(names):
            value = results[i] if i < len(results) else None
            if not name:
                continue
            if value is None:
                self._report("I05", f"{node.op_type}: output {i} ({name!r}) is not supported", self.scope.locs[0], [])
                value = FAILED
            if isinstance(value, Value) and is_too_large(value.type):
                self._report("I04", f"{node.op_type}: its result {value.type} is more than can be addressed", self.scope.locs[0], [])
                value = FAILED
            if isinstance(value, Value):
                self._rename(value, name)
            environment.values[name] = value

    def _rename(self, value: Value, name: str) -> None:
        """Gives what a node made the name that the model has for it, so that every report speaks the model's
        language."""
        if value.producer is not None and value.producer.locs == self.scope.locs and value.name != name:
            stem = value.producer.op.name.lower()
            if value.name == stem or value.name.startswith(stem + "_"):
                value.name = self.scope.graph.unique(name)

    def _dispatch(
        self, node: onnx.NodeProto, inputs: list[Any], loc: Loc, environment: Environment, tail: Tail | None
    ) -> Sequence[Any]:
        domain = "" if node.domain == "ai.onnx" else node.domain
        version = environment.opsets.get(domain, 1)
        self.scope.at(loc, version, [bool(o) for o in node.output])
        given = self._attributes(node, environment)
        function = self._function(node)
        if function is not None:
            return functions.inline(self, function, node, inputs, given, environment)
        importer = find_importer(domain, node.op_type, version)
        if importer is None:
            return functions.inline_schema(self, domain, node, version, inputs, given, environment)
        bodies.open_bodies(self, environment, loc, tail)
        try:
            result = importer.function(self.scope, *_positional(importer, inputs), **_keywords(importer, given))
        except UseBody:
            return functions.inline_schema(self, domain, node, version, inputs, given, environment)
        return result if isinstance(result, tuple) else (result,)

    def _attributes(self, node: onnx.NodeProto, environment: Environment) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for a in node.attribute:
            if a.ref_attr_name:
                if environment.attributes is None:
                    raise ValueError(f"attribute {a.name!r} refers to {a.ref_attr_name!r} outside of a function")
                if a.ref_attr_name in environment.attributes:
                    given[a.name] = environment.attributes[a.ref_attr_name]
            elif a.name == "consumed_inputs":
                continue  # a hint about memory, in files of before opset 6
            elif a.name in given:
                raise ValueError(f"attribute {a.name!r} is given twice")
            else:
                given[a.name] = attributes.decode(a, self.folder)
        return given


def is_too_large(t: TensorType) -> bool:
    """Whether a tensor of static shape has more bytes than a signed 64-bit offset reaches."""
    sizes = [d for d in t.shape if isinstance(d, int)]
    return len(sizes) == t.rank and math.prod(sizes) * t.dtype.bits // 8 >= 2**62


def _positional(importer: Importer, inputs: list[Any]) -> list[Any]:
    while inputs and inputs[-1] is None:
        inputs = inputs[:-1]
    if not importer.variadic and len(inputs) > len(importer.inputs):
        raise ValueError(
            f"{len(inputs)} inputs, at most {len(importer.inputs)} are known here: {', '.join(importer.inputs)}"
        )
    missing = [
        n
        for i, n in enumerate(importer.inputs[: importer.required])
        if i >= len(inputs) or (inputs[i] is None and n not in importer.nullable)
    ]
    if missing or (importer.variadic and importer.required == 0 and not importer.inputs and not inputs):
        raise ValueError(f"input{'s' if len(missing) > 1 else ''} {', '.join(missing) or '0'} missing")
    return inputs


def _keywords(importer: Importer, given: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(given) - set(importer.attributes))
    if unknown:
        raise ValueError(f"unknown attribute{'s' if len(unknown) > 1 else ''} {', '.join(unknown)}")
    missing = [n for n, default in importer.attributes.items() if default is inspect.Parameter.empty and n not in given]
    if missing:
        raise ValueError(f"attribute{'s' if len(missing) > 1 else ''} {', '.join(missing)} missing")
    for name, value in given.items():
        wanted = onnx.TypeProto if name == "type" else onnx.GraphProto
        if importer.contracts[name].kind is None and not isinstance(value, wanted):
            raise ValueError(f"attribute {name} must be a {wanted.__name__}, got {type(value).__name__}")
    return {k: importer.contracts[k].fitting(k, v) for k, v in given.items()}
