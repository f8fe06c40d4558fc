"""Node tests in builds that no library of this machine is: under AddressSanitizer and UBSan, with vectors of AVX-512's width where there
may be none, and for aarch64 under qemu. A test of each operator, many in one program."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from conformance.coverage import selection
from conformance.many import Build, plan_of, program_of_many
from conformance.node_tests import as_arrays, cases, mismatch, tolerances

from aitc.errors import AitcError
from aitc.targets.machine import cpu_isa

CHUNK = 20
SANITIZERS = ("-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


@dataclass(frozen=True, slots=True)
class Way:
    """A build, and the command before its program."""

    build: Build
    before: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


WAYS = {
    "sanitized": Way(Build(more=SANITIZERS)),
    # What AVX-512 code does, split into instructions of this machine: the kernels hold no intrinsics, only vectors of a width.
    "wide": Way(Build(more=("-DAITC_VECTOR_BYTES=64",))),
    "aarch64": Way(
        Build("aarch64-linux-gnu-g++", "native", "aarch64", ("-static",)),
        ("qemu-aarch64-static",),
        ("aarch64-linux-gnu-g++", "qemu-aarch64-static"),
    ),
}


def _chunks() -> list[Any]:
    names = selection(0)
    return [
        pytest.param(way, names[n : n + CHUNK], id=f"{way}-{names[n]}", marks=(pytest.mark.full,) if n else ())
        for way in WAYS
        for n in range(0, len(names), CHUNK)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("way", "names"), _chunks())
def test_nodes(way: str, names: list[str], tmp_path: Path) -> None:
    how = WAYS[way]
    for tool in how.needs:
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    if way == "wide" and cpu_isa() == "avx512":
        pytest.skip("the machine runs AVX-512 itself: all other tests have run it")
    plans = []
    planned = []
    for name in names:
        case = cases()[name]
        if not _plain(case):
            continue
        try:
            plans.append(plan_of(case.model, f"t{len(plans)}", f"{name}.onnx"))
            planned.append(case)
        except AitcError:
            continue  # test_cpu.py says which are refused
    program = program_of_many(plans, tmp_path, how.build)
    problems = [f"{case.name}: {wrong}" for n, case in enumerate(planned) if (wrong := _run(how, program, n, case)) is not None]
    assert not problems, "\n".join(problems)
    assert len(planned) > CHUNK // 3


def _plain(case: Any) -> bool:
    """Whether numpy's files can hold what goes in and comes out, under the tensors' own names; random outputs are left out."""
    ports = [*case.model.graph.input, *case.model.graph.output]
    plain = {onnx.TensorProto.DataType.Value(t) for t in ("FLOAT", "DOUBLE", "INT32", "INT64", "INT8", "UINT8", "BOOL", "FLOAT16")}
    random = any(node.op_type in ("Bernoulli", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Dropout") for node in case.model.graph.node)
    return not random and all(
        p.type.WhichOneof("value") == "tensor_type" and p.type.tensor_type.elem_type in plain and re.fullmatch(r"\w+", p.name) for p in ports
    )


def _run(how: Way, program: Path, n: int, case: Any) -> str | None:
    """What is wrong with model ``n`` of the program; None if its outputs are right."""
    inputs, outputs = case.data_sets[0]
    folder = program.with_name(f"run{n}")
    folder.mkdir()
    arguments = ["--output-dir", str(folder / "out")]
    weights = program.with_name(f"t{n}.weights")
    if weights.exists():
        arguments += ["--weights", str(weights)]
    for name, array in as_arrays(case.model, inputs).items():
        np.save(folder / f"{name}.npy", array)
        arguments += ["--input", f"{name}={folder / name}.npy"]
    command = [*how.before, str(program), str(n), *arguments]
    environment = {**os.environ, "AITC_ISA": how.build.isa}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    if done.returncode:
        return f"exit code {done.returncode}: {done.stderr[-1500:]}"
    for port, expected in zip(case.model.graph.output, outputs, strict=True):
        wrong = mismatch(expected, np.load(folder / "out" / f"{port.name}.npy"), *tolerances(case))
        if wrong is not None:
            return f"{port.name}: {wrong}"
    return None
