"""Choosing a configuration: measured tables first, then the kernel's own cost model. Never needs the device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from aitc.ir.dim import Sum, Symbol, hint, product, symbols
from aitc.ir.graph import Node, Value
from aitc.ir.index import is_view
from aitc.kernels.core.functor import StorageOf
from aitc.kernels.core.group import Group, behind_anchor, heavy_epilogue, make_group
from aitc.kernels.core.kernel import Kernel, No, kernels_for
from aitc.targets.target import Target

Table = Mapping[str, str]  # key of a problem -> name of the configuration


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen for the problem with ``key``, on whose word (``table`` or ``model``), and its predicted time.

    ``gone`` is the configuration that the table names and the kernel does not have for this problem (any more).
    """

    kernel: str
    problem: Any
    config: Any
    source: str
    score_us: float
    key: str = ""
    gone: str = ""


Select = Callable[[Kernel, Group, StorageOf, Target], "Sequence[Choice] | No"]  # more than one: to be measured


def problem_key(kernel: Kernel, problem: Any, group: Group) -> str:
    """The key of a problem in the tuning tables of a target: kernel, problem (types, dims, layouts), epilogue class.

    Never a model's name or a node's, so that what one model taught holds for all. Symbolic dims come with their bounds and
    typical sizes, at which they are measured.
    """
    return " ".join(filter(None, (kernel.name, str(problem), epilogue_class(group), _sizes(problem))))


def _sizes(problem: Any) -> str:
    """Bounds and typical sizes of the symbolic dims in ``problem``: ``batch:1..32~8``."""
    found: set[Symbol] = set()

    def look(x: Any) -> None:
        if isinstance(x, Sum):
            found.update(symbols(x))
        elif isinstance(x, tuple):
            for y in x:
                look(y)
        elif is_dataclass(x):
            for f in fields(x):
                look(getattr(x, f.name))

    look(problem)
    ordered = sorted(found, key=lambda s: s.name)
    return " ".join(f"{s.name}:{s.lo}..{'' if s.hi is None else s.hi}{'' if s.hint is None else f'~{s.hint}'}" for s in ordered)


def epilogue_class(group: Group) -> str:
    """What is computed around the anchor, as far as it matters for the choice; "" if nothing is.

    ``head 2``: pointwise nodes before it. ``tail 3 1t 1v exp``: those behind it, what they read that is as large as the
    result (t) or smaller (v), and whether something dear as an exponential is among them. ``-> f16 2f32``: what is stored,
    if that is not one result of the anchor's type.
    """
    anchor = group.anchor
    if group.chained:
        classes = [epilogue_class(part) for part in group.parts]
        return " then ".join(c or "none" for c in classes) if any(classes) else ""
    if anchor is None:
        return ""
    after = behind_anchor(group)
    behind: set[Value] = {*anchor.outputs, *(v for n in after for v in n.outputs)}
    tail = [n for n in after if not is_view(n)]
    head = sum(n is not anchor and n not in after and not is_view(n) for n in group.nodes)
    elems = hint(product(anchor.output.shape))
    read = {id(v): v for n in tail for v in n.inputs if v is not None and v not in behind}
    full = sum(hint(product(v.shape)) * 2 > elems for v in read.values())
    parts = [f"head {head}"] if head else []
    if tail:
        counts = [f"{n}{kind}" for n, kind in ((full, "t"), (len(read) - full, "v")) if n]
        parts.append(" ".join([f"tail {len(tail)}", *counts, *(["exp"] if heavy_epilogue(group) else [])]))
    stored = Counter(str(v.type.dtype) for v in group.outputs)
    if list(stored.elements()) != [str(anchor.output.type.dtype)]:
        parts.append("-> " + " ".join(f"{n if n > 1 else ''}{t}" for t, n in sorted(stored.items())))
    return " ".join(parts)


def choose(kernel: Kernel, group: Group, storage: StorageOf, target: Target, table: Table | None = None) -> Choice | No:
    """The configuration for ``group``, or why the kernel does not take it. What the table names wins if it still is one."""
    problem = kernel.accepts(group, storage, target)
    if isinstance(problem, No):
        return problem
    configs = kernel.configs(problem, target)
    key = problem_key(kernel, problem, group)
    wanted = (table or {}).get(key)
    for config in configs:
        if str(config) == wanted:
            return Choice(kernel.name, problem, config, "table", kernel.score_us(problem, config, target), key)
    scored = [(kernel.score_us(problem, config, target), n) for n, config in enumerate(configs)]
    best, at = min(scored)
    return Choice(kernel.name, problem, configs[at], "model", best, key, wanted or "")


def alone(node: Node, storage: StorageOf, target: Target) -> tuple[Kernel, float] | None:
    """The kernel that ``node`` gets, with no other in its group and nothing copied first, and the predicted time; None if there is none."""
    group = make_group([node], node, set())
    for kernel in kernels_for(node.op.name, target):
        problem = kernel.accepts(group, storage, target)
        if not isinstance(problem, No):
            return kernel, min(kernel.score_us(problem, c, target) for c in kernel.configs(problem, target))
        if problem.copies:
            return None
    return None


def choosing(table: Table | None) -> Select:
    """``choose`` with ``table``, for every group."""

    def select(kernel: Kernel, group: Group, storage: StorageOf, target: Target) -> Sequence[Choice] | No:
        choice = choose(kernel, group, storage, target, table)
        return choice if isinstance(choice, No) else (choice,)

    return select


class Candidates:
    """Selects, for the first ``places`` groups of each problem, all that is to be measured; one configuration for the others.

    ``slots`` are the groups in the order of selection: each has the choices that were given, the one that a compile would take
    first; ``counts`` says how many groups have a problem. ``most``: so many configurations of a problem, the best by
    ``score_us``. ``known``: those of a problem that need not be measured any more, the best first; where others are to be measured, so is that
    one, before them.
    """

    def __init__(
        self, table: Table | None, most: int, places: int = 2, known: Callable[[str], Sequence[str]] = lambda key: ()
    ):
        self.table, self.most, self.places, self.known = table, most, places, known
        self.slots: list[tuple[Choice, ...]] = []
        self.counts: Counter[str] = Counter()

    def __call__(self, kernel: Kernel, group: Group, storage: StorageOf, target: Target) -> Sequence[Choice] | No:
        default = choose(kernel, group, storage, target, self.table)
        if isinstance(default, No):
            return default
        problem, key = default.problem, default.key
        known, configs = self.known(key), kernel.configs(problem, target)
        scored = sorted((kernel.score_us(problem, c, target), n) for n, c in enumerate(configs))
        names = [str(configs[n]) for _, n in scored[: self.most]]
        missing = {*names} - {str(default.config), *known}
        if missing:
            scored.sort(key=lambda s: str(configs[s[1]]) not in known[:1])
            missing |= {*known[:1]} - {str(default.config)}
        wanted = [Choice(kernel.name, problem, configs[n], "candidate", us, key) for us, n in scored if str(configs[n]) in missing]
        self.counts[key] += 1
        self.slots.append((default, *(wanted if self.counts[key] <= self.places else ())))
        return self.slots[-1]
