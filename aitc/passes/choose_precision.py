"""Chooses the element type that each node computes in: ``--precision`` and ``--keep-fp32``.

``fp16`` and ``bf16`` narrow what a float32 model computes, by rule: ``precision_policy`` says what stays and why. Kernels
accumulate in float32, and norms and softmax keep their statistics there anyway. ``fp32`` widens the 16-bit parts of a model.
``tf32`` and ``model`` change no type. Model inputs and outputs keep theirs.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import ml_dtypes
import numpy as np

from aitc.errors import AitcError, Diagnostic, Exit
from aitc.ir import content
from aitc.ir.builder import Builder
from aitc.ir.dtype import BF16, F16, F32, DType
from aitc.ir.graph import Graph, Node, Value
from aitc.ir.op import Kind
from aitc.ir.text import walk
from aitc.passes.base import Context, Decision, Ranges, register
from aitc.passes.precision_policy import Keeper, is_exact, overflows, reaches_too_far, reason_to_keep

_NARROWED = {"fp16": F16, "bf16": BF16}


@register
def run(graph: Graph, context: Context) -> int:
    """Narrows (or widens) by rule what nodes compute, and writes down which type each of them runs in."""
    keeper = Keeper(context.keep_fp32)
    reasons: dict[Node, str] = {}
    changes = 0
    if context.precision in _NARROWED:
        changes = _Retyping(graph, F32, _NARROWED[context.precision], keeper, reasons, context.ranges).run()
    elif context.precision == "fp32":
        for source in (F16, BF16):
            for g in walk(graph):
                changes += _Retyping(g, source, F32, None, reasons).run()
    unused = [p for p in keeper.patterns if p not in keeper.used]
    if unused and context.precision in _NARROWED:
        raise AitcError(
            [
                Diagnostic(
                    "P02",
                    f"--keep-fp32 {p!r} matches no node",
                    help="give an ONNX node's name, an op type, or a regular expression",
                )
                for p in unused
            ],
            Exit.USAGE,
        )
    for g in walk(graph):
        for node in g.nodes:
            if node.op.kind is not Kind.VIEW and node.outputs and node.output.type.dtype.is_float:
                name = node.locs[0].name if node.locs and node.locs[0].name else node.output.name
                context.decisions.append(
                    Decision(name, node.op.name, node.output.type.dtype.name, reasons.get(node, ""))
                )
    return changes


class _Retyping:
    """Moves what a graph computes from element type ``source`` to ``target``, with Casts where both meet."""

    def __init__(
        self,
        graph: Graph,
        source: DType,
        target: DType,
        keeper: Keeper | None,
        reasons: dict[Node, str],
        ranges: Ranges | None = None,
    ):
        self.ranges = ranges or Ranges()
        self.graph = graph
        self.source = source
        self.target = target
        self.keeper = keeper  # None: everything is retyped
        self.reasons = reasons
        self.builder = Builder(graph, place=False)
        self.moved: set[Value] = set()  # have the target type now
        self.kept: set[Value] = set()
        self.exact: set[Value] = set()  # computed from integers alone: positions, masks
        self.big: set[Value] = set()  # of kept nodes: may hold finite numbers that the target cannot
        self.masks = _masks(graph) if self.keeper is not None else set()
        self.big |= self.masks
        self.masked: set[Value] = set()  # scores with a mask: as wide as the mask, or -10000 would swallow what is beside it
        self.casts: dict[tuple[Value, DType], Value] = {}
        self.changes = 0

    def run(self) -> int:
        for node in self.graph.nodes:
            self.builder.locs = node.locs
            reason = "control flow" if node.bodies else ""
            if self.keeper is not None:
                reason = reason_to_keep(node, self.target, self.source, self.kept, self.exact, self.keeper)
                if not reason and (
                    (node.op.name in ("Add", "Where") and any(v in self.masks for v in node.inputs))
                    or (node.op.name in ("Softmax", "LogSoftmax") and node.input in self.masked)
                ):
                    reason = "adds a mask"
                    self.masked.update(node.outputs)
                reason = reason or reaches_too_far(node, self.target, self.ranges, self.exact)
            if reason:
                self.stay(node, reason)
            else:
                self.move(node)
        self.outputs()
        if self.builder.made:
            self.graph.reorder(self.builder.made)
        return self.changes

    def stay(self, node: Node, reason: str) -> None:
        if any(v.type.dtype is self.source for v in node.outputs):
            self.reasons[node] = reason
        inputs = [self.cast(v, self.source) if v in self.moved else v for v in node.inputs]
        if tuple(inputs) != node.inputs:
            self.graph.set_inputs(node, inputs)
            self.changes += 1
        for v in dict.fromkeys(v for body in node.bodies for v in body.captured):
            if v in self.moved:
                for body in node.bodies:
                    body.rebind(v, self.cast(v, self.source))
        exact = is_exact(node, self.exact)
        big = any(v is not None and (v in self.big or overflows(v.const, self.target)) for v in node.inputs)
        for v in node.outputs:
            if v.type.dtype is self.source:
                self.kept.add(v)
                if exact:
                    self.exact.add(v)
                if big:
                    self.big.add(v)

    def move(self, node: Node) -> None:
        if node.op.name != "Cast":
            inputs = [
                self.cast(v, self.target) if v is not None and v.type.dtype is self.source else v for v in node.inputs
            ]
            if node.op.name == "Attention" and self.target.bits < self.source.bits:
                # kernels add masks in float32: there, and not in 16 bits, the least number swallows every score
                inputs[3:] = node.inputs[3:]
            if tuple(inputs) != node.inputs:
                self.graph.set_inputs(node, inputs)
        node.attrs = _retyped(node.attrs, self.source, self.target)
        for v in node.outputs:
            if v.type.dtype is self.source:
                v.type = v.type.with_dtype(self.target)
                self.moved.add(v)
                self.changes += 1

    def cast(self, v: Value | None, to: DType) -> Value:
        """``v`` as ``to``, made once; constants at once."""
        assert v is not None
        known = self.casts.get((v, to))
        if known is None:
            known = self.casts[v, to] = self.constant(v, to) if v.const is not None else self.converted(v, to)
        return known

    def converted(self, v: Value, to: DType) -> Value:
        if v in self.big:  # -3.4e38 excludes; rounded to -inf it would make a row of them undefined
            limit = float(ml_dtypes.finfo(to.numpy).max)
            v = self.builder.op(
                "Max", self.builder.op("Min", v, self.builder.like(limit, v)), self.builder.like(-limit, v)
            )
        return self.builder.op("Cast", v, to=to)

    def constant(self, v: Value, to: DType) -> Value:
        array = v.const
        assert array is not None
        if overflows(array, to):
            limit = float(ml_dtypes.finfo(to.numpy).max)
            array = np.where(np.isfinite(array), np.clip(array, -limit, limit), array)
        made = self.graph.constant(array.astype(to.numpy), v.name)
        content.of_constant(made)
        return made

    def outputs(self) -> None:
        """What leaves the graph has the type it had."""
        for i, v in enumerate(self.graph.outputs):
            if v in self.moved:
                self.graph.outputs[i] = self.cast(v, self.source)


def _masks(graph: Graph) -> set[Value]:
    """Inputs of the graph, and views and parts of them, that are added to scores: all that the mask of an Attention, or a term of the
    sum that a Softmax reads, is made of without a product or a sum over an axis."""
    todo = [v for n in graph.nodes if n.op.name == "Attention" for v in n.inputs[3:]]
    for n in graph.nodes:
        if n.op.name in ("Softmax", "LogSoftmax") and n.input.producer is not None and n.input.producer.op.name in ("Add", "Where"):
            todo += n.input.producer.inputs
    found: set[Value] = set()
    seen: set[Value] = set()
    while todo:
        v = todo.pop()
        if v is None or v in seen or not v.type.dtype.is_float or v.const is not None:
            continue
        seen.add(v)
        if v.producer is None:
            found.add(v)
        elif v.producer.op.kind in (Kind.VIEW, Kind.MOVE):
            todo += v.producer.inputs
    for n in graph.nodes:
        if n.op.kind in (Kind.VIEW, Kind.MOVE) and any(v in found for v in n.inputs):
            found.update(n.outputs)
    return found


def _retyped(attrs: Any, source: DType, target: DType) -> Any:
    changes = {f.name: target for f in fields(attrs) if getattr(attrs, f.name) is source}
    return replace(attrs, **changes) if changes else attrs
