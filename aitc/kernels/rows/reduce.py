"""Reductions over any axes, and ArgMax / ArgMin (include/aitc/{cpu,gpu/rows}/reduce.h)."""

from __future__ import annotations

from dataclasses import replace

from aitc.ir.dim import product
from aitc.ir.graph import Node, Value
from aitc.ir.index import Index
from aitc.kernels.core import kernel as k
from aitc.kernels.core.functor import Parameters, StorageOf
from aitc.kernels.core.group import Group
from aitc.kernels.core.sites import load_functor, store_functor
from aitc.kernels.rows.row_kernel import STATE_BYTES, RowKernel, RowLaunch, RowProblem
from aitc.kernels.rows.rows import Rows, RowShape, row_type, rows_of, vector_for
from aitc.targets.target import Target

OPERATIONS = {
    "sum": "Sum", "mean": "Mean", "max": "Max", "min": "Min", "prod": "Prod", "sumsquare": "SumSquare", "l1": "L1", "l2": "L2",
    "logsum": "LogSum", "logsumexp": "LogSumExp", "any": "Max", "all": "Min",
}  # fmt: skip


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
class Reduce(RowKernel):
    name = "reduce"
    header = "reduce"
    anchors = frozenset({"Reduce", "ArgReduce"})
    doc = "reductions over any axes, ArgMax and ArgMin"

    def form(self, node: Node, storage: StorageOf) -> Rows:
        return rows_of(node.input, reduced_axes(node), storage)

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> RowProblem | k.No:
        node = group.anchor
        assert node is not None
        form = self.form(node, storage)
        return RowProblem(
            operation(node),
            node.input.type.dtype.name,
            form.rows,
            form.K,
            form.contiguous,
            k.nbytes(group),
        )

    def functors(
        self, group: Group, form: Rows, parameters: Parameters, storage: StorageOf, target: Target, suffix: str
    ) -> tuple[k.FunctorText, k.FunctorText]:
        node = group.anchor
        assert node is not None
        c_type = row_type(node.input.type.dtype)
        load = load_functor(
            group,
            node.input,
            form.index,
            form.vector,
            parameters,
            storage,
            target,
            "int64_t row, int64_t k",
            c_type=c_type,
            name=f"Load{suffix}",
        )
        out: Value = node.output
        out_c = out.type.dtype.compute_c
        acc_type = "int64_t" if node.op.name == "ArgReduce" else c_type
        acc = "acc[j]" if acc_type == out_c else f"{out_c}(acc[j])"
        if getattr(node.attrs, "function", "") == "any":  # the largest of no numbers is the lowest, which is not 0
            acc = "(acc[j] > 0)"
        store = store_functor(
            group, output_index(node, form), (form.k, form.row), parameters, storage, target, "int64_t row, int64_t",
            acc=acc, element=f"const {acc_type} (&acc)[V]", widest=1 if form.contiguous else 16,
            name=f"Store{suffix}",
        )  # fmt: skip
        return load, store

    def launch(
        self, group: Group, problem: RowProblem, config: RowShape, storage: StorageOf, target: Target, parameters: Parameters, suffix: str
    ) -> RowLaunch:
        node = group.anchor
        assert node is not None
        form = self.form(node, storage)
        load, store = self.functors(group, form, parameters, storage, target, suffix)
        function = "reduce_rows" if form.contiguous else "reduce_columns"
        arguments, smem = problem.operation, 0
        if config.threads:
            V = vector_for(form.K if form.contiguous else form.rows, min(config.V, load.width))
            config = replace(config, V=V)
            state = STATE_BYTES[row_type(node.input.type.dtype)] * (2 if problem.operation == "LogSumExp" else 1)
            if problem.operation.startswith("Arg"):
                state += 8 if state == 8 else 4
            if form.contiguous:
                arguments += f", RowReduction<{V}, {config.lanes}, {config.threads}>"
                smem = config.threads // target.warp * state if config.lanes > target.warp else 0
            else:
                down = config.threads // config.lanes
                arguments += f", ColumnReduction<{V}, {config.lanes}, {down}>"
                smem = config.lanes * down * V * state if down > 1 else 0
        blocks = config.blocks(form.rows, form.contiguous) if config.threads else 1
        return RowLaunch(load, store, f"{function}<{arguments}>", (), config, smem, blocks, form.rows, product((form.rows, form.K)))
