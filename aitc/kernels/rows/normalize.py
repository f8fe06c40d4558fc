"""Softmax, LogSoftmax, layer, RMS, instance and group norms (include/aitc/{cpu,gpu/rows}/normalize.h)."""

from __future__ import annotations

from dataclasses import replace

from aitc.ir.dim import product
from aitc.ir.graph import Node
from aitc.kernels.core import kernel as k
from aitc.kernels.core.functor import Parameters, StorageOf
from aitc.kernels.core.group import Group
from aitc.kernels.core.sites import load_functor, store_functor
from aitc.kernels.rows.row_kernel import STATE_BYTES, RowKernel, RowLaunch, RowProblem
from aitc.kernels.rows.rows import Rows, RowShape, row_type, rows_of, vector_for
from aitc.targets.target import Target


def normalization(node: Node) -> str:
    """The operation object of include/aitc/*/normalize.h."""
    if node.op.name == "Softmax":
        return "LogSoftmax{}" if node.attrs.log else "Softmax{}"
    return f"{'LayerNorm' if node.attrs.center else 'RMSNorm'}{{{node.attrs.epsilon!r}f}}"


def normalized_axes(node: Node) -> tuple[int, ...]:
    return (node.attrs.axis,) if node.op.name == "Softmax" else tuple(node.attrs.axes)


@k.register
class Normalize(RowKernel):
    name = "normalize"
    header = "normalize"
    anchors = frozenset({"Softmax", "LayerNormalization"})
    doc = "softmax and the norms: one read and one write, statistics in float"

    def form(self, node: Node, storage: StorageOf) -> Rows:
        return rows_of(node.input, normalized_axes(node), storage)

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> RowProblem | k.No:
        node = group.anchor
        assert node is not None
        form = self.form(node, storage)
        name = normalization(node).split("{")[0]
        return RowProblem(
            name,
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
        signature = "int64_t row, int64_t k"
        load = load_functor(
            group, node.input, form.index, form.vector, parameters, storage, target, signature, c_type=c_type, name=f"Load{suffix}"
        )
        coords = (form.row, form.k) if form.contiguous else (form.k, form.row)
        store = store_functor(
            group,
            form.index,
            coords,
            parameters,
            storage,
            target,
            signature,
            acc="y[j]",
            element=f"const {c_type} (&y)[V]",
            name=f"Store{suffix}",
        )
        return load, store

    def launch(
        self, group: Group, problem: RowProblem, config: RowShape, storage: StorageOf, target: Target, parameters: Parameters, suffix: str
    ) -> RowLaunch:
        node = group.anchor
        assert node is not None
        form = self.form(node, storage)
        load, store = self.functors(group, form, parameters, storage, target, suffix)
        function = "normalize_rows" if form.contiguous else "normalize_columns"
        smem, blocks = 0, form.rows
        if config.threads:
            V = vector_for(form.K if form.contiguous else form.rows, min(config.V, load.width))
            state = STATE_BYTES[row_type(node.input.type.dtype)]
            if form.contiguous:
                packs = config.packs * config.V // V if config.packs * config.V // V * V <= 64 else 0
                config = replace(config, V=V, packs=packs)
                function += f"<RowNorm<{V}, {config.lanes}, {packs}, {config.threads}>>"
                smem = 2 * config.threads // target.warp * state if config.lanes > target.warp else 0
            else:
                config = replace(config, V=V)
                down = config.threads // config.lanes
                function += f"<ColumnNorm<{V}, {config.lanes}, {down}>>"
                smem = config.lanes * down * V * state if down > 1 else 0
            blocks = config.blocks(form.rows, form.contiguous)
        work = product((form.rows, form.K))
        return RowLaunch(load, store, function, (normalization(node),), config, smem, blocks, work, work * 8)
