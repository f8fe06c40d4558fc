"""Every architecture compiles for GPUs that are not here, in half precision: the compilers accept what is generated, and nothing is said to be verified.

``make test`` compiles one architecture for NVIDIA and one for AMD.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from aitc import pipeline
from aitc.build.toolchain import find_toolchain
from aitc.errors import AitcError
from aitc.targets.machine import devices
from aitc.targets.target import find_target
from models.tiny import one_of_each

pytestmark = pytest.mark.slow
HERE = (("vit_b16", "h100"), ("efficientnet_b0", "mi250"))
CASES = [
    pytest.param(path, target, id=f"{path.stem}-{target}", marks=() if (path.stem.partition("-")[0], target) in HERE else pytest.mark.full)
    for path in one_of_each()
    for target in ("a100", "h100", "mi250")
]


def needs_compiler(*targets: str) -> None:
    try:
        find_toolchain(find_target(targets[0]).api, [find_target(t).arch for t in targets])
    except AitcError as error:
        pytest.skip(f"no compiler for {', '.join(targets)}: {error.diagnostics[0].message}")


# Bytes that a thread may keep in memory: the 128 x 128 tile of mma.sync with four warps holds 128 sums a thread, and ptxas 13.0
# puts 36 bytes beside them aside where dims are symbolic.
SPILLS = {"_cdna": 0, "_sm90": 0, "_sm80": 40}


def assert_resources(result: pipeline.Result) -> None:
    """Each kernel's figures stand in the report, once for each architecture: it runs as often at once as it claims, and matrix kernels hardly spill."""
    assert result.plan is not None
    found = result.report["resources"]
    arches = {find_target(t).arch for t in result.plan.targets}
    assert sorted((r["entry"], r["arch"].removeprefix("sm_")) for r in found) == sorted((k.entry, a) for k in result.plan.kernels for a in arches)
    for r in found:
        assert all(r["spills"] <= most for family, most in SPILLS.items() if r["kernel"].endswith(family)), r
        assert r["registers"] > 0 and max(1, r.get("claimed_blocks", 0)) <= r["blocks"], r


@pytest.mark.parametrize(("path", "target"), CASES)
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
    assert_resources(result)
    matrix = {"a100": "_sm80", "h100": "_sm90", "mi250": "_cdna"}[target]
    assert any(k.endswith(matrix) for k in kernels) or "gemm_sm80" in kernels


@pytest.mark.full
@pytest.mark.parametrize("targets", [("mi300x",), ("mi250", "mi300a")], ids=" ".join)
def test_amd_names_make_one_binary(targets: tuple[str, ...], tmp_path: Path) -> None:
    """gfx942 needs a newer clang than Debian's hipcc; several architectures are one file; by hand it is the same file."""
    needs_compiler(*targets)
    (path,) = [p for p in one_of_each() if p.stem.startswith("vit_b16")]
    result = pipeline.compile(path, pipeline.Options(targets=targets, output=tmp_path / "out", precision="fp16", weights="file"))
    assert result.plan is not None
    name = f"lib{result.plan.name}.so"
    library = (tmp_path / "out" / name).read_bytes()
    arches = {find_target(t).arch for t in targets}
    for arch in ("gfx90a", "gfx942"):
        assert library.count(f"hipv4-amdgcn-amd-amdhsa--{arch}".encode()) == (len(result.plan.kernels) if arch in arches else 0)
    assert_resources(result)
    if len(targets) > 1:
        return
    chain, tree = find_toolchain("hip", sorted(arches)), tmp_path / "by hand"
    assert chain.device is not None
    configure = ["-S", tmp_path / "out" / "src", "-B", tree, "-G", "Ninja", f"-DAITC_HIPCC={chain.device.path}"]
    for command in ([*configure], ["--build", tree, "-j", "2"]):
        done = subprocess.run([chain.cmake.path, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert (tree / name).read_bytes() == library
