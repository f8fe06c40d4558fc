"""Statistics of group and instance norms of channels-last images (include/aitc/gpu/rows/statistics.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, gcd, lcm

from aitc.ir.dim import Dim, hint, min_, mul, product, upper
from aitc.ir.graph import Node, Value
from aitc.kernels.core import kernel as k
from aitc.kernels.core.functor import Parameters, StorageOf
from aitc.kernels.core.group import Group
from aitc.kernels.core.sites import load_functor
from aitc.kernels.rows.group_norm_sm90 import GroupForm, group_form
from aitc.kernels.rows.normalize import normalization
from aitc.targets.target import Target

UNITS = 1024  # statistics_units of the header
LEAST_LOADS = 4  # vectors of a thread, below which more blocks do not pay


@dataclass(frozen=True, slots=True)
class StatisticsProblem:
    """images × space pixels of C channels of ``dtype``; a group is all pixels and ``width`` neighbouring channels."""

    operation: str
    dtype: str
    images: Dim
    space: int
    C: int
    width: int
    bytes_in: int  # of an element

    def __str__(self) -> str:
        return f"{self.operation} {self.dtype} {self.images}x{self.space}x{self.C} groups of {self.width}"


@dataclass(frozen=True, slots=True)
class StatisticsTile:
    """``StatisticsTile<V, across, down, parts>`` of statistics.h."""

    V: int
    across: int
    down: int
    parts: int
    resident: int = 1  # blocks that a multiprocessor is to hold

    def __str__(self) -> str:
        return f"v{self.V}_{self.across}x{self.down}_x{self.parts}"

    @property
    def text(self) -> str:
        return f"StatisticsTile<{self.V}, {self.across}, {self.down}, {self.parts}>"

    @property
    def threads(self) -> int:
        return self.across * self.down

    @property
    def channels(self) -> int:
        return self.across * self.V

    @property
    def smem_bytes(self) -> int:
        return self.threads * self.V * 8


def _constants(node: Node) -> tuple[Value, ...]:
    """Scale and bias: constants of a channel each."""
    return tuple(v for v in node.inputs[1:] if v is not None and v.const is not None)


def _ascending(axes: tuple[int, ...]) -> bool:
    return list(axes) == sorted(axes)


@k.register
class Statistics(k.Kernel):
    name = "statistics"
    template = "kernel"
    requires = frozenset({"simt"})
    anchors = frozenset({"Statistics"})
    tails = False
    doc = "mean and deviation of groups of channels of channels-last images: many blocks an image, one read"

    def accepts(self, group: Group, storage: StorageOf, target: Target) -> StatisticsProblem | k.No:
        node = group.anchor
        assert node is not None
        if node.input.type.dtype.compute_c != "float":
            return k.No(f"statistics of {node.input.type.dtype} are not made in float")
        form = group_form(node, storage)
        if isinstance(form, k.No):
            return form
        operation = normalization(node).split("{")[0]
        problem = StatisticsProblem(
            operation, node.input.type.dtype.name, form.images, form.space, form.C, form.width, node.input.type.dtype.bytes
        )
        if not _ascending((*form.outer, *form.groups, *form.inner)) or storage(node.output).offset != 0:
            return k.No("its channels are in another order than in memory")
        if [product(v.shape) for v in _constants(node)] != [form.C, form.C]:
            return k.No("scale or bias are computed at run time")
        if not self.configs(problem, target):
            return k.No(f"groups of {form.width} channels make no whole vectors of {form.C}")
        return problem

    def threads(self, p: StatisticsProblem) -> int:
        """Of a multiprocessor: 1024 have 64 registers each, which is too few where each channel of a vector has sums of its own."""
        V = gcd(p.C, 8)
        return 1024 if p.width % V == 0 or (V % p.width == 0 and V // p.width <= 2) else 512

    def configs(self, problem: StatisticsProblem, target: Target) -> Sequence[StatisticsTile]:
        p = problem
        V = gcd(p.C, 8)
        found: list[StatisticsTile] = []
        least = lcm(p.width, V)
        for channels in (p.C // n for n in range(1, p.C // least + 1) if p.C % n == 0 and p.C // n % least == 0):
            across = channels // V
            step = target.warp // gcd(across, target.warp)  # whole warps
            for most in (512, 256):
                down = most // across // step * step
                if down < 1:
                    continue
                units = hint(p.images) * (p.C // channels)
                resident = max(1, self.threads(p) // (across * down))
                for share in (1, 2):  # all that a multiprocessor holds, or half of it
                    wanted = ceil(max(target.units, 1) * resident / units / share)
                    parts = max(1, min(wanted, p.space // (down * LEAST_LOADS)))
                    found.append(StatisticsTile(V, across, down, parts if units <= UNITS else 1, resident))
        return [t for t in dict.fromkeys(found) if t.smem_bytes <= min(target.smem_bytes, 48 << 10)]

    def score_us(self, problem: StatisticsProblem, config: StatisticsTile, target: Target) -> float:
        """All bytes at the rate of memory or of the multiprocessors that have blocks, and what a block waits for: its loads, two sums, a ticket."""
        p, c = problem, config
        units = max(target.units, 1)
        blocks = hint(p.images) * (p.C // c.channels) * c.parts
        line = c.channels * p.bytes_in
        wasted = 1.0 if line >= 128 else 1.0 + (128 - line) / 256  # of a line that several blocks want
        total = hint(p.images) * p.space * p.C * p.bytes_in * wasted
        resident = c.resident
        active = min(blocks, units * resident)
        full = self.threads(p)
        rate = target.gbps * 0.85 * min(1.0, active * c.threads / (units * full))
        apart = 0.0 if full == 1024 else 2.5  # channels one by one: longer chains of sums, and fewer threads
        rounds = ceil(blocks / (units * resident))
        return target.launch_us + total * 1e-3 / rate + 0.02 * (p.C / c.channels - 1) + apart + 1.4 * rounds + (1.0 + c.parts / 512 if c.parts > 1 else 0.0)

    def build(self, group: Group, problem: StatisticsProblem, config: StatisticsTile, storage: StorageOf, target: Target) -> k.Draft:
        node = group.anchor
        assert node is not None
        form = group_form(node, storage)
        assert isinstance(form, GroupForm)
        p, c = problem, config
        parameters = Parameters()
        load = load_functor(
            group, node.input, form.index, form.k, parameters, storage, target, "int64_t row, int64_t k", c_type="float", widest=c.V
        )
        found = storage(node.output)
        names = [parameters.pointer(root, const=True) for root in _constants(node)]
        factors = parameters.pointer(found.root, const=False)
        shape = k.shape_members(parameters, images=p.images, space=p.space, C=p.C, width=p.width)
        units = mul(p.images, p.C // c.channels)
        scratch: tuple[k.ScratchSpec, ...] = ()
        if c.parts > 1:
            most = upper(units)
            tickets = UNITS if most is None else min(most, UNITS)
            sums = mul(min_(units, UNITS), c.channels // p.width * c.parts * 2)
            scratch = (k.ScratchSpec("sums", "float", sums), k.ScratchSpec("tickets", "int32_t", tickets, zeroed=True))
        arguments = ", ".join((*names, factors, *((s.parameter for s in scratch) if scratch else ("nullptr", "nullptr"))))
        context = k.Context(
            "", k.banner(group), ("aitc/gpu/rows/statistics.h", "aitc/generic/element.h"), "int64_t", shape, (load,), (),
            k.entry_parameters(parameters, [f"{s.c_type}* {s.parameter}" for s in scratch]), c.threads,
            (f"statistics<{c.text}>({normalization(node)}, shape, Load{{{', '.join(load.initializers)}}}, {arguments});",), min_blocks=c.resident,
        )  # fmt: skip
        elems = product((p.images, p.space, p.C))
        return k.Draft(
            self.name, str(config), self.template, context, parameters, grid=(mul(units, c.parts), 1, 1), block=(c.threads, 1, 1),
            smem_bytes=c.smem_bytes, overlap=True, skip_if_zero=elems, flops=mul(elems, 3), scratch=scratch,
        )  # fmt: skip


__all__ = ["Statistics", "StatisticsProblem", "StatisticsTile"]
