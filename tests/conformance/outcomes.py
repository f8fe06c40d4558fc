"""What comes of tests on a target: refused, built, run. For on_device.py, which does all of a suite, and the tests, which do a few."""

from __future__ import annotations

import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from conformance import many, many_gpu
from conformance.lists import reasons
from conformance.old_nodes import old_reasons
from conformance.run_many import run_many
from conformance.suites import member

from aitc.errors import AitcError
from aitc.schedule.plan.plan import Plan
from aitc.targets.target import find_target

HOW = ("run", "emulated", "compiled")
REFUSED_RUN = "error: error[R02]"
Outcome = tuple[str, str]  # passed, compiled, random, refused, failed or not run; and what is to be said of it


def plans_of(names: Sequence[str], target: str, suite: str = "node") -> tuple[dict[str, Plan], dict[str, Outcome]]:
    """The plans of a suite's tests, and what came of those that have none."""
    plans: dict[str, Plan] = {}
    outcomes: dict[str, Outcome] = {}
    for name in names:
        try:
            test = member(suite, name)
            plans[name] = many.plan_of(test.case.model, "t", f"{name}.onnx", test.dims, test.precision, target)
        except AitcError as error:
            outcomes[name] = ("refused", f"{error.diagnostics[0].code}: {error.diagnostics[0].message}")
        except Exception:
            outcomes[name] = ("failed", traceback.format_exc(limit=-3))
    return plans, outcomes


def outcomes_of(plans: dict[str, Plan], target: str, how: str, folder: Path, suite: str = "node") -> dict[str, Outcome]:
    """Builds and runs plans; where a compiler fails, halves of them, so that the test at fault is found."""
    if not plans:
        return {}
    numbered = [replace(plan, name=f"t{n}") for n, plan in enumerate(plans.values())]
    try:
        if how == "compiled":
            many_gpu.compile_kernels(many.shared_kernels(numbered)[1], folder, many_gpu.Compilers.of(target, False))
            return dict.fromkeys(plans, ("compiled", ""))
        if find_target(target).api == "cpu":
            library = many.build_many(numbered, folder)
        else:
            library = many_gpu.build_many(numbered, folder, many_gpu.Compilers.of(target, how == "emulated"))
    except RuntimeError as error:
        if len(plans) == 1:
            return {name: ("failed", str(error)) for name in plans}
        names = list(plans)
        halves = names[: len(names) // 2], names[len(names) // 2 :]
        found: dict[str, Outcome] = {}
        for n, half in enumerate(halves):
            found |= outcomes_of({name: plans[name] for name in half}, target, how, folder / str(n), suite)
        return found
    results = run_many(library, [member(suite, name).case for name in plans])
    random = old_reasons("random") if suite == "old" else reasons("random")
    return {name: _outcome(wrong, name in random) for name, wrong in results.items()}


def _outcome(wrong: str | None, random: bool) -> Outcome:
    if wrong is None:
        return "passed", ""
    if wrong.startswith(REFUSED_RUN):  # sizes that the run itself has to refuse
        return "refused", wrong.removeprefix("error: error[").replace("]", "", 1)
    return ("random" if random and "differ" in wrong else "failed"), wrong


def chunk(names: Sequence[str], target: str, how: str, until: float, suite: str = "node") -> dict[str, Outcome]:
    """What came of some tests; those that begin after ``until`` are not run."""
    if time.time() > until:
        return dict.fromkeys(names, ("not run", "no time was left"))
    plans, outcomes = plans_of(names, target, suite)
    with tempfile.TemporaryDirectory(prefix="aitc-conformance-") as folder:
        outcomes |= outcomes_of(plans, target, how, Path(folder), suite)
    return outcomes
