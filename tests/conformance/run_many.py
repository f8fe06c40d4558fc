"""Runs node tests that are in one library, in a process of its own, so that a crash is one test's result."""

from __future__ import annotations

import ctypes
import multiprocessing
import warnings
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from conformance.node_tests import as_arrays, cases, mismatch, tolerances

from aitc.errors import AitcError
from aitc.runtime import Model


def run_many(library: Path, names: Sequence[str]) -> dict[str, str | None]:
    """For each test what is wrong, or None. ``names`` are the cases of the library's models, in order."""
    results: dict[str, str | None] = {}
    fork = multiprocessing.get_context("fork")
    while len(results) < len(names):
        receiver, sender = fork.Pipe(duplex=False)
        child = fork.Process(target=_run_from, args=(library, len(results), names[len(results) :], sender))
        child.start()
        sender.close()
        try:
            while True:
                name, wrong = receiver.recv()
                results[name] = wrong
        except EOFError:
            pass
        child.join()
        if len(results) < len(names):
            results[names[len(results)]] = f"crash: the process ended with {child.exitcode}"
    return results


def _run_from(library: Path, first: int, names: Sequence[str], sender: Connection) -> None:
    warnings.simplefilter("ignore")
    choose = ctypes.CDLL(str(library)).choose_model
    for n, name in enumerate(names, first):
        choose(n)
        sender.send((name, run_one(library, n, cases()[name])))


def run_one(library: Path, n: int, case: Any) -> str | None:
    """What is wrong with model ``n``, which is chosen; None if all outputs of all data sets are right."""
    weights = library.with_name(f"t{n}.weights")
    try:
        with Model(library, weights=weights if weights.exists() else None) as model:
            for inputs, outputs in case.data_sets:
                given = as_arrays(case.model, inputs)
                results = model(*[given[p.name] for p in model.inputs])
                for port, expected, actual in zip(model.outputs, outputs, results, strict=True):
                    difference = mismatch(expected, actual, *tolerances(case))
                    if difference is not None:
                        return f"{port.name}: {difference}"
    except AitcError as e:
        return f"error: {e}"
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    return None
