"""How large a model may become while it is imported: a small file can stand for more nodes than any machine holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx

from aitc.errors import AitcError, Diagnostic, Exit
from aitc.importer.check import subgraphs
from aitc.importer.functions import built_in
from aitc.settings import Settings

DEPTH = 64  # of calls of functions and bodies in each other: each level is some frames of Python
RANK = 64  # axes of a tensor, numpy's own limit

Key = tuple[str, str, str]


def check(model: onnx.ModelProto, name: str) -> None:
    """Raises AitcError if the functions of ``model`` written out in place of their calls, with all bodies, would be more nodes than
    ``Settings.max_nodes``, or nested more than ``DEPTH`` deep. Functions that call themselves are left to the walk."""
    functions: Mapping[Key, onnx.FunctionProto] = {(f.domain, f.name, f.overload): f for f in model.functions}
    sizes: dict[Key, tuple[int, int]] = {}  # nodes, and levels below
    open_: set[Key] = set()

    def measure(nodes: Iterable[onnx.NodeProto], depth: int) -> tuple[int, int]:
        if depth > DEPTH:
            raise _too_deep(name)
        count = below = 0
        for node in nodes:
            count += 1
            parts = [measure(body.node, depth + 1) for _, body in subgraphs(node)]
            key = (node.domain, node.op_type, node.overload)
            if key in functions and key not in open_ and not built_in(node):
                if key not in sizes:
                    open_.add(key)
                    sizes[key] = measure(functions[key].node, depth + 1)
                    open_.discard(key)
                parts.append(sizes[key])
            count += sum(n for n, _ in parts)
            below = max([below, *(1 + levels for _, levels in parts)])
        if depth + below > DEPTH:
            raise _too_deep(name)
        return count, below

    count, _ = measure(model.graph.node, 0)
    check_count(count, name)


def check_count(count: int, name: str) -> None:
    """Raises AitcError for more than ``Settings.max_nodes`` nodes."""
    most = Settings.read().node_limit
    if count > most:
        message = f"{name} stands for more than {most} nodes, once functions and loops are written out"
        raise AitcError(Diagnostic("I14", message, stage="import", help="AITC_MAX_NODES=... allows more"), Exit.UNSUPPORTED)


def _too_deep(name: str) -> AitcError:
    message = f"{name} nests functions and bodies more than {DEPTH} deep"
    return AitcError(Diagnostic("I14", message, stage="import", help="inline its functions, for example with onnx.inliner"), Exit.UNSUPPORTED)
