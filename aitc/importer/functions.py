"""Functions inlined: those that the model defines, and ONNX operators that are defined by a body of other operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import onnx

from aitc.errors import Diagnostic, Loc
from aitc.importer.check import normalized
from aitc.ir.graph import Value
from aitc.ops.attribute import OF_BODIES
from aitc.ops.declare import IMPORTERS, Unsupported
from aitc.ops.unsupported import reason

if TYPE_CHECKING:
    from aitc.importer.walk import Environment, Walker


BUILT_IN = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training", "com.microsoft")  # domains of operators


def built_in(node: onnx.NodeProto) -> bool:
    """Whether a node is of an operator that no local function replaces: those of ONNX and com.microsoft come first, as in ONNX Runtime
    (ONNX leaves it to who runs the model)."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    return domain in BUILT_IN and ((domain, node.op_type) in IMPORTERS or onnx.defs.has(node.op_type, domain))


def unknown_operator(
    domain: str, op_type: str, version: int, locs: tuple[Loc, ...], functions: Mapping[tuple[str, str, str], Any]
) -> Diagnostic:
    """The error for an operator that nothing can import; says where the name is known, if it is."""
    where = domain or "ai.onnx"
    help = ""
    known = sorted({d for d, n in IMPORTERS if n == op_type} | {d for d, n, _ in functions if n == op_type})
    if (domain, op_type) in IMPORTERS:
        help = f"known from opset {IMPORTERS[domain, op_type][0].since} on"
    elif reason(domain, op_type):
        help = f"a known gap: {reason(domain, op_type)}"
    elif known:
        help = f"there is one in {', '.join(d or 'ai.onnx' for d in known)}"
    elif domain == "" and not any(s.name == op_type for s in onnx.defs.get_all_schemas_with_history()):
        help = "ONNX has no operator of this name"
    times = f", used by {len(locs)} nodes" if len(locs) > 1 else ""
    return Diagnostic(
        "I06",
        f"operator {op_type} of domain {where} (opset {version}) is not supported{times}",
        locs,
        "import",
        (),
        help,
    )


@cache
def _schema(domain: str, op_type: str, version: int) -> Any:
    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None


def schema_has_body(domain: str, op_type: str, version: int) -> bool:
    schema = _schema(domain, op_type, version)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def inline(
    walker: "Walker", function: onnx.FunctionProto, node: onnx.NodeProto, inputs: Sequence[Any],
    given: Mapping[str, Any], outer: "Environment", opsets: Mapping[str, int] | None = None,
) -> list[Any]:  # fmt: skip
    """Imports the function's body in place of the call. Raises ValueError for recursion or a wrong call."""
    from aitc.importer import attributes
    from aitc.importer.walk import FAILED, Environment

    key = (function.domain, function.name, function.overload)
    if key in outer.calls:
        raise ValueError(f"function {function.domain}.{function.name} calls itself")
    if len(inputs) > len(function.input):
        raise ValueError(f"{len(inputs)} inputs for function {function.name}, which has {len(function.input)}")
    values = {a.name: attributes.decode(a, walker.folder) for a in function.attribute_proto}
    values.update({k: v for k, v in given.items() if k in function.attribute or k in values or opsets is not None})
    versions = {**(opsets or {}), **normalized(function.opset_import)} or outer.opsets
    path = f"{outer.path}/{node.name or node.op_type}"
    environment = Environment(versions, path, attributes=values, calls=(*outer.calls, key), results=frozenset(function.output))
    environment.values.update(zip(function.input, [*inputs, *([None] * (len(function.input) - len(inputs)))]))
    walker.nodes(function.node, environment, walker.scope.graph)
    results = [walker.lookup(o, environment) for o in function.output]
    return [FAILED if r is None else r for r in results]


def inline_schema(
    walker: "Walker",
    domain: str,
    node: onnx.NodeProto,
    version: int,
    inputs: Sequence[Any],
    given: Mapping[str, Any],
    outer: "Environment",
) -> list[Any]:
    """Imports the body that ONNX gives for one of its own operators."""
    schema = _schema(domain, node.op_type, version)
    if schema is None:
        raise ValueError(f"operator {node.op_type} of domain {domain or 'ai.onnx'} is not supported")
    contracts = OF_BODIES.get((domain, node.op_type), {})
    given = {k: contracts[k].fitting(k, v) if k in contracts else v for k, v in given.items()}
    function = onnx.FunctionProto()
    if schema.has_function:
        body = schema.get_function_with_opset_version(_best(schema.function_opset_versions, version))
    else:
        types = [type_proto(v).SerializeToString() for v in inputs]
        body = schema.get_context_dependent_function_with_opset_version(
            _best(schema.context_dependent_function_opset_versions, version),
            _explicit(node, given).SerializeToString(),
            types,
        )
    function.ParseFromString(body)
    if not function.node and function.ByteSize() == 0:  # ONNX gives a body only for inputs that it knows enough about
        raise Unsupported(
            "the shapes of its inputs must be known at compile time", "bind their dims with --dim or --input"
        )
    defaults = {
        n: onnx.helper.get_attribute_value(a.default_value)
        for n, a in schema.attributes.items()
        if a.default_value.name
    }
    defaults = {
        k: v.decode() if isinstance(v, bytes) else tuple(v) if isinstance(v, list) else v for k, v in defaults.items()
    }
    return inline(
        walker, function, node, inputs, {**defaults, **given}, outer, _versions(schema, domain, version, outer.opsets)
    )


def _versions(schema: Any, domain: str, version: int, outer: Mapping[str, int]) -> dict[str, int]:
    """The opset versions that a schema's body means where it does not say: those of the model."""
    return {**outer, "": outer.get("", onnx.defs.onnx_opset_version()), domain: version}


def _best(versions: Sequence[int], wanted: int) -> int:
    fitting = [v for v in versions if v <= wanted]
    return max(fitting) if fitting else min(versions, default=wanted)


def _explicit(node: onnx.NodeProto, given: Mapping[str, Any]) -> onnx.NodeProto:
    """The node with references to a function's attributes replaced by their values."""
    if not any(a.ref_attr_name for a in node.attribute):
        return node
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    for a in node.attribute:
        if not a.ref_attr_name:
            copy.attribute.append(a)
        elif a.name in given:
            copy.attribute.append(onnx.helper.make_attribute(a.name, given[a.name]))
    return copy


def type_proto(value: Any) -> onnx.TypeProto:
    """The type of a value as onnx spells it; empty for what is no tensor."""
    proto = onnx.TypeProto()
    if isinstance(value, Value):
        proto.tensor_type.elem_type = value.type.dtype.onnx
        proto.tensor_type.shape.SetInParent()  # a scalar's shape has no axes, but is known
        for s in value.shape:
            dim = proto.tensor_type.shape.dim.add()
            if isinstance(s, int):
                dim.dim_value = s
            else:
                dim.dim_param = str(s)
    return proto
