"""The sizes of made-up inputs, as the executable reads them from the C interface's text."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from aitc.build.toolchain import find_toolchain
from aitc.ir import dim as dm
from aitc.ir.parse import parse_dim

ROOT = Path(__file__).resolve().parents[3]
VALUES = {"n": 7, "past": 3, "größe": 4, "max_len": 12, "min": 2}
PROGRAM = """
#include <cstdio>
#include "aitc/host/axis.h"
int main(int argc, char** argv) {
  const aitc_symbol symbols[] = {%s};
  const int64_t sizes[] = {%s};
  aitc_model model{};
  model.symbols = symbols;
  model.symbol_count = %d;
  for (int i = 1; i < argc; ++i) try {
      printf("%%lld\\n", (long long)aitc::host::AxisExpression::evaluate(argv[i], model, sizes));
    } catch (const aitc::host::Error& e) {
      printf("%%s\\n", e.text.c_str());
    }
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("axis")
    symbols = ", ".join(f'{{"{name}", 0, 99, 1, 1, 0, 0}}' for name in VALUES)
    text = PROGRAM % (symbols, ", ".join(map(str, VALUES.values())), len(VALUES))
    (folder / "axis.cpp").write_text(text, encoding="utf-8")
    command = [find_toolchain("cpu").cxx.path, "-std=c++17", "-I", str(ROOT / "codegen_templates" / "include"), "axis.cpp"]
    subprocess.run([*command, "-o", "axis"], cwd=folder, check=True)
    return folder / "axis"


def answers(program: Path, *texts: str) -> list[str]:
    return subprocess.run([program, *texts], capture_output=True, text=True, check=True).stdout.splitlines()


def test_what_dims_print_is_read(program: Path) -> None:
    n, past, g = (dm.symbol(s, 0) for s in ("n", "past", "größe"))
    shown = [
        n, past + n, 2 * n * past - g, dm.floordiv(n + 1, 2), dm.floordiv(3 - n, 2), dm.mod(n, 3), dm.mod(3 - n, 4),
        dm.max_(past, n - 1), dm.min_(n, past, g), dm.floordiv(n, past) * 4 + 1, dm.mod(n + past, g), 5 - dm.max_(n, g) * past,
        dm.floordiv(dm.floordiv(n * 64 - 3, 2) + dm.mod(past, 2), 5), dm.symbol("min", 0) + dm.symbol("max_len", 0),
    ]  # fmt: skip
    got = answers(program, *map(str, shown))
    assert got == [str(dm.evaluate(d, VALUES)) for d in shown]
    assert [int(a) for a in got] == [dm.evaluate(parse_dim(str(d)), VALUES) for d in shown]


def test_what_is_no_size(program: Path) -> None:
    bad = ["", "n +", "(n", "other", "n n", "n // (past - 3)"]
    got = answers(program, *bad)
    assert got[:5] == [f'an axis has the size "{text}", which cannot be read' for text in bad[:5]]
    assert "divides by zero" in got[5]
