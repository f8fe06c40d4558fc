"""Computes at compile time what depends on constants alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from aitc.ir import content
from aitc.ir.dtype import STRING
from aitc.ir.graph import Graph, Node
from aitc.ir.interpret import InterpretError, evaluate
from aitc.ir.match import uses_symbols
from aitc.ir.op import Kind
from aitc.passes.base import Context, graphs, register
from aitc.passes.quantize_products import formats, may_be_multiplied

SMALL_BYTES = 1 << 16  # results of up to this size are folded whatever their inputs were
LARGEST_WEIGHT = 1 << 28  # bytes of a weight that is one number: packed, all of it is in memory and in the binary
_NEVER = frozenset({Kind.SOURCE, Kind.CONTROL, Kind.RECURRENT, Kind.ATTENTION})
_SMALL_SOURCES = frozenset({"Range", "Fill", "Dims", "EyeLike"})


@register
def run(graph: Graph, context: Context) -> int:
    """Folds nodes whose inputs are all constant, unless the result is larger than what it is made of (a big Expand stays a view)."""
    kinds = formats(context)
    keep = partial(may_be_multiplied, kinds=kinds) if kinds else _nothing
    return sum(_fold(g, keep) for g in graphs(graph))


def _nothing(node: Node) -> bool:
    return False


def _fold(graph: Graph, keep: Callable[[Node], bool]) -> int:
    folded = 0
    for node in graph.nodes:
        if not _foldable(node) or keep(node):
            continue
        try:
            results = (
                [_filled(node)]
                if node.op.name == "Fill"
                else evaluate(node, [None if v is None else v.const for v in node.inputs])
            )
        except (InterpretError, ArithmeticError, ValueError, TypeError, IndexError, NotImplementedError):
            continue  # it fails when the model runs as well: that is where it belongs
        if any(r.shape != v.shape or r.dtype != v.type.dtype.numpy for r, v in zip(results, node.outputs)):
            continue
        for v, array in zip(node.outputs, results):
            array = np.asarray(array)
            constant = graph.constant(array, v.name, v.type)
            content.of_constant(constant)
            graph.replace_uses(v, constant)
        folded += 1
    return folded + graph.sweep() if folded else 0


def _foldable(node: Node) -> bool:
    if node.bodies or uses_symbols(node.attrs) or node.op.name == "ReadDims":
        return False
    if node.op.kind in _NEVER and node.op.name not in _SMALL_SOURCES:
        return False
    if any(v is not None and v.const is None for v in node.inputs):
        return False
    if any(not v.type.is_static or v.type.dtype is STRING for v in node.outputs):
        return False
    made = sum(_bytes_of(v.shape, v.type.dtype.bytes) for v in node.outputs)
    if made <= SMALL_BYTES:
        return True
    if node.op.name == "Fill" and made <= LARGEST_WEIGHT and _is_weight(node):
        return True  # numpy keeps one element of it
    if not node.inputs or node.op.kind is Kind.CONTRACT:
        return False
    read = {id(v): v for v in node.inputs if v is not None}.values()
    if node.op.kind is Kind.POINTWISE:  # weights that are kept in a shorter type are widened once, not in every run
        if max(_elems(v.shape) for v in node.outputs) > max(_elems(v.shape) for v in read):
            return False
    elif made > max(_bytes_of(v.shape, v.type.dtype.bytes) for v in read):
        return False
    # A large constant that others read as well would be stored twice.
    return not any(len(v.users) > 1 and v.const is not None and v.const.nbytes > SMALL_BYTES for v in read)


def _filled(node: Node) -> np.ndarray:
    """One element, seen as all."""
    return np.broadcast_to(np.asarray(node.attrs.value, node.output.type.dtype.numpy), node.output.shape)  # type: ignore[arg-type]


def _is_weight(node: Node) -> bool:
    """Whether a value is the second operand of a Conv or MatMul: kernels want to pack that at compile time."""
    return any(
        (user.op.kind is Kind.CONTRACT and user.inputs[1] is node.output)
        or (
            user.op.kind is Kind.VIEW
            and any(u.op.kind is Kind.CONTRACT and u.inputs[1] is user.output for u in user.output.users)
        )
        for user in node.output.users
    )


def _elems(shape: tuple[object, ...]) -> int:
    return _bytes_of(shape, 1)


def _bytes_of(shape: tuple[object, ...], itemsize: int) -> int:
    size = itemsize
    for d in shape:
        assert isinstance(d, int)
        size *= d
    return size
