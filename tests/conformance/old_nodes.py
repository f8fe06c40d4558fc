"""ONNX's node tests of former releases: their models have the forms of opsets 7 to 17, which the newest tests no longer do.

The wheels of those releases on PyPI hold them as data. ``pip download`` fetches each once (90 MB in all) into the cache folder of the tests; nothing of
them is installed or committed. A test whose model is that of a later release, or of the installed onnx, is left out.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import onnx
from conformance.lists import reasons
from conformance.node_tests import ModelTest, cases, value

from aitc.settings import Settings

RELEASES = ("1.4.1", "1.5.0", "1.6.0", "1.7.0", "1.8.1", "1.9.0", "1.10.2", "1.11.0", "1.12.0")
PLATFORMS = ("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64")  # any will do: only data is read
FOLDER = "onnx/backend/test/data/node/"


def wheel(release: str) -> Path:
    """The wheel of a release of onnx, downloaded if it is not there. Raises RuntimeError with what pip said."""
    folder = Settings.read().cache_dir / "onnx-wheels"
    found = sorted(folder.glob(f"onnx-{release}-*.whl"))
    if not found:
        folder.mkdir(parents=True, exist_ok=True)
        platforms = [word for p in PLATFORMS for word in ("--platform", p)]
        done = subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", *platforms, "--python-version",
             "3.6" if release == "1.4.1" else "3.7", "--dest", str(folder), f"onnx=={release}"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        found = sorted(folder.glob(f"onnx-{release}-*.whl"))
        if done.returncode or not found:
            raise RuntimeError(f"pip download onnx=={release}: {done.stderr[-2000:]}")
    return found[0]


@lru_cache(maxsize=1)
def old_cases() -> dict[str, ModelTest]:
    """The tests by name, ``1.6.0/test_clip``: of each model the newest release's. Data is read at once: some 40 MB."""
    seen = {_identity(name, case.model) for name, case in cases().items()}
    found: dict[str, ModelTest] = {}
    for release in reversed(RELEASES):
        with zipfile.ZipFile(wheel(release)) as archive:
            files = archive.namelist()
            for path in files:
                name, _, rest = path.removeprefix(FOLDER).partition("/")
                if not path.startswith(FOLDER) or rest != "model.onnx":
                    continue
                model = onnx.ModelProto.FromString(archive.read(path))
                identity = _identity(name, model)
                if identity not in seen:
                    seen.add(identity)
                    sets = list(_data_sets(archive, files, f"{FOLDER}{name}/", model))
                    found[f"{release}/{name}"] = ModelTest(f"{release}/{name}", model, sets, 1e-3, 1e-7)
    return dict(sorted(found.items()))


def _identity(name: str, model: onnx.ModelProto) -> tuple[str, ...]:
    """What a test is, without its release: its name, what it computes as text, and the forms of its operators."""
    text = onnx.printer.to_text(onnx.ModelProto(graph=model.graph, functions=model.functions))
    versions = {o.domain: o.version for o in model.opset_import}
    forms = []
    for node in model.graph.node:
        try:
            since = onnx.defs.get_schema(node.op_type, versions.get(node.domain, 1), node.domain).since_version
        except onnx.defs.SchemaError:
            since = 0
        forms.append(f"{node.op_type}-{since}")
    return (name, text, *forms)


def old_reasons(kind: str) -> dict[str, str]:
    """Test -> reason, of the groups ``kind`` (refused, random, wrong) in old.toml, and of the tests' newest namesakes."""
    today = reasons(kind)
    found = {name: today[base] for name in old_cases() if (base := name.partition("/")[2]) in today}
    return found | reasons(kind, "old.toml")


def _data_sets(
    archive: zipfile.ZipFile, files: list[str], folder: str, model: onnx.ModelProto
) -> Iterator[tuple[list[Any], list[Any]]]:
    folders = sorted({f[: f.index("/", len(folder))] for f in files if f.startswith(f"{folder}test_data_set_")})
    for data in folders:
        read = [
            [value(archive.read(f"{data}/{kind}_{n}.pb"), port) for n, port in enumerate(ports) if f"{data}/{kind}_{n}.pb" in files]
            for kind, ports in (("input", model.graph.input), ("output", model.graph.output))
        ]  # fmt: skip
        yield read[0], read[1]
