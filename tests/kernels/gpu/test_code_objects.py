"""Every kernel in every configuration through the real AMD compilers, for gfx90a, and a selection for gfx942: the matrix instructions that are meant,
16-byte loads from memory and shared memory, no spills, and as many blocks at once as the configuration claims. Nothing is run.

``make test`` compiles one part, for gfx942; tests/models/test_cross_compile.py a model for gfx90a.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from aitc.build.cmake import BuildOptions, build
from aitc.build.resources import usage
from aitc.build.toolchain import find_toolchain
from aitc.emit.project import emit
from aitc.errors import AitcError
from aitc.schedule.plan.plan import KernelSource, Plan
from aitc.targets.target import find_target

from .every_kernel import EVERYWHERE, plan_of

pytestmark = pytest.mark.hip
OPERANDS = {"half_t": "f16", "bfloat16_t": "bf16_1k", "float": "f32", "float8_e4m3fnuz_t": "fp8_fp8", "float8_e5m2fnuz_t": "bf8_bf8"}
HALF, EIGHT = {32: "32x32x8", 16: "16x16x16"}, {32: "32x32x16", 16: "16x16x32"}
FORMS = {"f16": HALF, "bf16_1k": HALF, "f32": {32: "32x32x2", 16: "16x16x4"}, "fp8_fp8": EIGHT, "bf8_bf8": EIGHT}


def meant(kernel: KernelSource) -> set[str]:
    """The matrix instructions that the kernel's configuration is about, as MxNxK and type of the operands."""
    if not kernel.kernel.endswith("_cdna"):
        return set()
    text = " ".join(kernel.context.call)
    tile = re.search(r"CdnaTile<([\d, ]+)>", text)
    assert tile, text
    numbers = [int(n) for n in tile[1].split(",")]
    if kernel.kernel == "attention_cdna":
        size = numbers[2]
    else:
        size = numbers[5] if len(numbers) > 5 else 32
    operand = next(OPERANDS[word] for word in re.findall(r"\w+", " ".join(kernel.parameters)) if word in OPERANDS)
    return {f"{FORMS[operand][size]} {operand}"}


def matrix_instructions(assembly: str) -> set[str]:
    """Those in a kernel's code, spelled as ``meant`` does: compilers since LLVM 16 write v_mfma_f32_32x32x8_f16 for v_mfma_f32_32x32x8f16."""
    found = re.findall(r"v_mfma_f32_(\d+x\d+x\d+)_?(\w+)", assembly)
    return {f"{shape} {'bf16_1k' if kind == 'bf16' else kind}" for shape, kind in found}


def check(plan: Plan, folder: Path, target: str) -> None:
    try:
        chain = find_toolchain("hip", [find_target(target).arch])
    except AitcError as error:
        pytest.skip(f"no compiler for {target}: {error.diagnostics[0].message}")
    (folder / "out").mkdir()
    options = BuildOptions(keep_build=folder / "tree", use_cache=False, jobs=1, device_flags=("-save-temps=obj",))
    built = build(plan, emit(plan), folder / "out", chain, options)
    wrong = []
    for u in usage(plan, built.resources):
        (assembly,) = (folder / "tree" / "images").glob(f"{u.kernel.entry}-*gfx*.s")
        code = assembly.read_text(errors="replace")
        found, private = matrix_instructions(code), re.findall(r"^\s+((?:scratch|buffer)_(?:load|store)\w*.*)$", code, re.MULTILINE)
        name = f"{u.kernel.entry} [{u.kernel.config}]"
        if found != meant(u.kernel):
            wrong.append(f"{name}: uses {sorted(found)}, meant are {sorted(meant(u.kernel))}")
        if found and plan.name != "convolutions":  # whose channels and edges may be odd
            wrong += [f"{name}: no {load}" for load in ("global_load_dwordx4", "ds_read_b128") if load not in code]
        if u.resources.spills or u.resources.scalar_spills or private:  # a stack that nothing touches costs nothing
            wrong.append(f"{name}: spills: {u.resources}, {private[:4]}")
        if u.blocks < max(1, u.claimed):
            wrong.append(f"{name}: {u.blocks} blocks of a unit fit, {u.claimed} are claimed: {u.resources}, {u.smem_bytes} bytes of LDS")
        if u.kernel.kernel.endswith("_cdna") and not u.claimed:
            wrong.append(f"{name}: claims nothing")
    assert not wrong, "\n".join(wrong)
    assert len(built.resources) == len(plan.kernels)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["float8", *(pytest.param(p, marks=pytest.mark.full) for p in ("products", "attention"))])
def test_gfx942(part: str, tmp_path: Path) -> None:
    """One configuration for each kernel and matrix instruction."""
    plan = plan_of(part, "mi300x")
    first: dict[tuple[str, frozenset[str]], str] = {}
    for kernel in plan.kernels:
        first.setdefault((kernel.kernel, frozenset(meant(kernel))), kernel.entry)
    chosen = set(first.values())
    kernels = tuple(k for k in plan.kernels if k.entry in chosen)
    check(replace(plan, kernels=kernels, launches=tuple(n for n in plan.launches if n.entry in chosen)), tmp_path, "mi300x")


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize("part", EVERYWHERE)
def test_gfx90a(part: str, tmp_path: Path) -> None:
    check(plan_of(part, "mi250"), tmp_path, "mi250")
