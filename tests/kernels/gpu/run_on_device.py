"""Checks (and times) the GPU kernels on a CUDA device.

    python tests/kernels/gpu/run_on_device.py                 build every problem, run it, compare with float64
    python tests/kernels/gpu/run_on_device.py --time          also time the main shapes beside torch
    python tests/kernels/gpu/run_on_device.py --only conv     problems or races whose name contains the word
    python tests/kernels/gpu/run_on_device.py --compile-only  no device needed
    python tests/kernels/gpu/run_on_device.py --json FILE     also write what came out, problem by problem and race by race
    python tests/kernels/gpu/run_on_device.py --shard 2/8     every eighth problem, from the second on (see sanitize.py)

Exit status 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kernels.gpu import device, timing, timing_conv, timing_rows, timing_sm90
from kernels.gpu.cases import problems
from kernels.gpu.problem import Problem

from bench import record


def build_all(wanted: list[Problem], folder: Path, arch: str, jobs: int) -> dict[str, Path | str]:
    """Compiles each distinct source once: digest -> cubin, or the compiler's words."""
    distinct = {p.digest: p for p in wanted}

    def one(problem: Problem) -> Path | str:
        try:
            return device.build(problem, folder, arch)
        except RuntimeError as error:
            return str(error)

    with ThreadPoolExecutor(jobs) as pool:
        return dict(zip(distinct, pool.map(one, distinct.values()), strict=True))


def main() -> int:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time", action="store_true", help="time the main shapes beside torch")
    parser.add_argument("--no-check", action="store_true", help="skip the comparison with float64")
    parser.add_argument("--only", default="", help="word that the kernel's or problem's name contains")
    parser.add_argument(
        "--without", default="", help="leave out problems whose name begins with a word that contains this"
    )
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="the Ith of N parts of the problems")
    parser.add_argument("--compile-only", action="store_true")
    parser.add_argument("--arch", default="90")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="file for the results, written now and then and at the end")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/aitc_gpu_tests"))
    options = parser.parse_args()
    begin = time.time()
    wanted = [] if options.no_check else [p for p in problems(options.only) if p.warp != 64]
    if options.without:
        wanted = [p for p in wanted if options.without not in p.name.split()[0]]
    part, parts = map(int, options.shard.split("/"))
    wanted = wanted[part - 1 :: parts]
    races = [r for r in (*timing.races(), *timing_sm90.races(), *timing_conv.races(), *timing_rows.races()) if options.only in r.name] if options.time else []
    cubins = build_all([*wanted, *(c for r in races for c in r.candidates)], options.folder, options.arch, options.jobs)
    failed = 0
    for digest, cubin in cubins.items():
        if isinstance(cubin, str):
            failed += 1
            print(f"BUILD {digest} {cubin[:1500]}")
        elif device.spills(cubin):
            print(
                f"spills: {next(p.name for p in [*wanted, *(c for r in races for c in r.candidates)] if p.digest == digest)}"
            )
    print(f"{len(cubins)} cubins in {time.time() - begin:.0f} s, {failed} failed", flush=True)
    if options.compile_only:
        return int(failed > 0)
    good = 0
    report: dict[str, list[dict[str, object]]] = {"problems": [], "races": []}

    def write() -> None:
        """An entry a line: there are hundreds."""
        if options.json is None:
            return
        lists = (
            f'"{kind}": [\n' + ",\n".join(json.dumps(e) for e in entries) + "\n]" for kind, entries in report.items()
        )
        about = json.dumps(record.about(device.name()), indent=1)
        options.json.write_text(f'{{\n"about": {about},\n' + ",\n".join(lists) + "\n}\n")

    def note(kind: str, entry: dict[str, object]) -> None:
        report[kind].append(entry)
        if len(report[kind]) % 10 == 0:
            write()

    worst: dict[str, float] = {}
    for problem in wanted:
        cubin = cubins[problem.digest]
        if isinstance(cubin, str):
            continue
        verdict = device.run(problem, cubin)
        kernel = problem.name.split()[0]
        worst[kernel] = max(worst.get(kernel, 0.0), verdict.error / verdict.limit if verdict.limit else 0.0)
        good += verdict.good
        note("problems", {"name": problem.name, "good": verdict.good, "error": verdict.error, "limit": verdict.limit, "faults": verdict.faults})
        if not verdict.good:
            failed += 1
            print(f"BAD {problem.name}: {'; '.join(verdict.faults)[:400]}", flush=True)
    if wanted:
        print(
            f"{good} of {len(wanted)} problems good; worst error as a part of its limit: "
            + ", ".join(f"{k} {v:.2f}" for k, v in worst.items()),
            flush=True,
        )
    if races:
        import torch

        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = False
        for race in races:
            torch.backends.cuda.matmul.allow_tf32 = "sm80 f32" in race.name or "tf32" in race.name
            built = [cubins[c.digest] for c in race.candidates]
            if any(isinstance(c, str) for c in built):
                continue
            result = timing.run_race(race, built, torch)  # type: ignore[arg-type]
            failed += result.wrong
            note("races", asdict(result))
            print(result, flush=True)
    write()
    print(f"{time.time() - begin:.0f} s in all")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
