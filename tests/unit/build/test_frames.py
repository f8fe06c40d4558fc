"""What faults on the stack's alignment is found (tests/frames.py), and the product's flags leave nothing of it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import product
import pytest
from frames import Fault, faults

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++"),
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="of x86-64"),
]

COMPILERS = [c for c in ("g++", *(f"g++-{n}" for n in range(9, 17)), *(f"clang++-{n}" for n in range(13, 22))) if shutil.which(c)]

# Each begins 8 below a multiple of 16, as the ABI says. -> how many of its instructions certainly fault, and may fault.
FUNCTIONS = {
    # As gcc 12 made it: the pointer is derived before the frame is found to need no alignment.
    "gcc_12": ("push %rbp; mov %rsp,%rbp; push %rbx; lea -0x40(%rsp),%rcx; vmovdqa %xmm0,(%rcx); vmovdqa %xmm0,0x10(%rcx); leave; ret", 2, 0),
    "unaligned_moves": ("push %rbp; mov %rsp,%rbp; push %rbx; lea -0x40(%rsp),%rcx; vmovdqu %xmm0,(%rcx); leave; ret", 0, 0),
    "sixteen_is_right": ("push %rbp; lea -0x40(%rsp),%rcx; vmovdqa %xmm0,(%rcx); pop %rbp; ret", 0, 0),
    "thirty_two_may_be_wrong": ("push %rbp; lea -0x40(%rsp),%rcx; vmovdqa %ymm0,(%rcx); pop %rbp; ret", 0, 1),
    "realigned": ("push %rbp; mov %rsp,%rbp; and $-32,%rsp; sub $0x60,%rsp; vmovaps %ymm0,0x20(%rsp); leave; ret", 0, 0),
    "realigned_then_missed": ("push %rbp; mov %rsp,%rbp; and $-32,%rsp; sub $0x60,%rsp; vmovaps %ymm0,0x10(%rsp); leave; ret", 1, 0),
    "realigned_to_less": ("push %rbp; mov %rsp,%rbp; and $-32,%rsp; vmovdqa64 %zmm0,-0x40(%rsp); leave; ret", 0, 1),
    "realigned_to_64": ("push %rbp; mov %rsp,%rbp; and $-64,%rsp; vmovdqa64 %zmm0,-0x40(%rsp); leave; ret", 0, 0),
    "through_a_loop": ("sub $0x48,%rsp; lea (%rsp),%rax; 1: vmovdqa %xmm0,(%rax); add $0x10,%rax; cmp %rdx,%rax; jne 1b; add $0x48,%rsp; ret", 0, 0),
    "by_eights": ("sub $0x48,%rsp; mov %rsp,%rax; 1: vmovdqa %xmm0,(%rax); add $8,%rax; cmp %rdx,%rax; jne 1b; add $0x48,%rsp; ret", 0, 1),
    "an_index": ("sub $0x40,%rsp; vmovaps %xmm0,(%rsp,%rax,8); add $0x40,%rsp; ret", 0, 0),
    "an_index_of_a_wrong_base": ("sub $0x44,%rsp; vmovaps %xmm0,(%rsp,%rax,8); add $0x44,%rsp; ret", 1, 0),
    "an_operand": ("push %rbp; push %rbx; paddd -0x20(%rsp),%xmm0; vpaddd -0x20(%rsp),%xmm0,%xmm0; pop %rbx; pop %rbp; ret", 1, 0),
    "another_pointer": ("push %rbx; push %rbp; mov (%rdi),%rcx; vmovdqa %xmm0,(%rcx); pop %rbp; pop %rbx; ret", 0, 0),
    "behind_a_call": ("sub $0x18,%rsp; mov %rsp,%rdi; call 1f; vmovdqa %xmm0,(%rdi); vmovdqa %xmm0,8(%rsp); 1: add $0x18,%rsp; ret", 1, 0),
}  # fmt: skip

# gcc 12 for AVX2 zeroes `both` 16 bytes at a time through a pointer that the first loop left behind.
PLANTED = """
#include "aitc/generic/map.h"
using namespace aitc;
namespace {
struct Body {
  const float *a, *b;
  float* y;
  template <int V> AITC_FN void operator()(int i) const {
    float both[V];
    AITC_UNROLL for (int j = 0; j < V; ++j) both[j] = 0.0f;
    if (i / 128 < 1) {
      const auto v = load<V>(a + i);
      AITC_UNROLL for (int j = 0; j < V; ++j) both[j] = v[j];
    }
    if (i / 128 >= 1) {
      const auto v = load<V>(b + i - 128);
      AITC_UNROLL for (int j = 0; j < V; ++j) both[j] = v[j];
    }
    Vec<float, V> r;
    AITC_UNROLL for (int j = 0; j < V; ++j) r[j] = both[j];
    store<V>(y + i, r);
  }
};
}
AITC_KERNEL(256) void AITC_ENTRY(concat)(const float* a, const float* b, float* y) { for_each<16>(256, Body{a, b, y}); }
"""


def test_each_way_to_fault(tmp_path: Path) -> None:
    text = [".text"]
    for name, (lines, _, _) in FUNCTIONS.items():
        text += [f".globl {name}", f".type {name}, @function", f"{name}:", *lines.split("; "), f".size {name}, .-{name}"]
    (tmp_path / "all.s").write_text("\n".join(text) + "\n")
    subprocess.run(["g++", "-c", str(tmp_path / "all.s"), "-o", str(tmp_path / "all.o")], check=True)
    found: dict[str, list[Fault]] = {name: [] for name in FUNCTIONS}
    for fault in faults(tmp_path / "all.o"):
        found[fault.function].append(fault)
    counted = {name: (sum(f.sure for f in all_), sum(not f.sure for f in all_)) for name, all_ in found.items()}
    assert counted == {name: (sure, unsure) for name, (_, sure, unsure) in FUNCTIONS.items()}


def compiled(compiler: str, flags: tuple[str, ...], tmp_path: Path) -> Path:
    (tmp_path / "concat.cpp").write_text(PLANTED)
    made = tmp_path / "concat.so"
    command = [compiler, *flags, f"-I{product.INCLUDE}", str(tmp_path / "concat.cpp"), "-shared", "-Wl,-s", "-o", str(made)]
    subprocess.run(command, check=True)
    return made


@pytest.mark.parametrize("isa", ["avx2", "avx512"])
@pytest.mark.parametrize("compiler", COMPILERS)
def test_no_compiler_is_led_to_it_by_the_products_flags(compiler: str, isa: str, tmp_path: Path) -> None:
    assert faults(compiled(compiler, product.calls(isa, compiler).kernel, tmp_path)) == []


def test_the_fault_that_ended_a_concat_is_found(tmp_path: Path) -> None:
    twelve = next((c for c in ("g++-12", "g++") if shutil.which(c) and b"12." in version(c)), None)
    if twelve is None:
        pytest.skip("needs g++ 12, which makes it of this source")
    flags = tuple(f for f in product.calls("avx2", twelve).kernel if not f.startswith("-Wa,"))
    found = faults(compiled(twelve, flags, tmp_path))
    assert len(found) == 4 and all(f.sure and "vmovdqa %xmm" in f.instruction for f in found), found


def version(compiler: str) -> bytes:
    return subprocess.run([compiler, "-dumpfullversion"], capture_output=True, check=True).stdout
