"""What the host does itself: reading sizes back, branches and loops. They are groups of their own and have no kernel text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aitc.ir.dim import Dim, product
from aitc.ir.graph import Node, Value
from aitc.ir.index import is_view, unflatten
from aitc.kernels.core import kernel as k
from aitc.kernels.core.functor import Parameters, StorageOf
from aitc.kernels.core.group import Group
from aitc.kernels.core.sites import linear, locate
from aitc.targets.target import Target

NAME = "host"


@dataclass(frozen=True, slots=True)
class HostProblem:
    op: str

    def __str__(self) -> str:
        return self.op


@k.register
class Host(k.Kernel):
    name = NAME
    template = ""
    anchors = frozenset({"ReadDims", "If", "Loop"})
    tails = False
    doc = "what the host decides while the model runs: sizes, branches, trips"

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> HostProblem | k.No:
        node = group.anchor
        assert node is not None
        scattered = [i for i, v in enumerate(node.inputs) if v is not None and dense_place(v, storage) is None]
        if scattered:
            return k.No("the host reads what lies side by side", tuple((i, None) for i in scattered))
        return HostProblem(node.op.name)

    def configs(self, problem: HostProblem, target: Target) -> Sequence[str]:
        return ("host",)

    def score_us(self, problem: HostProblem, config: str, target: Target) -> float:
        return target.launch_us

    def build(self, group: Group, problem: HostProblem, config: str, storage: StorageOf, target: Target) -> k.Draft:
        parameters = Parameters()
        for v in read_by_host(group.anchor):
            place = dense_place(v, storage)
            assert place is not None
            parameters.pointer(place[0], const=True)
        context = k.Context("", k.banner(group), (), "int", (), (), (), (), 1, ())
        return k.Draft(self.name, config, self.template, context, parameters)


def read_by_host(node: Node | None) -> list[Value]:
    """The inputs of a host node that are in memory when it runs."""
    assert node is not None
    return [v for v in node.inputs if v is not None]


def dense_place(v: Value, storage: StorageOf) -> tuple[Value, Dim] | None:
    """The memory behind ``v`` and the offset of its first element, if all its elements lie there in order; else None."""
    base = v
    while base.producer is not None and base.producer.op.name == "Reshape":
        base = base.producer.input
    if not is_view(base.producer) and base.type.order is None and storage(base).root is base:
        return base, 0
    count = product(v.shape)
    if count == 1 or not v.shape:
        return locate(v, tuple(0 for _ in v.shape), storage)
    i = k.coordinate("i", count)
    root, offset = locate(v, unflatten(k.dim_of(i), v.shape), storage)
    form = linear(offset, (i,))
    if form is None or form[1] != (1,):
        return None
    return root, form[0]
