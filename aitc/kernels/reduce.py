"""Reductions over any axes, and ArgMax / ArgMin (include/aitc/{cpu,gpu}/reduce.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aitc.ir.dim import Dim, hint, product
from aitc.ir.graph import Node, Value
from aitc.ir.index import Index
from aitc.kernels import kernel as k
from aitc.kernels.functor import Parameters, StorageOf
from aitc.kernels.group import Group
from aitc.kernels.rows import Rows, row_type, rows_of
from aitc.kernels.sites import load_functor, store_functor
from aitc.targets.target import Target

OPERATIONS = {
    "sum": "Sum", "mean": "Mean", "max": "Max", "min": "Min", "prod": "Prod", "sumsquare": "SumSquare", "l1": "L1", "l2": "L2",
    "logsum": "LogSum", "logsumexp": "LogSumExp", "any": "Max", "all": "Min",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RowProblem:
    """rows × K elements of ``dtype``; ``contiguous`` when K is the innermost axis in memory."""

    operation: str
    dtype: str
    rows: Dim
    K: Dim
    contiguous: bool
    bytes: Dim

    def __str__(self) -> str:
        return f"{self.operation} {self.dtype} {self.rows}x{self.K}{'' if self.contiguous else ' columns'}"


@dataclass(frozen=True, slots=True)
class CpuRows:
    """The only configuration on the processor."""

    def __str__(self) -> str:
        return "auto"


def operation(node: Node) -> str:
    if node.op.name == "ArgReduce":
        return f"{'ArgMax' if node.attrs.function == 'max' else 'ArgMin'}<{str(node.attrs.select_last).lower()}>"
    return OPERATIONS[node.attrs.function]


def reduced_axes(node: Node) -> tuple[int, ...]:
    return (node.attrs.axis,) if node.op.name == "ArgReduce" else node.attrs.axes


def output_index(node: Node, form: Rows) -> Index:
    """The index of the result for the row coordinate."""
    axes = reduced_axes(node)
    index = [0 if a in axes else i for a, i in enumerate(form.index)]
    return tuple(i for a, i in enumerate(index) if node.attrs.keepdims or a not in axes)


@k.register
class Reduce(k.Kernel):
    name = "reduce"
    template = "kernel"
    requires = frozenset({"cpu"})
    anchors = frozenset({"Reduce", "ArgReduce"})
    heads = True
    doc = "reductions over any axes, ArgMax and ArgMin"

    def _form(self, node: Node, storage: StorageOf) -> Rows:
        return rows_of(node.input, reduced_axes(node), storage)

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> RowProblem | k.No:
        node = group.anchor
        assert node is not None
        form = self._form(node, storage)
        return RowProblem(operation(node), node.input.type.dtype.name, form.rows, form.K, form.contiguous, k.nbytes([*group.inputs, *group.outputs]))

    def configs(self, problem: RowProblem, target: Target) -> Sequence[CpuRows]:
        return (CpuRows(),)

    def score_us(self, problem: RowProblem, config: CpuRows, target: Target) -> float:
        return target.launch_us + hint(problem.bytes) / target.gbps * 1e-3

    def functors(
        self, group: Group, form: Rows, parameters: Parameters, storage: StorageOf, target: Target
    ) -> tuple[k.FunctorText, k.FunctorText]:
        node = group.anchor
        assert node is not None
        c_type = row_type(node.input.type.dtype)
        load = load_functor(
            group, node.input, form.index, form.vector, parameters, storage, target, "int64_t row, int64_t k", c_type=c_type
        )
        out: Value = node.output
        out_c = out.type.dtype.compute_c
        acc_type = "int64_t" if node.op.name == "ArgReduce" else c_type
        store = store_functor(
            group, output_index(node, form), (form.k, form.row), parameters, storage, target, "int64_t row, int64_t",
            acc="acc[j]" if acc_type == out_c else f"{out_c}(acc[j])", element=f"const {acc_type} (&acc)[V]", widest=1 if form.contiguous else 16,
        )  # fmt: skip
        return load, store

    def build(self, group: Group, problem: RowProblem, config: CpuRows, storage: StorageOf, target: Target) -> k.Draft:
        node = group.anchor
        assert node is not None
        form = self._form(node, storage)
        parameters = Parameters()
        load, store = self.functors(group, form, parameters, storage, target)
        shape = k.shape_members(parameters, rows=form.rows, K=form.K)
        function = "reduce_rows" if form.contiguous else "reduce_columns"
        call = (f"{function}<{problem.operation}>(shape, Load{{{', '.join(load.initializers)}}}, Store{{{', '.join(store.initializers)}}});",)
        context = k.Context(
            "", k.banner(group), ("aitc/cpu/reduce.h", "aitc/generic/element.h"), "int64_t", shape, (load, store), (),
            k.entry_parameters(parameters), 0, call,
        )  # fmt: skip
        return k.Draft(self.name, str(config), self.template, context, parameters, skip_if_zero=form.rows, flops=product((form.rows, form.K)))
