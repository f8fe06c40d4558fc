"""The first stage: an ONNX model as a Graph of core ops.

``import_model`` reads and checks the file, makes Values of inputs and initializers, and walks the nodes: each is handed
to the importer function that ``aitc.ops`` registers for its domain, name and opset version, or replaced by the body of
its function. All problems are collected and raised at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

import onnx

from aitc import registry
from aitc.errors import AitcError, Diagnostic, near
from aitc.importer import check, dims, empty, limits
from aitc.importer.dims import Binding
from aitc.importer.external import check_external
from aitc.importer.values import Bound, Number, fitting
from aitc.importer.walk import Environment, Walker, is_too_large
from aitc.ir import dim as d
from aitc.ir import dtype as dt
from aitc.ir.cpp import free_name
from aitc.ir.dim import Dim
from aitc.ir.graph import Graph, Value
from aitc.ir.types import TensorType
from aitc.ops.declare import Scope

Source = Union[str, Path, bytes, onnx.ModelProto]


@dataclass(frozen=True, slots=True)
class Imported:
    """What import gives: the graph, and what else the file says that a user may want to see."""

    graph: Graph
    name: str  # the file's stem, or the graph's name
    opset_imports: Mapping[str, int]  # "" is ai.onnx
    metadata: Mapping[str, str]
    producer: str
    nodes: int  # ONNX nodes in the file, bodies and functions included
    dims: Mapping[str, Dim] = field(default_factory=dict)  # the model's dim names and what they became
    bound: tuple[Bound, ...] = ()  # inputs that became constants

    @property
    def dim_names(self) -> tuple[tuple[str, str], ...]:
        """Names of symbols with the model's spelling, where they differ."""
        found = ((d.as_symbol(v), name) for name, v in self.dims.items())
        return tuple((s.name, name) for s, name in found if s is not None and s.name != name)


def import_model(
    source: Source,
    dims: Mapping[str, Binding] | None = None,
    input_shapes: Mapping[str, Sequence[Union[int, str]]] | None = None,
    folder: Path | None = None,
    values: Mapping[str, Number | Sequence[Number]] | None = None,
) -> Imported:
    """Imports a model. ``dims`` binds dim names to sizes or (low, high) ranges, ``input_shapes`` the shapes of
    inputs, ``values`` makes inputs constants. ``folder``: where the external data of a ModelProto lie. Dims are at least 1, or 0 where the graph bears that
    (``empty``). Raises AitcError."""
    registry.load("aitc.ops")
    model, name, beside = check.read(source)
    folder = beside or folder

    def importer(may_be_empty: frozenset[str] = frozenset()) -> _ModelImporter:
        return _ModelImporter(model, name, folder, dict(dims or {}), dict(input_shapes or {}), dict(values or {}), may_be_empty)

    first = importer()
    found = first.run()
    names = empty.bearable(found.graph, first.unbound)
    if names:
        with contextlib.suppress(AitcError):
            again = importer(frozenset(names)).run()
            if not empty.unbearable(again.graph, names):
                return again
    return found


class _ModelImporter:
    def __init__(
        self,
        model: onnx.ModelProto,
        name: str,
        folder: Path | None,
        bindings: dict[str, Binding],
        shapes: dict[str, Sequence[Union[int, str]]],
        values: dict[str, Number | Sequence[Number]],
        may_be_empty: frozenset[str] = frozenset(),
    ):
        self.model = model
        self.name = name
        self.folder = folder
        self.bindings = bindings
        self.shapes = shapes
        self.values = values
        self.bound: dict[str, Bound] = {}
        self.problems: list[Diagnostic] = []
        self.symbols: dict[str, Dim] = {}
        self.taken: set[str] = set()  # names of symbols
        self.may_be_empty = may_be_empty  # such of them
        self.unbound: set[str] = set()  # those whose bounds nobody gives
        self.named = {d.dim_param for i in model.graph.input for d in i.type.tensor_type.shape.dim}
        self.declared: set[str] = set()  # names of dims of the inputs
        self.binding: list[str] = []  # names whose expressions are being read
        self.graph = Graph(model.graph.name or name.removesuffix(".onnx"))

    def run(self) -> Imported:
        proto = self.model.graph
        limits.check(self.model, self.name)
        opsets = check.opsets(self.model, self.problems)
        self._raise()
        check.structure(self.model, self.name, self.problems)
        for problem in check_external(self.model, self.folder):
            self._problem(problem.code, str(problem), problem.help)
        self._raise()
        scope = Scope(self.graph, self.symbols, self.taken)
        walker = Walker(self.model, self.name, self.folder, scope, self.problems)
        walker.check_operators(opsets)
        environment = Environment(opsets, "main", results=frozenset(o.name for o in proto.output))
        self._inputs(environment, scope)
        for tensor in proto.initializer:
            environment.lazy[tensor.name] = tensor
        for sparse in proto.sparse_initializer:
            environment.lazy[sparse.values.name] = sparse
        self._raise()
        walker.nodes(proto.node, environment, self.graph)
        for output in proto.output:
            value = walker.lookup(output.name, environment)
            if isinstance(value, Value):
                self._output(output, value)
            elif value is None:
                self._problem("I03", f"output {len(self.graph.outputs)} has no name")
            elif not self.problems:
                self._problem("I09", f"output {output.name!r} is no tensor: {walker.describe(value)}")
        self._raise()
        metadata = {p.key: p.value for p in self.model.metadata_props}
        producer = " ".join(filter(None, (self.model.producer_name, self.model.producer_version)))
        return Imported(
            self.graph, self.name.removesuffix(".onnx"), opsets, metadata, producer, walker.count, dict(self.symbols),
            tuple(self.bound.values()),
        )  # fmt: skip

    def _raise(self) -> None:
        if self.problems:
            raise AitcError(self.problems, check.exit_code(self.problems))

    def _problem(self, code: str, message: str, help: str = "") -> None:
        self.problems.append(Diagnostic(code, message, stage="import", help=help))

    def _output(self, proto: onnx.ValueInfoProto, value: Value) -> None:
        declared = dt.BY_ONNX.get(proto.type.tensor_type.elem_type)
        if value.type.dtype.kind == "complex":
            self._problem("I09", f"output {proto.name!r} has element type {value.type.dtype}, which is not compiled")
        # A declared shape that differs is let pass, as onnxruntime does: what is computed holds.
        elif declared not in (None, value.type.dtype):
            self._problem("I03", f"output {proto.name!r} is declared as {declared}, and the graph computes {value.type.dtype}")
        self.graph.outputs.append(value)
        self.graph.output_names.append(proto.name)

    # --- inputs and their dims
    def _inputs(self, environment: Environment, scope: Scope) -> None:
        constants = {t.name for t in self.model.graph.initializer} | {
            s.values.name for s in self.model.graph.sparse_initializer
        }
        inputs = [i for i in self.model.graph.input if i.name not in constants]
        self._bind_values(inputs)
        self._bind_spellings(inputs)
        self._bind_shapes(inputs)
        bare = self._bare_names(inputs)
        for proto in inputs:
            kind = proto.type.WhichOneof("value")
            if kind != "tensor_type":
                self._problem(
                    "I09",
                    f"input {proto.name!r} is a {(kind or 'value without a type').replace('_type', '')}, not a tensor",
                )
                continue
            dtype = dt.BY_ONNX.get(proto.type.tensor_type.elem_type)
            if dtype is None or dtype is dt.STRING or dtype.kind == "complex":
                kind = str(dtype) if dtype else f"{proto.type.tensor_type.elem_type}, which ONNX does not define"
                self._problem("I09", f"input {proto.name!r} has element type {kind}, which is not compiled")
                continue
            if len(proto.type.tensor_type.shape.dim) > limits.RANK:
                rank = len(proto.type.tensor_type.shape.dim)
                self._problem("I04", f"input {proto.name!r} has {rank} axes; more than {limits.RANK} are not compiled")
                continue
            if proto.name in self.bound:
                environment.values[proto.name] = scope.constant(self.bound[proto.name].array, name=proto.name)
                continue
            shape = self._shape(proto, bare)
            if shape is not None and is_too_large(TensorType(dtype, shape)):
                self._problem("I04", f"input {proto.name!r} is {TensorType(dtype, shape)}: more than can be addressed")
            elif shape is not None:
                environment.values[proto.name] = self.graph.add_input(proto.name, TensorType(dtype, shape))
        for name in sorted(set(self.bindings) - set(self.symbols)):
            self._problem("I10", f"--dim {name}: the model has no such dim", near(name, sorted(self.symbols), "dims"))

    def _bind_values(self, inputs: Sequence[onnx.ValueInfoProto]) -> None:
        """Makes constants of the inputs that --value gives; dims in their shapes get their sizes, in other inputs, too."""
        by_name = {p.name: (i, p) for i, p in enumerate(inputs)}
        for name, value in self.values.items():
            if name not in by_name:
                self._problem("I10", f"--value {name}: the model has no such input", near(name, by_name, "inputs"))
                continue
            index, proto = by_name[name]
            try:
                self.bound[name] = Bound(name, index, fitting(proto, value))
            except ValueError as problem:
                self._problem("I10", f"--value {name} does not fit the input: {problem}")
                continue
            if name in self.shapes:
                self._problem("I10", f"--input {name}: --value makes this input a constant", "leave one of them out")
            elif proto.type.tensor_type.HasField("shape"):
                self.shapes[name] = self.bound[name].array.shape

    def _bind_spellings(self, inputs: Sequence[onnx.ValueInfoProto]) -> None:
        """Lets --dim name a dim as the model does, or by the identifier that stands for it in generated code."""
        spelled: dict[str, list[str]] = {}
        for proto in inputs:
            for axis, dim in enumerate(proto.type.tensor_type.shape.dim):
                text = dim.dim_param
                for name in [*dims.names(text), text] if text else [self._unnamed(proto, axis)]:
                    if name not in spelled.setdefault(dims.identifier(name), []):
                        spelled[dims.identifier(name)].append(name)
        known = {name for names in spelled.values() for name in names}
        for given in sorted(set(self.bindings) - known):
            meant = spelled.get(dims.identifier(given), [])
            if len(meant) > 1:
                self._problem("I10", f"--dim {given} may be any of {', '.join(map(repr, meant))}", "spell it as the model does")
                del self.bindings[given]
            elif meant:
                self.bindings[meant[0]] = self.bindings.pop(given)

    def _unnamed(self, proto: onnx.ValueInfoProto, axis: int) -> str:
        """The name of an axis to which the model gives none; no other dim has it."""
        name = f"{proto.name}_{axis}"
        while name in self.named:
            name += "_"
        return name

    def _bind_shapes(self, inputs: Sequence[onnx.ValueInfoProto]) -> None:
        """Sizes given by --input bind the dim names they stand for."""
        by_name = {i.name: i for i in inputs}
        for name, sizes in self.shapes.items():
            if name not in by_name:
                self._problem(
                    "I10", f"--input {name}: the model has no such input", f"its inputs: {', '.join(by_name)}"
                )
                continue
            tensor = by_name[name].type.tensor_type
            if not tensor.HasField("shape"):
                continue
            declared = tensor.shape.dim
            if len(declared) != len(sizes):
                self._problem("I10", f"--input {name}: {len(sizes)} sizes for a tensor of rank {len(declared)}")
                continue
            for dim, size in zip(declared, sizes):
                if dim.HasField("dim_value") and dim.dim_value > 0 and isinstance(size, int) and dim.dim_value != size:
                    self._problem(
                        "I10",
                        f"--input {name}: {dims.shape_text(sizes)} does not fit, "
                        f"the model says {dims.shape_text([_spell(x) for x in declared])}",
                    )
                elif dim.dim_param and dims.is_name(dim.dim_param) and isinstance(size, int):
                    bound = self.bindings.setdefault(dim.dim_param, size)
                    if isinstance(bound, tuple) and bound[0] <= size <= (bound[1] or size):
                        self.bindings[dim.dim_param] = size
                    elif bound != size:
                        self._problem("I10", f"--input {name}: dim {dim.dim_param} is bound to {bound} and to {size}")
                    self._symbol(dim.dim_param)

    def _bare_names(self, inputs: Sequence[onnx.ValueInfoProto]) -> set[str]:
        """Names that are the whole size of some input's axis: the program can read them there."""
        bare = set(self.bindings)
        self.declared |= bare
        for proto in inputs:
            given = self.shapes.get(proto.name, ())
            self.declared |= {n for a in given if isinstance(a, str) for n in dims.names(a)}
            for i, dim in enumerate(proto.type.tensor_type.shape.dim):
                if dim.dim_param or not dim.dim_value:
                    self.declared |= {dim.dim_param, *dims.names(dim.dim_param)} if dim.dim_param else {self._unnamed(proto, i)}
                if dim.dim_param and dims.is_name(dim.dim_param) and not (i < len(given) and isinstance(given[i], int)):
                    bare.add(dim.dim_param)
        return bare

    def _symbol(self, name: str) -> Dim:
        if name not in self.symbols:
            binding = self.bindings.get(name)
            if isinstance(binding, str):
                self.symbols[name] = self._bound(name, binding)
                return self.symbols[name]
            spelled = free_name(name if name.isidentifier() else dims.identifier(name))
            while spelled in self.taken or (spelled != name and spelled in self.named):
                spelled += "_"
            self.taken.add(spelled)
            if binding is None:
                self.unbound.add(spelled)
                binding = (0, None) if spelled in self.may_be_empty else None
            self.symbols[name] = dims.make_symbol(spelled, binding)
        return self.symbols[name]

    def _bound(self, name: str, text: str) -> Dim:
        """The Dim of ``--dim name=text``, an expression over other dims of the inputs."""
        names = dims.names(text)
        missing = [n for n in names if n not in self.declared]
        if missing:
            help_ = near(missing[0], sorted(self.declared - {name}), "dims")
            self._problem("I10", f"--dim {name}={text}: the model has no dim {', '.join(missing)}", help_)
            return 1
        if name in self.binding or name in names:
            self._problem("I10", f"--dim {name}={text}: {name} is bound to itself")
            return 1
        self.binding.append(name)
        found = dims.parse(text, self._symbol)
        self.binding.pop()
        return found

    def _shape(self, proto: onnx.ValueInfoProto, bare: set[str]) -> tuple[Dim, ...] | None:
        tensor = proto.type.tensor_type
        given = self.shapes.get(proto.name)
        if not tensor.HasField("shape") and given is None:
            self._problem(
                "I09", f"input {proto.name!r} has no shape, not even a rank", f"give one with --input {proto.name}=..."
            )
            return None
        declared = list(tensor.shape.dim) if tensor.HasField("shape") else [None] * len(given or ())
        shape: list[Dim] = []
        for i, dim in enumerate(declared):
            size = given[i] if given is not None and i < len(given) else None
            if isinstance(size, int):
                shape.append(size)
                continue
            if dim is not None and dim.HasField("dim_value") and dim.dim_value >= 0:
                shape.append(dim.dim_value)
                continue
            text = size if isinstance(size, str) else dim.dim_param if dim is not None else ""
            if not text:
                shape.append(self._symbol(self._unnamed(proto, i)))
                continue
            if dims.is_name(text) or all(n in bare for n in dims.names(text)):
                shape.append(dims.parse(text, self._symbol))
            else:  # an expression over names that no axis gives: a name of its own
                shape.append(self._symbol(text))
        if any(d.bounds(s)[1] < 0 for s in shape):
            self._problem("I10", f"input {proto.name!r} would get a negative size: {dims.shape_text(shape)}")
            return None
        return tuple(shape)


def _spell(dim: Any) -> str:
    return str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or "?"
