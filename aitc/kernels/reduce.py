"""Reductions over any axes, and ArgMax / ArgMin (include/aitc/{cpu,gpu}/reduce.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aitc.ir.dim import Dim, hint, product
from aitc.ir.graph import Node, Value
from aitc.ir.index import Index
from aitc.kernels import kernel as k
from aitc.kernels.functor import Parameters, StorageOf
from aitc.kernels.group import Group
from aitc.kernels.rows import Rows, RowShape, row_shapes, row_type, row_us, rows_of, vector_for
from aitc.kernels.sites import load_functor, store_functor
from aitc.targets.target import Target

OPERATIONS = {
    "sum": "Sum", "mean": "Mean", "max": "Max", "min": "Min", "prod": "Prod", "sumsquare": "SumSquare", "l1": "L1", "l2": "L2",
    "logsum": "LogSum", "logsumexp": "LogSumExp", "any": "Max", "all": "Min",
}  # fmt: skip


STATE_BYTES = {"float": 4, "int32_t": 4, "double": 8, "int64_t": 8}


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


class RowKernel(k.Kernel):
    """What kernels over rows share: how their work may be divided, and what that costs."""

    def configs(self, problem: RowProblem, target: Target) -> Sequence[RowShape]:
        if not target.gpu:
            return (RowShape(),)
        return row_shapes(problem.rows, problem.K, problem.contiguous, 8, target)

    def score_us(self, problem: RowProblem, config: RowShape, target: Target) -> float:
        return row_us(config, hint(problem.rows), hint(problem.K), hint(problem.bytes), problem.contiguous, target)


@k.register
class Reduce(RowKernel):
    name = "reduce"
    template = "kernel"
    anchors = frozenset({"Reduce", "ArgReduce"})
    heads = True
    doc = "reductions over any axes, ArgMax and ArgMin"

    def _form(self, node: Node, storage: StorageOf) -> Rows:
        return rows_of(node.input, reduced_axes(node), storage)

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> RowProblem | k.No:
        node = group.anchor
        assert node is not None
        form = self._form(node, storage)
        return RowProblem(
            operation(node),
            node.input.type.dtype.name,
            form.rows,
            form.K,
            form.contiguous,
            k.nbytes([*group.inputs, *group.outputs]),
        )

    def functors(
        self, group: Group, form: Rows, parameters: Parameters, storage: StorageOf, target: Target
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
        )  # fmt: skip
        return load, store

    def build(self, group: Group, problem: RowProblem, config: RowShape, storage: StorageOf, target: Target) -> k.Draft:
        node = group.anchor
        assert node is not None
        form = self._form(node, storage)
        parameters = Parameters()
        load, store = self.functors(group, form, parameters, storage, target)
        shape = k.shape_members(parameters, rows=form.rows, K=form.K)
        function = "reduce_rows" if form.contiguous else "reduce_columns"
        arguments, smem, config = problem.operation, 0, config
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
        call = (
            f"{function}<{arguments}>(shape, Load{{{', '.join(load.initializers)}}}, Store{{{', '.join(store.initializers)}}});",
        )
        context = k.Context(
            "", k.banner(group), (f"aitc/{'gpu' if target.gpu else 'cpu'}/reduce.h", "aitc/generic/element.h"), "int64_t", shape, (load, store), (),
            k.entry_parameters(parameters), config.threads, call,
        )  # fmt: skip
        grid = (config.blocks(form.rows, form.contiguous), 1, 1) if config.threads else (1, 1, 1)
        return k.Draft(
            self.name, str(config), self.template, context, parameters, grid=grid, block=(max(config.threads, 1), 1, 1), smem_bytes=smem,
            overlap=True, skip_if_zero=form.rows, flops=product((form.rows, form.K)),
        )  # fmt: skip
