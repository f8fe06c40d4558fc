"""What the kernels over rows share (reductions, softmax, norms): problem, candidates, cost, and how a launch of one or of several is put together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from aitc.ir.dim import Dim, hint
from aitc.ir.graph import Node
from aitc.kernels.core import kernel as k
from aitc.kernels.core.functor import Parameters, StorageOf
from aitc.kernels.core.group import Group, side_by_side
from aitc.kernels.rows.rows import Rows, RowShape, row_shapes, row_us
from aitc.targets.target import Target

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


@dataclass(frozen=True, slots=True)
class RowLaunch:
    """An instance in words: ``function`` with its template arguments, what it takes before the shape, and its blocks."""

    load: k.FunctorText
    store: k.FunctorText
    function: str
    before: tuple[str, ...]
    config: RowShape
    smem_bytes: int
    blocks: Dim
    skip_if_zero: Dim
    flops: Dim


class RowKernel(k.Kernel):
    """A kernel over rows. On a GPU several small ones, of one number of threads, can share a launch, each on blocks of its own."""

    template = "kernel"
    heads = True
    family = "rows"
    header: str
    """include/aitc/{cpu,gpu/rows}/<header>.h"""

    @abstractmethod
    def form(self, node: Node, storage: StorageOf) -> Rows:
        """The input of ``node`` as rows."""

    @abstractmethod
    def launch(
        self, group: Group, problem: RowProblem, config: RowShape, storage: StorageOf, target: Target, parameters: Parameters, suffix: str
    ) -> RowLaunch:
        """The words of an instance; names of functors end in ``suffix``."""

    def configs(self, problem: RowProblem, target: Target) -> Sequence[RowShape]:
        if not target.gpu:
            return (RowShape(),)
        return row_shapes(problem.rows, problem.K, problem.contiguous, 8, target)

    def score_us(self, problem: RowProblem, config: RowShape, target: Target) -> float:
        return row_us(config, hint(problem.rows), hint(problem.K), hint(problem.bytes), problem.contiguous, target)

    def build(self, group: Group, problem: RowProblem, config: RowShape, storage: StorageOf, target: Target) -> k.Draft:
        assert group.anchor is not None
        parameters = Parameters()
        made = self.launch(group, problem, config, storage, target, parameters, "")
        form = self.form(group.anchor, storage)
        shape = k.shape_members(parameters, rows=form.rows, K=form.K)
        call = (f"{made.function}({', '.join((*made.before, 'shape', *_functors(made)))});",)
        context = k.Context(
            "", k.banner(group), (f"aitc/{'gpu/rows' if target.gpu else 'cpu'}/{self.header}.h", "aitc/generic/element.h"), "int64_t", shape,
            (made.load, made.store), (), k.entry_parameters(parameters), made.config.threads, call,
        )  # fmt: skip
        return k.Draft(
            self.name, str(made.config), self.template, context, parameters, grid=(made.blocks if made.config.threads else 1, 1, 1),
            block=(max(made.config.threads, 1), 1, 1), smem_bytes=made.smem_bytes, overlap=True, skip_if_zero=made.skip_if_zero, flops=made.flops,
        )  # fmt: skip

    # --- several in one launch
    def together(self, parts: Sequence[k.Part], target: Target) -> tuple[float, tuple[RowShape, ...]] | None:
        if not target.gpu:
            return None
        offered = [part.kernel.configs(part.problem, target) for part in parts]
        best: tuple[float, tuple[RowShape, ...]] | None = None
        memory = sum(hint(part.problem.bytes) for part in parts) / target.gbps * 1e-3
        for threads in dict.fromkeys(c.threads for c in offered[0]):
            scored = [
                min(((part.kernel.score_us(part.problem, c, target), n) for n, c in enumerate(o) if c.threads == threads), default=None)
                for part, o in zip(parts, offered, strict=True)
            ]
            found = [s for s in scored if s is not None]
            if len(found) < len(parts):
                continue
            chosen = tuple(o[n] for o, (_, n) in zip(offered, found, strict=True))
            filled = sum(
                hint(c.blocks(part.problem.rows, part.problem.contiguous)) * threads for part, c in zip(parts, chosen, strict=True)
            )
            if filled > target.units * 2048:
                continue  # they fill the device
            us = max(*(us for us, _ in found), target.launch_us + memory)
            if best is None or us < best[0]:
                best = us, chosen
        return best

    def build_together(self, parts: Sequence[k.Part], configs: Sequence[RowShape], storage: StorageOf, target: Target) -> k.Draft | None:
        parameters = Parameters()
        structs: list[tuple[str, ...]] = []
        call: list[str] = []
        functors: list[k.FunctorText] = []
        headers: dict[str, None] = {}
        first: Dim = 0
        results: Dim = 0
        flops: Dim = 0
        smem = 0
        for n, (part, config) in enumerate(zip(parts, configs, strict=True)):
            kernel = part.kernel
            assert isinstance(kernel, RowKernel)
            assert part.group.anchor is not None
            made = kernel.launch(part.group, part.problem, config, storage, target, parameters, str(n))
            form = kernel.form(part.group.anchor, storage)
            lines, shape = k.shape_struct(f"Shape{n}", k.shape_members(parameters, rows=form.rows, K=form.K))
            structs.append(lines)
            functors += [made.load, made.store]
            headers[f"aitc/gpu/rows/{kernel.header}.h"] = None
            call.append(f"if ({k.block_range(first, made.blocks, parameters)}; blocks.mine())")
            call.append(f"  {made.function}({', '.join((*made.before, shape, *_functors(made), 'blocks'))});")
            first, results, flops, smem = first + made.blocks, results + made.skip_if_zero, flops + made.flops, max(smem, made.smem_bytes)
        every, threads = side_by_side([part.group for part in parts]), configs[0].threads
        context = k.Context(
            "", k.banner(every), (*headers, "aitc/generic/element.h"), "int64_t", (), tuple(functors), tuple(structs), k.entry_parameters(parameters),
            threads, tuple(call),
        )  # fmt: skip
        return k.Draft(
            self.family, "_".join(map(str, dict.fromkeys(configs))), self.template, context, parameters, grid=(first, 1, 1), block=(threads, 1, 1),
            smem_bytes=smem, overlap=True, skip_if_zero=results, flops=flops,
        )  # fmt: skip


def _functors(made: RowLaunch) -> tuple[str, str]:
    load, store = (f"{f.name}{{{', '.join(f.initializers)}}}" for f in (made.load, made.store))
    return load, store
