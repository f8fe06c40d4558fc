"""Compiles models for the GPU of this machine, in each precision, verifies them there, and prints a table.

    python tests/models/on_device.py [--target h200] [--precision fp32 --precision fp16] [--jobs N] [--json FILE] [MODEL.onnx ...]

Without models it takes one file of every architecture in models/tiny; `--devset` takes those real files of models/devset.py that are
on this machine (the onnx package's, and what models/cache holds), at their typical sizes; `--full` exports every architecture in full
size. Exit code 1 if any failed. This is what is run by hand on a machine with a GPU; CI has none.
To build without a device: `python -m bench.builds`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))


Shapes = tuple[tuple[str, tuple[int | str, ...]], ...]


def run(path: str, target: str, precision: str, jobs: int, shapes: Shapes = ()) -> dict[str, object]:
    """One model in one precision: status, errors against the reference, launches, seconds."""
    from aitc.errors import AitcError
    from aitc.pipeline import Options, compile

    start = time.perf_counter()
    row: dict[str, object] = {"model": Path(path).stem, "precision": precision, "target": target}
    with tempfile.TemporaryDirectory() as folder:
        try:
            options = Options(targets=(target,), output=Path(folder) / "out", precision=precision, jobs=jobs, verify="require", input_shapes=shapes)
            result = compile(path, options)
            assert result.plan is not None and result.verification is not None
            row |= {
                "status": result.verification.status,
                "detail": str(result.verification),
                "launches": len(result.plan.launches),
                "kernels": len(result.plan.kernels),
                "seconds": {k: round(v, 3) for k, v in result.seconds.items()},
            }
        except AitcError as error:
            row |= {"status": "error", "detail": str(error)}
        except Exception:
            row |= {"status": "defect", "detail": traceback.format_exc()}
    row["wall_s"] = round(time.perf_counter() - start, 1)
    return row


def exported() -> list[str]:
    """Every architecture of the catalog in full size, static, by torch's new exporter."""
    from bench.product import full_model
    from models import catalog

    return [str(full_model(a.name)) for a in catalog.CATALOG]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--target", action="append")
    parser.add_argument("--precision", action="append")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--devset", action="store_true")
    parser.add_argument("--full", action="store_true")
    given = parser.parse_args()
    chosen: list[tuple[str, Shapes]] = [(m, ()) for m in given.models]
    if given.devset:
        from models import devset

        chosen += [(str(m.fetch()), m.input_shapes()) for m in devset.here()]
    chosen += [(m, ()) for m in exported()] if given.full else []
    if not chosen:
        from models.tiny import one_of_each

        chosen = [(str(p), ()) for p in one_of_each()]
    work = [
        (m, t, p, shapes) for m, shapes in chosen for t in given.target or ["h200"] for p in given.precision or ["fp32", "fp16"]
    ]
    workers = max(1, min(len(work), given.jobs // 2))
    rows = []
    with ProcessPoolExecutor(workers) as pool:
        futures = [pool.submit(run, m, t, p, min(2, given.jobs), shapes) for m, t, p, shapes in work]
        for f in futures:
            row = f.result()
            rows.append(row)
            text = str(row["detail"]).replace("\n", " | ")
            head = f"{row['status']:8} {row['model']:44} {row['target']:7} {row['precision']:6} {row.get('launches', ''):>4} launches"
            print(f"{head} {row['wall_s']:>6} s  {text[:300]}", flush=True)
    if given.json:
        from aitc.targets.machine import devices
        from bench import record

        names = ", ".join(sorted({d.name for d in devices()}))
        record.write(given.json.stem, rows, names, given.json.parent)
    bad = sum(r["status"] != "passed" for r in rows)
    print(f"{len(rows) - bad} passed, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
