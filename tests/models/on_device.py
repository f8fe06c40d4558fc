"""Compiles models for the GPU of this machine, in each precision, verifies them there, and prints a table.

    python tests/models/on_device.py [--target h200] [--precision fp32 --precision fp16] [--jobs N] [--json FILE] [MODEL.onnx ...]

Without models it takes one file of every architecture in models/tiny; `--tiny` takes all of them (both of torch's exporters, static and dynamic);
`--devset` those real files of models/devset.py that are on this machine (the onnx package's, and what models/cache holds), at their typical sizes;
`--full` exports every architecture in full size by the new exporter, static; `--full-others` in the other three forms: by the new one with batch (and
sequence) dynamic, by the old one static and dynamic (Stable Diffusion's only if `--only` names it: bench.gpu has it). What comes first in the list of
models is built first, in the first precision. `--json` is written after every model; `--after` keeps the rows of an earlier run that passed, and does not
repeat them; after `--seconds` nothing begins. A folder FILE.data beside FILE.onnx, of NAME.npy for each input, is what that model is verified on.
`--bench` adds the latency that each executable measures (one model at a time then, with all --jobs compilers).
Exit code 1 if any failed. This is what is run by hand on a machine with a GPU; CI has none. To build without a device: `python -m bench.builds`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from aitc.errors import AitcError
from aitc.pipeline import Options, compile
from aitc.targets.machine import devices
from bench import record
from bench.product import MODELS, full_model
from models import catalog

Shapes = tuple[tuple[str, tuple[int | str, ...]], ...]
Row = dict[str, Any]
STATIC = ("dynamo", False)  # what bench.gpu measures, too
OTHER_FORMS = [("torchscript", True), ("dynamo", True), ("torchscript", False)]
EXPORTERS = 4  # processes that export at once
BUILD_JOBS = 2  # compilers of one model, at least


@dataclass(frozen=True, slots=True)
class Subject:
    """A model by the name of its rows. ``make`` gives its file, in a process of its own where that takes torch."""

    name: str
    make: Callable[[], str]
    shapes: Shapes = ()
    exported: bool = False


def latency(executable: Path, data: Path | None) -> Row:
    """What the executable's own --bench measures."""
    files = [f"--input={f.stem}={f}" for f in sorted(data.glob("*.npy"))] if data else []
    done = subprocess.run([executable, *files, "--bench", "--json"], capture_output=True, text=True, timeout=300)
    if done.returncode:
        return {"bench": done.stderr.strip()[-500:]}
    found = json.loads(done.stdout)
    return {"bench": {key: found[key] for key in ("latency_ms", "iterations", "device")}}


def run(name: str, path: str, shapes: Shapes, target: str, precision: str, jobs: int = BUILD_JOBS, bench: bool = False) -> Row:
    """One model in one precision: status, errors against the reference, launches, seconds; if asked for, latency."""
    beside = Path(path).with_suffix(".data")
    data = beside if beside.is_dir() else None
    start = time.perf_counter()
    row: Row = {"model": name, "precision": precision, "target": target}
    with tempfile.TemporaryDirectory(prefix="aitc-models-") as folder:
        options = Options(
            targets=(target,),
            output=Path(folder) / "out",
            precision=precision,
            jobs=jobs,
            verify="require",
            input_shapes=shapes,
            data=data,
        )
        try:
            result = compile(path, options)
            assert result.plan is not None and result.verification is not None
            row |= {
                "status": result.verification.status,
                "detail": str(result.verification),
                "launches": len(result.plan.launches),
                "kernels": len(result.plan.kernels),
                "seconds": {k: round(v, 3) for k, v in result.seconds.items()},
            }
            if bench and result.verification.ok and result.output is not None:
                row |= latency(result.output / result.name, data)
        except AitcError as error:
            row |= {"status": "error", "detail": str(error)}
        except Exception:
            row |= {"status": "defect", "detail": traceback.format_exc()}
    row["wall_s"] = round(time.perf_counter() - start, 1)
    return row


def export_as(name: str, form: tuple[str, bool]) -> str:
    """An architecture in full size by one of torch's exporters, its named dims symbolic or not."""
    from models.export import Exporter, export

    if form == STATIC:
        return str(full_model(name))
    exporter, dynamic = cast(Exporter, form[0]), form[1]
    path = MODELS / f"{name}-{exporter}-{'dynamic' if dynamic else 'static'}.onnx"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        export(catalog.find(name), part, exporter=exporter, dynamic=dynamic)
        part.replace(path)
    return str(path)


def _few_threads(threads: int) -> None:
    os.environ["OMP_NUM_THREADS"] = str(threads)  # torch, not yet imported, reads it


def subjects(given: argparse.Namespace) -> list[Subject]:
    """The models that the command line asks for."""
    found = [Subject(Path(m).stem, partial(str, m)) for m in given.models]
    forms = [STATIC] * given.full + OTHER_FORMS * given.full_others
    for exporter, dynamic in forms:
        suffix = "" if (exporter, dynamic) == STATIC else f"-{exporter}-{'dynamic' if dynamic else 'static'}"
        found += [
            Subject(f"{a.name}-full{suffix}", partial(export_as, a.name, (exporter, dynamic)), (), True)
            for a in catalog.CATALOG
        ]
    if given.devset:
        from models import devset

        found += [Subject(m.name, partial(str, m.fetch()), m.input_shapes()) for m in devset.here()]
    if given.tiny or not found:
        from models import tiny

        paths = [m.path for m in tiny.load()] if given.tiny else tiny.one_of_each()
        found += [Subject(p.stem, partial(str, p)) for p in paths]
    chosen = [s for s in found if any(word in s.name for word in given.only or [""])]
    return [s for s in chosen if given.only or not (s.exported and s.name.startswith("sd15"))]


class Work:
    """Exports and compiles, each in a process; compiles begin in the order of ``wanted`` as far as their models are there."""

    def __init__(
        self,
        wanted: Sequence[tuple[Subject, str, str]],
        jobs: int,
        seconds: float,
        say: Callable[[Row], None],
        bench: bool,
    ) -> None:
        self.bench = bench
        self.waiting = list(wanted)
        self.workers = 1 if bench else max(1, min(len(wanted), jobs * 3 // (2 * BUILD_JOBS)))
        self.build_jobs = max(BUILD_JOBS, jobs // self.workers)
        self.until = time.monotonic() + seconds
        self.say = say
        self.paths: dict[str, str] = {}
        self.compiles: dict[Future[Row], Row] = {}
        self.exports: dict[Future[str], str] = {}
        self.pool = ProcessPoolExecutor(self.workers)
        self.threads = max(1, jobs // EXPORTERS)

    def run(self) -> int:
        """All that fits into the time; how many compiles were not begun."""
        with ProcessPoolExecutor(EXPORTERS, initializer=_few_threads, initargs=(self.threads,)) as exporters:
            for s in dict.fromkeys(s for s, _, _ in self.waiting):
                if s.exported:
                    self.exports[exporters.submit(s.make)] = s.name
                else:
                    self.paths[s.name] = s.make()
            while True:
                self._begin()
                if not self.compiles and (not self.exports or time.monotonic() > self.until):
                    break
                under_way: list[Future[Any]] = [*self.compiles, *self.exports]
                done, _ = wait(under_way, timeout=5, return_when=FIRST_COMPLETED)
                for future in done:
                    if future in self.exports:
                        self._exported(future)
                    else:
                        self._compiled(future)
            for export in self.exports:
                export.cancel()
        self.pool.shutdown()
        return len(self.waiting)

    def _begin(self) -> None:
        ready = [w for w in self.waiting if w[0].name in self.paths]
        for work in ready[: self.workers - len(self.compiles)]:
            if time.monotonic() > self.until:
                return
            self.waiting.remove(work)
            s, target, precision = work
            future = self.pool.submit(run, s.name, self.paths[s.name], s.shapes, target, precision, self.build_jobs, self.bench)
            self.compiles[future] = {"model": s.name, "precision": precision, "target": target}

    def _exported(self, future: Future[Any]) -> None:
        name = self.exports.pop(future)
        try:
            self.paths[name] = future.result()
        except Exception:
            mine = [w for w in self.waiting if w[0].name == name]
            self.waiting = [w for w in self.waiting if w not in mine]
            for _, target, precision in mine:
                self.say(
                    {
                        "model": name,
                        "precision": precision,
                        "target": target,
                        "status": "no export",
                        "detail": traceback.format_exc(),
                    }
                )

    def _compiled(self, future: Future[Any]) -> None:
        row = self.compiles.pop(future)
        try:
            row = future.result()
        except BrokenProcessPool as error:
            row |= {"status": "defect", "detail": f"the process ended: {error}"}
            self.pool = ProcessPoolExecutor(self.workers)
        self.say(row)


def kept(file: Path | None) -> list[Row]:
    """The rows of an earlier run that passed."""
    return [r for r in json.loads(file.read_text())["rows"] if r["status"] == "passed"] if file else []


def line(row: Mapping[str, Any]) -> str:
    head = f"{row['status']:9} {row['model']:44} {row['target']:7} {row['precision']:6} {row.get('launches', ''):>4} launches"
    bench = f"  bench {row['bench']}"[:400] if "bench" in row else ""
    return f"{head} {row.get('wall_s', 0):>6} s  {str(row['detail']).replace(chr(10), ' | ')[:300]}{bench}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--target", action="append")
    parser.add_argument("--precision", action="append")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--after", type=Path)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--only", action="append", help="word that the model's name contains")
    for flag in ("--full", "--full-others", "--devset", "--tiny", "--bench"):
        parser.add_argument(flag, action="store_true")
    given = parser.parse_args()
    rows = kept(given.after)
    have = {(r["model"], r["target"], r["precision"]) for r in rows}
    chosen, targets, precisions = subjects(given), given.target or ["h200"], given.precision or ["fp32", "fp16"]
    wanted = [(s, t, p) for p in precisions for t in targets for s in chosen if (s.name, t, p) not in have]
    names, commit = ", ".join(sorted({d.name for d in devices()})), record.commit()
    bad: list[Row] = []
    print(f"{len(rows)} rows are kept, {len(wanted)} to come", flush=True)

    def write() -> None:
        if given.json:
            record.write(given.json.stem, rows, names, given.json.parent)

    def say(row: Row) -> None:
        row["commit"] = commit
        rows.append(row)
        bad.extend([row] if row["status"] != "passed" else [])
        print(line(row), flush=True)
        write()

    write()
    left = Work(wanted, given.jobs, given.seconds, say, given.bench).run() if wanted else 0
    print(f"{len(rows) - len(bad)} passed, {len(bad)} failed, {left} not begun")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
