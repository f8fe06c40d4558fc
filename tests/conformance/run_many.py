"""Runs cases (ONNX's or our own) that are in one library, in a process of its own, so that a crash is one case's result."""

from __future__ import annotations

import ctypes
import multiprocessing
import warnings
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from conformance.node_tests import as_arrays, mismatch, tolerances

from aitc.errors import AitcError
from aitc.runtime import Model

PATIENCE = 300.0  # seconds for one case, in an emulator on a busy machine


def run_many(library: Path, cases: Sequence[Any]) -> dict[str, str | None]:
    """For each case, by name, what is wrong, or None. ``cases`` are those of the library's models, in order."""
    names = [case.name for case in cases]
    results: dict[str, str | None] = {}
    fork = multiprocessing.get_context("fork")
    while len(results) < len(names):
        receiver, sender = fork.Pipe(duplex=False)
        child = fork.Process(target=_run_from, args=(library, len(results), cases[len(results) :], sender))
        child.start()
        sender.close()
        silent = False
        try:
            while receiver.poll(PATIENCE):
                name, wrong = receiver.recv()
                results[name] = wrong
            silent = True
            child.kill()
        except EOFError:
            pass
        child.join()
        if len(results) < len(names):
            what = f"no answer in {PATIENCE:.0f} s" if silent else f"crash: the process ended with {child.exitcode}"
            results[names[len(results)]] = what
    return results


def _run_from(library: Path, first: int, cases: Sequence[Any], sender: Connection) -> None:
    warnings.simplefilter("ignore")
    choose = ctypes.CDLL(str(library)).choose_model
    for n, case in enumerate(cases, first):
        choose(n)
        sender.send((case.name, run_one(library, n, case)))


def run_one(library: Path, n: int, case: Any) -> str | None:
    """What is wrong with model ``n``, which is chosen; None if all outputs of all data sets are right."""
    weights = library.with_name(f"t{n}.weights")
    try:
        with Model(library, weights=weights if weights.exists() else None) as model:
            for inputs, outputs in case.data_sets:
                given = as_arrays(case.model, inputs)
                results = model(*[given[p.name] for p in model.inputs])
                for port, expected, actual in zip(model.outputs, outputs, results, strict=True):
                    difference = mismatch(expected, actual, *tolerances(case), getattr(case, "steps", 0))
                    if difference is not None:
                        return f"{port.name}: {difference}"
    except AitcError as e:
        return f"error: {e}"
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    return None
