"""The kernel suite under NVIDIA's compute-sanitizer, on a CUDA device: memcheck, and racecheck of shared memory.

    python tests/kernels/gpu/sanitize.py --jobs 16 --json FILE
    python tests/kernels/gpu/sanitize.py --tool racecheck --only gemm_sm90

The problems are divided among ``--jobs`` processes, each under the sanitizer: checked kernels keep one core busy and hardly the device.
What a process has not done after ``--seconds`` is told as not run. Exit status 1 if the sanitizer found anything.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kernels.gpu import device
from kernels.gpu.cases import problems
from kernels.gpu.run_on_device import build_all

from bench import record

TOOLS = ("memcheck", "racecheck")


@dataclass(frozen=True, slots=True)
class Part:
    """What one process came to: ``run`` of ``problems``, ``findings`` of the sanitizer, its words where there are any."""

    tool: str
    shard: str
    problems: int
    run: int
    findings: int
    seconds: float
    said: str


def sanitize(tool: str, shard: str, only: str, total: int, seconds: float) -> Part:
    """Runs one part under ``tool``."""
    script = Path(__file__).with_name("run_on_device.py")
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.json"
        command = ["compute-sanitizer", "--tool", tool, "--print-limit", "20", sys.executable, str(script)]
        command += ["--shard", shard, "--only", only, "--json", str(results), "--jobs", "1"]
        # Each buffer its own allocation, or what lies beyond one would be another's.
        environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        try:
            done = subprocess.run(
                command,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=seconds,
            )
            said = done.stdout
        except subprocess.TimeoutExpired as late:
            said = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else late.stdout or ""
        finished = len(json.loads(results.read_text())["problems"]) if results.exists() else 0
    summary = re.findall(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)", said)
    # Without a summary the process was cut short; what was printed until then counts.
    findings = (
        int(next(filter(None, summary[-1])))
        if summary
        else len(re.findall(r"= (?:Invalid|Race|Error:|Warning: Race)", said))
    )
    index, parts = map(int, shard.split("/"))
    mine = len(range(index - 1, total, parts))
    if not summary and finished == mine:
        findings = max(findings, 1)  # it ended without the sanitizer's word
    return Part(
        tool, shard, mine, finished, findings, round(time.monotonic() - begin, 1), said[:4000] if findings else ""
    )


def main() -> int:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", action="append", choices=TOOLS, help="default: all")
    parser.add_argument("--only", default="", help="word that the problem's name contains")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=300.0, help="for each process")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    wanted = [p for p in problems(options.only) if p.warp != 64]
    build_all(wanted, Path("/tmp/aitc_gpu_tests"), "90", options.jobs)
    tools = options.tool or TOOLS
    work = [(tool, f"{i + 1}/{options.jobs}") for i in range(options.jobs) for tool in tools]
    with ThreadPoolExecutor(options.jobs) as pool:
        parts = list(pool.map(lambda w: sanitize(w[0], w[1], options.only, len(wanted), options.seconds), work))
    rows = []
    for tool in tools:
        own = [p for p in parts if p.tool == tool]
        row = {
            "tool": tool,
            "problems": len(wanted),
            "run": sum(p.run for p in own),
            "findings": sum(p.findings for p in own),
        }
        rows.append(row)
        print(row)
    for p in parts:
        if p.said:
            print(f"{p.tool} {p.shard}: {p.said}")
    if options.json is not None:
        told = {"about": record.about(device.name()), "rows": rows, "parts": [asdict(p) for p in parts if p.said]}
        options.json.write_text(json.dumps(told, indent=1) + "\n")
    return int(any(p.findings for p in parts))


if __name__ == "__main__":
    sys.exit(main())
