"""Where figures go: bench/results/<name>.json with what is needed to judge and repeat them."""

from __future__ import annotations

import datetime
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"
ROOT = RESULTS.parent.parent

Row = Mapping[str, object]


def earlier(name: str, device: str, results: Path | None = None) -> list[dict[str, object]]:
    """The rows that are there already, if they were measured at this commit on such a device; else none."""
    path = (results or RESULTS) / f"{name}.json"
    if not path.exists():
        return []
    found = json.loads(path.read_text())
    same = found["about"]["commit"] == commit() and found["about"]["device"] == device
    return list(found["rows"]) if same else []


def rows_of(name: str, device: str, results: Path | None = None) -> list[dict[str, object]]:
    """The rows that are there already from such a device, at whatever commit; a row without one gets the file's."""
    path = (results or RESULTS) / f"{name}.json"
    if not path.exists():
        return []
    found = json.loads(path.read_text())
    return [{"commit": found["about"]["commit"], **r} for r in found["rows"]] if found["about"]["device"] == device else []


def write(name: str, rows: Sequence[Row], device: str, results: Path | None = None) -> Path:
    """Write `rows`, measured on `device`, and return the path. What the file held before is gone (see `earlier`)."""
    folder = results or RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"about": about(device), "rows": list(rows)}, indent=1) + "\n")
    part.replace(path)
    return path


def about(device: str) -> dict[str, object]:
    """What is needed to judge figures that are measured on ``device`` now, and to repeat them."""
    return {
        "commit": commit(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "device": device,
        "load": round(os.getloadavg()[0], 2),  # over the last minute, the bench's own threads included
        "command": command(),
        "versions": versions(),
    }


def command() -> str:
    """How this process was called, from the repository's root; paths below it are relative."""
    script = Path(sys.argv[0]).resolve()
    inside = script.relative_to(ROOT) if script.is_relative_to(ROOT) else Path(script.name)
    called = ["-m", f"bench.{script.stem}"] if inside.parent == Path("bench") else [str(inside)]
    return shlex.join(["python", *called, *(a.replace(f"{ROOT}/", "") for a in sys.argv[1:])])


def commit() -> str:
    """The commit measured, with `+` when files differ from it; $AITC_COMMIT where there is no repository."""
    told = os.environ.get("AITC_COMMIT")
    if told:
        return told
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        changed = _git(
            "status", "--porcelain", "--untracked-files=no", "--", "aitc", "cli", "codegen_templates", "bench"
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("+" if changed else "")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def versions() -> dict[str, str]:
    """Of the packages that matter to a figure, as far as they are installed, and of Python."""
    found = {"python": platform.python_version()}
    for package in ("torch", "torchvision", "timm", "transformers", "triton", "onnx", "onnxruntime", "numpy"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def cpu_name() -> str:
    """The processor and the number of cores this process may use."""
    model = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return f"{model}, {len(os.sched_getaffinity(0))} cores"
