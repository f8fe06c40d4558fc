"""Which element types of an operator aitc compiles: its node tests again, with one type variable of its schema as another type.

Nothing is run: a probe says whether a plan comes out, and else why not.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import onnx
from conformance.coverage import Operator, operator_of, own_tests
from conformance.many import plan_of
from conformance.node_tests import cases

from aitc.errors import AitcError
from aitc.ir.dtype import BY_ONNX

TENSOR = "tensor("
ORDER = ("f64", "f32", "f16", "bf16")  # first; then the others by name
INVALID = ("the bits of ",)  # answers to a model that ONNX does not allow either
COMPLEX = "complex numbers: a compiled model takes and gives none"
Answer = str  # "" or the reason


@dataclass(frozen=True, slots=True)
class Variable:
    """A type variable of a schema, as inputs use it: its name (or an input's, where the schema names types directly) and its types, short."""

    name: str
    types: tuple[str, ...]


def short(onnx_type: str) -> str:
    """``tensor(float16)`` as f16; what no compiled tensor can be by ONNX's name."""
    word = onnx_type[len(TENSOR) : -1]
    codes = {"float": "FLOAT", "double": "DOUBLE"}
    code = onnx.TensorProto.DataType.Value(codes.get(word, word.upper()))
    return BY_ONNX[code].name if code in BY_ONNX else word


CODES = {d.name: code for code, d in BY_ONNX.items()}


def variables(schema: onnx.defs.OpSchema) -> tuple[Variable, ...]:
    """The variables of the inputs (of the outputs, if there are no inputs), in order, those of tensors alone."""
    found: dict[str, Variable] = {}
    for formal in schema.inputs or schema.outputs:
        types = sorted(t for t in formal.types if t.startswith(TENSOR))
        if types:
            names = sorted(set(map(short, types)), key=_place)
            found.setdefault(formal.type_str, Variable(formal.type_str, tuple(names)))
    return tuple(found.values())


def _place(dtype: str) -> tuple[int, str, int, str]:
    """Floats by size, then small floats, then signed and unsigned integers by size."""
    stem = dtype.rstrip("0123456789")
    digits = dtype[len(stem) :]
    return (ORDER.index(dtype) if dtype in ORDER else len(ORDER), stem, int(digits or 0), dtype)


def formals(schema: onnx.defs.OpSchema, names: Sequence[str], outputs: bool = False) -> Iterator[tuple[str, str]]:
    """(the model's name of an input, its type variable)."""
    known = list(schema.outputs if outputs else schema.inputs)
    for i, name in enumerate(names):
        if name and known:
            yield name, known[min(i, len(known) - 1)].type_str


def types_in(test: str) -> dict[str, str]:
    """Type variable -> type, as a node test has it."""
    model = cases()[test].model
    schema = schema_of(test)
    node = model.graph.node[0]
    declared = {v.name: v.type.tensor_type.elem_type for v in (*model.graph.input, *model.graph.output)}
    named = [*formals(schema, node.input), *(() if schema.inputs else formals(schema, node.output, True))]
    found: dict[str, str] = {}
    for name, variable in named:
        code = declared.get(name, 0)
        if code:
            found.setdefault(variable, BY_ONNX[code].name if code in BY_ONNX else "string")
    return found


@cache
def schema_of(test: str) -> onnx.defs.OpSchema:
    """The schema of a node test's operator, at the opset that the test imports."""
    model = cases()[test].model
    domain, name = operator_of(model.graph.node[0])
    version = next(i.version for i in model.opset_import if i.domain in (domain, domain or "ai.onnx"))
    return onnx.defs.get_schema(name, version, domain)


def retyped(test: str, variable: str, dtype: str) -> onnx.ModelProto | None:
    """The model of a node test with all that is of ``variable`` as another type; None if nothing is."""
    model = onnx.ModelProto()
    model.CopyFrom(cases()[test].model)
    schema, node = schema_of(test), model.graph.node[0]
    mine = {n for n, v in (*formals(schema, node.input), *formals(schema, node.output, True)) if v == variable}
    changed = False
    for value in (*model.graph.input, *model.graph.output):
        if value.name in mine and value.type.HasField("tensor_type"):
            value.type.tensor_type.elem_type = CODES[dtype]
            changed = True
    for value in model.graph.output:
        if value.name not in mine and value.type.HasField("tensor_type"):  # may follow the variable all the same
            value.type.tensor_type.elem_type = onnx.TensorProto.UNDEFINED
    if not schema.inputs:  # a constant's type is that of an attribute
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                array = onnx.numpy_helper.to_array(attribute.t).astype(BY_ONNX[CODES[dtype]].numpy)
                attribute.t.CopyFrom(onnx.numpy_helper.from_array(array))
    return model if changed else None


def ask(operator: Operator, variable: str, dtype: str, target: str, refused: Mapping[str, str]) -> Answer | None:
    """"" if some test of the operator has a plan with the type, else the first reason; None if there is none to try."""
    if dtype not in CODES:
        return "no element type of aitc"
    first: Answer | None = None
    for test in own_tests()[operator]:
        if "_expanded" in test or test in refused or cases()[test].model.graph.node[0].op_type in ("If", "Loop", "Scan", "SequenceMap"):
            continue
        model = retyped(test, variable, dtype)
        if model is None:
            continue
        try:
            plan_of(model, "t", f"{test}.onnx", target=target)
        except AitcError as error:
            said = error.diagnostics[0].message
            said = COMPLEX if dtype in ("c64", "c128") and said.endswith("which is not compiled") else said
            if first is None and not any(text in said for text in INVALID):
                first = said
        except Exception:
            first = first if first is not None else traceback.format_exc(limit=-1)
        else:
            return ""
    return first
