"""Before grouping: outputs get memory of their own, and views that no kernel can read are copied."""

from __future__ import annotations

from aitc.errors import AitcError, Diagnostic, Exit
from aitc.ir.builder import Builder
from aitc.ir.graph import Graph, Node, Value
from aitc.ir.index import is_view
from aitc.kernels.core.functor import Storage
from aitc.kernels.core.group import make_group
from aitc.kernels.core.kernel import No, kernels_for
from aitc.schedule.core.anchors import IN_PLACE, is_anchor
from aitc.schedule.core.storage import Storages
from aitc.schedule.core.why import Fusions
from aitc.schedule.rewrite.join import join_in_place
from aitc.schedule.rewrite.lower import lower_unsupported
from aitc.schedule.rewrite.norms import fold_norms
from aitc.schedule.rewrite.split_norms import split_norms
from aitc.schedule.rewrite.sum_convs import sum_convs
from aitc.schedule.rewrite.upsample import split_upsampled
from aitc.targets.target import Target


def prepare(graph: Graph, storage: Storages, target: Target, why: Fusions | None = None) -> dict[Node, str]:
    """Inserts Copy nodes where they are needed and returns the kernel that each anchor gets. ``why`` gets the reasons of the copies.

    Raises AitcError (UNSUPPORTED) that lists every node for which no kernel is found.
    """
    why = why or Fusions()
    split_upsampled(graph, target)
    lower_unsupported(graph, storage, target)
    sum_convs(graph, storage, target)
    fold_norms(graph, storage, target, why)
    split_norms(graph, storage, target)
    _own_outputs(graph, why)
    _write_in_place(graph, storage, why)
    join_in_place(graph, storage, target, why)
    chosen: dict[Node, str] = {}
    problems: list[Diagnostic] = []
    made: list[Node] = []
    for node in graph.nodes:
        if not is_anchor(node):
            continue
        reasons: list[str] = []
        for kernel in kernels_for(node.op.name, target):
            answer = kernel.accepts(make_group([node], node, set()), storage, target)
            before = node.inputs
            copied: list[tuple[Value, str]] = []
            for _ in node.inputs:  # a kernel asks for one copy after the other
                if not isinstance(answer, No) or not answer.copies:
                    break
                copied += [(v, f"kernel {kernel.name}: {answer.reason}") for v in (node.inputs[i] for i, _ in answer.copies) if v is not None]
                made += _copy_inputs(graph, node, answer.copies)
                answer = kernel.accepts(make_group([node], node, set()), storage, target)
            if isinstance(answer, No):
                graph.set_inputs(node, before)
            if not isinstance(answer, No):
                chosen[node] = kernel.name
                for v, reason in copied:
                    why.not_in_place(v, node, reason)
                break
            reasons.append(f"{kernel.name}: {answer.reason}")
        else:
            types = tuple(f"{v.name} {v.type}" for v in node.inputs if v is not None)
            said = "; ".join(reasons) if reasons else f"there is no kernel for it on {target.name}"
            problems.append(Diagnostic("S01", f"{node.op.name} cannot be run on {target.name}: {said}", node.locs, "schedule", types))
    if problems:
        raise AitcError(problems, Exit.UNSUPPORTED)
    if made:
        graph.reorder(made)
        graph.sweep()
    return chosen


def _own_outputs(graph: Graph, why: Fusions) -> None:
    """Every graph output becomes the row-major result of a node that is no view, and no value is two outputs."""
    made: list[Node] = []
    seen: set[int] = set()
    for at, v in enumerate(graph.outputs):
        needs = v.producer is None or is_view(v.producer) or v.type.order is not None or id(v) in seen or v.producer not in graph or bool(v.producer.bodies)
        if needs:
            builder = Builder(graph, v.producer.locs if v.producer else (), place=False)
            copy = builder.op("Copy", v, names=(v.name,))
            made += builder.made
            why.not_in_place(v, builder.made[-1], "an output of the model is dense memory of its own, row after row")
            graph.outputs[at] = copy
            seen.add(id(copy))
        else:
            seen.add(id(v))
    if made:
        graph.reorder(made)


def _write_in_place(graph: Graph, storage: Storages, why: Fusions) -> None:
    """Gives ops that change a part of their input a copy of it, whose memory is their output."""
    made: list[Node] = []
    for node in graph.nodes:
        if node.op.name in IN_PLACE:
            builder = Builder(graph, node.locs, place=False)
            why.not_in_place(node.input, node, "it changes a part of it, and leaves the rest as it is")
            copy = builder.op("Copy", node.input)
            made += builder.made
            graph.set_inputs(node, (copy, *node.inputs[1:]))
            storage.alias(node.output, Storage(copy, 0, copy.type.strides()))
    if made:
        graph.reorder(made)


def _copy_inputs(graph: Graph, node: Node, copies: tuple[tuple[int, tuple[int, ...] | None], ...]) -> list[Node]:
    """Puts Copy nodes before inputs of ``node``; an equal copy that is there already is used again."""
    inputs = list(node.inputs)
    made: list[Node] = []
    for index, order in copies:
        v = inputs[index]
        assert v is not None
        copy = _existing(v, order)
        if copy is None:
            builder = Builder(graph, v.producer.locs if v.producer else node.locs, place=False)
            copy = builder.op("Copy", v, order=order)
            made += builder.made
        inputs[index] = copy
    graph.set_inputs(node, inputs)
    return made


def _existing(v: Value, order: tuple[int, ...] | None) -> Value | None:
    for user in v.users:
        if user.op.name == "Copy" and user.attrs.order == order:
            return user.output
    return None
