"""Reading the file and checking its structure, so that what follows may rely on it: our own checks with our own
errors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Union

import onnx
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]

from aitc.errors import AitcError, Diagnostic, Exit, Loc
from aitc.importer.order import Cycle, ordered, subgraphs
from aitc.importer.wire import read_structure

_NAMED = 8  # nodes of a cycle that an error names
_INVALID = ("I01", "I02", "I03", "I04", "I08", "I11", "I12")


def exit_code(problems: Sequence[Diagnostic]) -> Exit:
    """What a list of import problems leads to: a defect of aitc, an invalid model, or one that is not supported."""
    codes = {p.code for p in problems}
    if "I13" in codes:
        return Exit.INTERNAL
    if "I10" in codes:
        return Exit.USAGE
    if codes <= {"I01"}:
        return Exit.IO
    return Exit.MODEL if any(c in _INVALID for c in codes) else Exit.UNSUPPORTED


def read(source: Union[str, Path, bytes, onnx.ModelProto]) -> tuple[onnx.ModelProto, str, Path | None]:
    """The model, its file's name, and the folder where external data may lie. Raises AitcError."""
    if isinstance(source, onnx.ModelProto):
        return source, source.graph.name or "model", None
    if isinstance(source, bytes):
        model = _parse(source, "the model")
        return model, model.graph.name or "model", None
    path = Path(source)
    structure = read_structure(path)
    if structure is not None:
        return _checked(structure, str(path)), file_name(path), path.parent
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise AitcError(
            Diagnostic("I01", f"cannot read {path}: {problem.strerror or problem}", stage="import"), Exit.IO
        ) from problem
    return _parse(data, str(path)), file_name(path), path.parent


def file_name(path: Path) -> str:
    """The file's name as text that can be written: bytes that are no UTF-8 become "?"."""
    return os.fsencode(path.name).decode(errors="replace").replace("\ufffd", "?")


def _parse(data: bytes, what: str) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, RecursionError, ValueError) as problem:
        reason = "it is empty" if not data else "the file is truncated, or of another format"
        raise AitcError(
            Diagnostic("I02", f"{what} is not an ONNX model: {reason}", stage="import", detail=(str(problem),)),
            Exit.MODEL,
        ) from problem
    if not data:
        raise AitcError(Diagnostic("I02", f"{what} is not an ONNX model: it is empty", stage="import"), Exit.MODEL)
    return _checked(model, what)


def _checked(model: onnx.ModelProto, what: str) -> onnx.ModelProto:
    if not model.HasField("graph") or (not model.ir_version and not model.opset_import):
        reason = "it has no graph or no versions"
        raise AitcError(Diagnostic("I02", f"{what} is not an ONNX model: {reason}", stage="import"), Exit.MODEL)
    damaged = next(_no_text(model), None)
    if damaged is not None:
        message = f"{what} holds a name or a word that is no UTF-8 text: {damaged!r}"
        raise AitcError(Diagnostic("I02", message, stage="import", help="the file is damaged"), Exit.MODEL)
    return model


def _no_text(message: Message) -> Iterator[bytes]:
    """Strings of a message and of those in it that are no UTF-8: protobuf gives them as bytes. Comments may be anything."""
    if isinstance(message, onnx.TensorProto):  # listing its fields would copy its data
        strings = [message.name, *(s for e in message.external_data for s in (e.key, e.value))]
        yield from (s for s in strings if isinstance(s, bytes))
        return
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING and field.name != "doc_string":
            yield from (s for s in ([value] if isinstance(value, (str, bytes)) else value) if isinstance(s, bytes))
        elif field.type == field.TYPE_MESSAGE:
            for part in [value] if isinstance(value, Message) else value:
                yield from _no_text(part)


def opsets(model: onnx.ModelProto, problems: list[Diagnostic]) -> dict[str, int]:
    """The imported opset versions by domain, ai.onnx as "". Notes what is newer than the installed onnx."""
    versions = normalized(model.opset_import)
    for i in model.opset_import:
        domain = "" if i.domain == "ai.onnx" else i.domain
        if versions[domain] != i.version:
            problems.append(
                Diagnostic(
                    "I11",
                    f"domain {domain or 'ai.onnx'} is imported at versions {i.version} and {versions[domain]}",
                    stage="import",
                )
            )
    newest = onnx.defs.onnx_opset_version()
    version = versions.get("", 0)
    if version > newest:
        problems.append(Diagnostic("I07", f"the model uses opset {version}; the newest that is known here is {newest}", stage="import",
                                   help="install a newer onnx and aitc, or convert with onnx.version_converter"))  # fmt: skip
    elif "" in versions and version < 1:
        problems.append(Diagnostic("I07", f"the model uses opset {version}, which does not exist", stage="import"))
    if model.ir_version >= 3:
        problems += _missing_imports(model, versions)
    return versions


def _missing_imports(model: onnx.ModelProto, versions: Mapping[str, int]) -> Iterator[Diagnostic]:
    """Domains that nodes use and nothing imports; functions import for themselves."""
    used: dict[str, str] = {}
    pending = [model.graph]
    while pending:
        graph = pending.pop()
        for node in graph.node:
            used.setdefault("" if node.domain == "ai.onnx" else node.domain, node.op_type)
            pending += [body for _, body in subgraphs(node)]
    for domain in sorted(set(used) - set(versions)):
        yield Diagnostic(
            "I11",
            f"operator {used[domain]} is of domain {domain or 'ai.onnx'}, of which the model imports no version",
            stage="import",
        )


def normalized(imports: Sequence[onnx.OperatorSetIdProto]) -> dict[str, int]:
    return {"" if i.domain == "ai.onnx" else i.domain: i.version for i in imports}


def structure(model: onnx.ModelProto, name: str, problems: list[Diagnostic]) -> None:
    """Notes edges that dangle or form a cycle, and names that are defined twice."""
    _graph(model.graph, name, "main", frozenset(), problems)
    for function in model.functions:
        path = f"{function.domain}.{function.name}"
        defined: set[str] = set(function.input)
        _nodes(function.node, list(function.output), defined, name, path, frozenset(), problems)


def _graph(graph: onnx.GraphProto, model: str, path: str, outer: frozenset[str], problems: list[Diagnostic]) -> None:
    defined: set[str] = set()
    initializers = [t.name for t in graph.initializer] + [s.values.name for s in graph.sparse_initializer]
    for what, names in (("input", [i.name for i in graph.input]), ("initializer", initializers)):
        seen: set[str] = set()
        for value in names:
            if value in seen:
                problems.append(
                    Diagnostic("I03", f"two {what}s of {_place(path, model)} are named {value!r}", stage="import")
                )
            seen.add(value)
        defined |= seen
    _nodes(graph.node, [o.name for o in graph.output], defined, model, path, outer, problems)


def _place(path: str, model: str) -> str:
    return model if path == "main" else f"{path} in {model}"


def _nodes(
    nodes: Sequence[onnx.NodeProto],
    outputs: Sequence[str],
    defined: set[str],
    model: str,
    path: str,
    outer: frozenset[str],
    problems: list[Diagnostic],
) -> None:
    def where(i: int) -> Loc:
        return Loc(model, path, i, nodes[i].name, nodes[i].op_type)

    try:
        order = ordered(nodes, lambda name: name in defined or name in outer)
    except Cycle as cycle:
        first, rest = cycle.nodes[:_NAMED], len(cycle.nodes) - _NAMED
        steps = [f"#{i} ({nodes[i].op_type})" for i in first] + [f"{rest} more"] * (rest > 0)
        what = f"nodes form a cycle, each reads what the one before it makes: {' -> '.join((*steps, steps[0]))}"
        problems.append(Diagnostic("I03", what, tuple(where(i) for i in first), "import"))
        return
    for i, node in order:
        loc = where(i)
        for value in dict.fromkeys(node.input):
            if value and value not in defined and value not in outer:
                problems.append(Diagnostic("I03", f"{value!r} is read, but nothing makes it", (loc,), "import"))
        for label, body in subgraphs(node):
            _graph(
                body,
                model,
                f"{path}/{node.name or f'{node.op_type}_{i}'}.{label}",
                outer | frozenset(defined),
                problems,
            )
        for value in node.output:
            if value and value in defined:
                problems.append(Diagnostic("I03", f"{value!r} is made twice", (loc,), "import"))
            defined.add(value)
    for value in outputs:
        if value and value not in defined and value not in outer:
            problems.append(
                Diagnostic("I03", f"output {value!r} of {_place(path, model)} is made by no node", stage="import")
            )
