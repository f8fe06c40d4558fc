"""Choosing a configuration: measured tables first, then the kernel's own cost model. Never needs the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aitc.kernels.functor import StorageOf
from aitc.kernels.group import Group
from aitc.kernels.kernel import Kernel, No
from aitc.targets.target import Target

Table = Mapping[str, str]  # "<kernel> <problem>" -> name of the configuration


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen, why (``table`` or ``model``), and its predicted time."""

    kernel: str
    problem: Any
    config: Any
    source: str
    score_us: float


def problem_key(kernel: Kernel, problem: Any) -> str:
    """The key of a problem in tuning tables: never a model's or an op's name."""
    return f"{kernel.name} {problem}"


def choose(kernel: Kernel, group: Group, storage: StorageOf, target: Target, table: Table | None = None) -> Choice | No:
    """The configuration for ``group``, or why the kernel does not take it."""
    problem = kernel.accepts(group, storage, target)
    if isinstance(problem, No):
        return problem
    configs = kernel.configs(problem, target)
    wanted = (table or {}).get(problem_key(kernel, problem))
    for config in configs:
        if str(config) == wanted:
            return Choice(kernel.name, problem, config, "table", kernel.score_us(problem, config, target))
    scored = [(kernel.score_us(problem, config, target), n) for n, config in enumerate(configs)]
    best, at = min(scored)
    return Choice(kernel.name, problem, configs[at], "model", best)
