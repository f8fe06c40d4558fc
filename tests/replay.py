"""What a change does to generated code: the sources of all small models (models/tiny) at this checkout and at an earlier commit, compared.

    python tests/replay.py                     this checkout and the commit before HEAD
    python tests/replay.py --base main         another commit
    python tests/replay.py --check             exit status 1 if any text differs
    python tests/replay.py --diff              the differences in full

Nothing is compiled. Models are emitted for cpu as they are and for GPUs in half precision. The earlier commit is unpacked into a temporary folder, so no
checkout is touched; both sides emit the models of this one. A difference that many models share is printed once.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGETS = ("cpu", "h200", "a100", "mi250")
GENERATES = ("aitc", "codegen_templates", "models/tiny")  # where all that decides about generated text lives
Index = dict[str, dict[str, str]]  # "model target" -> path -> digest of the text
SHOWN = 20  # distinct differences that are listed


def emit_model(model: Path, texts: Path) -> Index:
    """The sources of a model for each target, in ``texts`` by digest. What is refused has the error as its only text."""
    from aitc import pipeline
    from aitc.errors import AitcError

    index: Index = {}
    for target in TARGETS:
        precision = "model" if target == "cpu" else "fp16"
        try:
            options = pipeline.Options(targets=(target,), precision=precision, stop_after="emit")
            sources = pipeline.compile(model, options).sources or {}
        except AitcError as error:
            sources = {"refused": f"{error}\n"}
        except Exception as error:
            sources = {"failed": f"{type(error).__name__}: {error}\n"}
        found = index.setdefault(f"{model.stem} {target}", {})
        for path, text in sources.items():
            digest = hashlib.sha256(text.encode()).hexdigest()[:24]
            found[path] = digest
            if not (texts / digest).exists():
                (texts / digest).write_text(text, encoding="utf-8")
    return index


def emit_all(tree: Path, models: Path, texts: Path, jobs: int) -> Index:
    """``emit_model`` of all models with the aitc in ``tree``; for a process of its own."""
    sys.path.insert(0, str(tree))
    import aitc

    assert Path(aitc.__file__).is_relative_to(tree), f"{aitc.__file__} is not in {tree}"
    files = sorted(models.glob("*.onnx"), key=lambda p: -p.stat().st_size)
    index: Index = {}
    with ProcessPoolExecutor(jobs) as pool:
        for found in pool.map(emit_model, files, [texts] * len(files)):
            index |= found
    return index


def emitted(tree: Path, texts: Path, jobs: int) -> Index:
    """The index that this file writes when it runs with the aitc in ``tree``."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AITC_")}
    environment |= {"AITC_CACHE_DIR": "", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(tree)}
    command = [sys.executable, __file__, "--emit", str(tree), "--texts", str(texts), "--jobs", str(jobs)]
    done = subprocess.run(command, env=environment, cwd=texts, stdout=subprocess.PIPE, text=True, check=True)
    index: Index = json.loads(done.stdout)
    return index


def git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], stdout=subprocess.PIPE, text=True, check=True).stdout


def unpack(commit: str, folder: Path) -> None:
    """The files of a commit that code is generated from."""
    folder.mkdir()
    archive = subprocess.Popen(["git", "-C", str(ROOT), "archive", commit, *GENERATES[:2]], stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", str(folder)], stdin=archive.stdout, check=True)
    if archive.wait():
        raise SystemExit(f"git archive {commit} failed")


def differences(before: Index, after: Index, texts: Path) -> dict[tuple[str, str], list[str]]:
    """(path, unified diff) -> the models and targets in which that is what changed."""

    def lines(digest: str | None) -> list[str]:
        return (texts / digest).read_text(encoding="utf-8").splitlines() if digest else []

    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    diffs: dict[tuple[str | None, str | None], str] = {}
    for case in sorted({*before, *after}):
        old, new = before.get(case, {}), after.get(case, {})
        for path in sorted({*old, *new}):
            pair = old.get(path), new.get(path)
            if pair[0] == pair[1]:
                continue
            if pair not in diffs:
                diffs[pair] = "\n".join([*difflib.unified_diff(lines(pair[0]), lines(pair[1]), lineterm="", n=2)][2:])
            found[path, diffs[pair]].append(case)
    return dict(found)


def report(found: dict[tuple[str, str], list[str]], whole: bool) -> str:
    """The distinct differences, those of most models first: file, lines added and removed, where."""
    out = []
    for (path, diff), cases in sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))[: None if whole else SHOWN]:
        changed = diff.split("\n")
        plus, minus = (sum(line.startswith(sign) for line in changed) for sign in "+-")
        where = ", ".join(cases[:2]) + (f" and {len(cases) - 2} more" if len(cases) > 2 else "")
        out.append(f"{path}  +{plus} -{minus}  in {where}")
        out += [f"    {line}" for line in (changed if whole else [line for line in changed if line[:1] in "+-"][:6])]
    if not whole and len(found) > SHOWN:
        out.append(f"... and {len(found) - SHOWN} differences more: --diff shows all")
    return "\n".join(out)


def main() -> int:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="HEAD~1", help="the commit to compare with (default: the one before HEAD)")
    parser.add_argument("--check", action="store_true", help="exit status 1 if anything differs")
    parser.add_argument("--diff", action="store_true", help="print the differences in full")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--emit", type=Path, help=argparse.SUPPRESS)  # with the aitc in this folder; the index goes to stdout
    parser.add_argument("--texts", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.emit:
        print(json.dumps(emit_all(options.emit, ROOT / "models" / "tiny", options.texts, options.jobs)))
        return 0
    begin = time.monotonic()
    try:
        base = git("rev-parse", "--short", "--verify", f"{options.base}^{{commit}}").strip()
    except subprocess.CalledProcessError:
        print(f"replay: there is no commit {options.base} here (a shallow clone?): nothing is compared")
        return 0
    if not git("status", "--porcelain", "--", *GENERATES) and not git("diff", "--name-only", base, "HEAD", "--", *GENERATES):
        print(f"replay: nothing that code is generated from differs from {base}")
        return 0
    with tempfile.TemporaryDirectory(prefix="aitc-replay-") as folder:
        texts = Path(folder, "texts")
        texts.mkdir()
        unpack(base, Path(folder, "base"))
        before = emitted(Path(folder, "base"), texts, options.jobs)
        after = emitted(ROOT, texts, options.jobs)
        found = differences(before, after, texts)
        print(report(found, options.diff), end="\n" if found else "")
    cases = {case for those in found.values() for case in those}
    print(f"replay: of {len(after)} sources ({len(after) // len(TARGETS)} models for {', '.join(TARGETS)}) {len(cases)} differ from {base}, "
          f"in {len(found)} ways ({time.monotonic() - begin:.0f} s)")  # fmt: skip
    return int(bool(found) and options.check)


if __name__ == "__main__":
    sys.exit(main())
