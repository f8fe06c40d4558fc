"""Which instruction set a library takes: by what the processor has, and by AITC_ISA. Never one that ends in SIGILL."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import product
import pytest
from hand_plans import scale_then_shift

from aitc.build.cmake import BuildOptions, build
from aitc.build.toolchain import find_toolchain
from aitc.emit.project import emit
from aitc.targets.isa import ISAS, X86, needs
from aitc.targets.machine import cpu_isa

INCLUDE = Path(__file__).resolve().parents[3] / "codegen_templates" / "include"
REQUIREMENTS = INCLUDE / "aitc" / "cpu" / "requirements.h"
X86_64 = os.uname().machine == "x86_64"

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

CHOOSE = """
#include <stdio.h>
#include "aitc/host/isa.h"
using namespace aitc::host;
int main(int count, char** words) {  // NAME=NEEDS,... for each set that the library holds
  std::vector<std::vector<const char*>> needs;
  std::vector<Built<const char*>> built;
  std::vector<const char*> names;
  for (int i = 1; i < count; ++i) {
    char* at = strchr(words[i], '=');
    *at = 0;
    needs.emplace_back();
    for (char* word = strtok(at + 1, ","); word; word = strtok(nullptr, ",")) needs.back().push_back(word);
    needs.back().push_back(nullptr);
    names.push_back(words[i]);
  }
  for (size_t i = 0; i < names.size(); ++i) built.push_back({names[i], &names[i], needs[i].data()});
  try {
    printf("%s\\n", choose_isa(built, getenv("AITC_ISA")));
  } catch (const Error& e) {
    printf("%d: %s\\n", int(e.status), e.what());
  }
}
"""
KNOWN = """
#include <stdio.h>
#include "aitc/host/isa.h"
int main() {
  for (const auto& f : aitc::host::features) printf("%s=%d ", f.word, int(aitc::host::processor_has(f)));
}
"""


def program(tmp_path: Path, text: str) -> Path:
    (tmp_path / "main.cpp").write_text(text)
    command = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}", str(tmp_path / "main.cpp"), "-o", str(tmp_path / "main")]
    subprocess.run(command, check=True)
    return tmp_path / "main"


def test_a_set_is_chosen_or_refused_with_its_reason(tmp_path: Path) -> None:
    main = program(tmp_path, CHOOSE)

    def chosen(wanted: str | None, *built: str) -> str:
        environment = {"AITC_ISA": wanted} if wanted is not None else {}
        return subprocess.run([main, *built], env=environment, capture_output=True, text=True, check=True).stdout.strip()

    three = ("avx512=", "avx2=", "native=")
    for isa in ISAS:
        assert chosen(isa, *three) == isa
    assert chosen(None, *three) == chosen("", *three) == "avx512"
    assert chosen("native,avx2", *three) == "avx2", "the widest of those that are named"
    assert chosen(None, "avx512=avx512f,magic", "avx2=") == "avx2", "what the processor lacks is passed over"
    assert chosen("avx512", "avx512=magic,spells", "avx2=") == (
        "3: this library holds code for avx512, avx2; this processor lacks magic, spells for avx512"
    )
    assert chosen(None, "avx512=magic", "avx2=spells") == (
        "3: this library holds code for avx512, avx2; this processor lacks magic for avx512; this processor lacks spells for avx2"
    )
    assert chosen("native", "avx512=", "avx2=") == "3: this library holds code for avx512, avx2, and AITC_ISA=native names none of them"
    assert chosen("avx2,AVX512", *three) == "1: AITC_ISA=avx2,AVX512: no instruction set is called 'AVX512', but avx2, avx512 and native"


@pytest.mark.skipif(not X86_64, reason="of x86-64")
def test_what_the_processor_says_is_what_the_kernel_reads(tmp_path: Path) -> None:
    said = dict(pair.split("=") for pair in subprocess.run([program(tmp_path, KNOWN)], capture_output=True, text=True, check=True).stdout.split())
    line = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    assert line is not None
    assert {word for word, has in said.items() if has == "1"} == said.keys() & set(line[1].split())
    assert set(re.findall(r'^    "(\w+)",$', REQUIREMENTS.read_text(), re.MULTILINE)) >= said.keys()


@pytest.mark.skipif(not X86_64, reason="of x86-64")
@pytest.mark.parametrize("isa", list(X86))
def test_code_needs_what_its_flags_allow(isa: str, tmp_path: Path) -> None:
    """By the compiler's own macros at least what ``cpu_isa`` asks of a processor; what else it is told, is implied by these."""
    (tmp_path / "main.cpp").write_text('#include <stdio.h>\n#include "aitc/cpu/requirements.h"\nint main() { for (auto n : needs) if (n) puts(n); }')
    flags = product.calls(isa).kernel
    done = subprocess.run(["g++", *flags, f"-I{INCLUDE}", "-E", "-P", str(tmp_path / "main.cpp")], capture_output=True, text=True, check=True)
    listed = set(re.findall(r'"(\w+)",', done.stdout))
    assert listed - needs(isa) == {"sse4_2", "popcnt", "avx"} | ({"avx2"} if isa == "avx512" else set())
    assert listed >= needs(isa)


@pytest.mark.slow
@pytest.mark.skipif(not X86_64 or cpu_isa() == "native", reason="needs x86-64 with AVX2")
def test_an_older_processor_is_refused_and_never_sigill(tmp_path: Path) -> None:
    emulator = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")
    if emulator is None:
        pytest.skip("needs qemu-x86_64 (Debian: qemu-user-static)")
    plan = scale_then_shift()
    build(plan, emit(plan), tmp_path, find_toolchain("cpu"), BuildOptions(isas=("avx2", "avx512", "native")))
    clean = {k: v for k, v in os.environ.items() if k not in ("AITC_ISA",)}

    def run(processor: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [emulator, "-cpu", processor, str(tmp_path / "hand"), "--json"]
        return subprocess.run(command, env={**clean, **more}, capture_output=True, text=True, check=False)

    assert json.loads(run("Haswell").stdout) and json.loads(run("Haswell", AITC_ISA="avx2").stdout)
    old = run("Nehalem")
    assert old.returncode == 8 and "this library holds code for avx512, avx2, native; this processor lacks avx, avx2" in old.stderr
    assert "avx2, fma, f16c, bmi1, bmi2 for avx2" in old.stderr and old.stderr.count("this processor lacks") == 3
    asked = run("Haswell", AITC_ISA="avx512")
    assert asked.returncode == 8 and "this processor lacks avx512f, avx512dq, avx512bw, avx512vl for avx512" in asked.stderr
