"""ONNX's node tests on one target, all of them or some: compiled, run, compared with the outputs that ship with the tests; or another suite.

    python tests/conformance/on_device.py --target h200 --jobs 16 --json h200.json      on a machine with that GPU
    python tests/conformance/on_device.py --target h200 --emulate                       kernels run on the CPU, by tests/emulator
    python tests/conformance/on_device.py --target mi250 --compile-only                 hipcc (nvcc) compiles every kernel; nothing is run
    python tests/conformance/on_device.py --target cpu
    python tests/conformance/on_device.py --target h200 --suite cases                   our own cases (``cases/``)
    python tests/conformance/on_device.py --target h200 --suite constant                the node tests with constant inputs; symbolic, in_branch: variants.py

``--only WORD`` takes the tests whose name contains it, ``--every N`` each Nth; what ``--seconds`` does not suffice for is reported as not run.
``--json`` is written after every chunk; ``table.py --add`` puts it into the table of operators. Exit code 1 if any test fails.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import onnx
from conformance import suites
from conformance.outcomes import HOW, Outcome, chunk

from aitc.targets.machine import devices
from aitc.targets.target import find_target
from bench import record

CHUNK = 40


def report(outcomes: dict[str, Outcome], target: str, how: str, seconds: float, suite: str) -> dict[str, Any]:
    """A run as JSON: what it was, how many tests came out how, and the others than passed ones by name."""
    here = [d.name for d in devices()] if how == "run" and find_target(target).api != "cpu" else []
    counts = Counter(status for status, _ in outcomes.values())
    told = list(sys.argv[1:])
    if "--json" in told:  # a path of this machine
        del told[told.index("--json") : told.index("--json") + 2]
    return {
        "suite": suite,
        "target": target,
        "how": how,
        "commit": record.commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "device": ", ".join(sorted(set(here))) or record.cpu_name(),
        "command": shlex.join(["python", "tests/conformance/on_device.py", *told]),
        "seconds": round(seconds),
        "onnx": onnx.__version__,
        "tests": len(outcomes),
        "only": sorted(outcomes) if len(outcomes) < len(suites.names(suite)) else [],
        "counts": dict(sorted(counts.items())),
        "others": {
            status: {name: text for name, (s, text) in sorted(outcomes.items()) if s == status}
            for status in sorted(counts)
            if status not in ("passed", "compiled")
        },
    }


def run(
    names: Sequence[str], target: str, how: str, jobs: int, seconds: float, json_file: Path | None, suite: str
) -> dict[str, Any]:
    """All chunks, ``jobs`` at a time. Each is a process, so that nothing that happens there ends the run."""
    began = time.time()
    outcomes: dict[str, Outcome] = {}
    work = [names[first : first + CHUNK] for first in range(0, len(names), CHUNK)]
    one = partial(chunk, target=target, how=how, until=began + seconds, suite=suite)
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("fork")) as pool:
        futures = {pool.submit(one, part): part for part in work}
        for done in as_completed(futures):
            try:
                outcomes |= done.result()
            except Exception as error:
                outcomes |= {name: ("failed", f"{type(error).__name__}: {error}") for name in futures[done]}
            answer = report(outcomes, target, how, time.time() - began, suite)
            print(f"{len(outcomes):5} of {len(names)} tests, {answer['seconds']} s: {answer['counts']}", flush=True)
            if json_file:
                json_file.write_text(json.dumps(answer, indent=1) + "\n", encoding="utf-8")
    return answer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True)
    parser.add_argument("--suite", choices=suites.SUITES, default="node")
    parser.add_argument("--emulate", action="store_true")
    parser.add_argument("--compile-only", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=540.0, help="after these no further chunk begins")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    how = HOW[1] if given.emulate else HOW[2] if given.compile_only else HOW[0]
    names = [name for name in suites.names(given.suite) if given.only in name][:: given.every]
    answer = run(names, given.target, how, given.jobs, given.seconds, given.json, given.suite)
    wrong = [f"{n}: {t}" for n, t in answer["others"].get("failed", {}).items()]
    refused = answer["others"].get("refused", {}).items()
    wrong += [f"{n} is refused: {t}" for n, t in refused if not suites.refusal_is_right(given.suite, n, t)]
    print("\n".join(wrong))
    return 1 if wrong or "not run" in answer["counts"] else 0


if __name__ == "__main__":
    sys.exit(main())
