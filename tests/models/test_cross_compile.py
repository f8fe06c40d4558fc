"""Every architecture compiles for GPUs that are not here, in half precision: the compilers accept what is generated, and nothing is said to be verified."""

from __future__ import annotations

from pathlib import Path

import pytest

from aitc import pipeline
from aitc.build.toolchain import find_toolchain
from aitc.errors import AitcError
from aitc.targets.machine import devices
from aitc.targets.target import find_target
from models.tiny import one_of_each

pytestmark = pytest.mark.slow


def needs_compiler(target: str) -> None:
    try:
        find_toolchain(find_target(target).api)
    except AitcError as error:
        pytest.skip(f"no compiler for {target}: {error.diagnostics[0].message}")


@pytest.mark.parametrize("target", ["a100", "h100", "mi250"])
@pytest.mark.parametrize("path", one_of_each(), ids=lambda p: p.stem)
def test_compiles_without_the_gpu(path: Path, target: str, tmp_path: Path) -> None:
    needs_compiler(target)
    options = pipeline.Options(targets=(target,), output=tmp_path / "out", precision="fp16")
    result = pipeline.compile(path, options)
    assert result.verification is not None and result.plan is not None
    here = any(d.target == find_target(target).name for d in devices())
    assert result.verification.status == ("passed" if here else "not run")
    library = tmp_path / "out" / f"lib{result.plan.name}.so"
    assert library.stat().st_size > 10_000
    kernels = {k.kernel for k in result.plan.kernels}
    if target == "mi250":
        assert not any(k.endswith(("_sm80", "_sm90")) for k in kernels)
    matrix = {"a100": "_sm80", "h100": "_sm90", "mi250": "_cdna"}[target]
    assert any(k.endswith(matrix) for k in kernels) or "gemm_sm80" in kernels
