"""docs/instructions.md: which instructions the emulator and a GPU computed alike, bit for bit, from the device's record.

    python tests/kernels/gpu/run_on_device.py --json run.json        on the device
    python tests/kernels/gpu/instructions.py --add run.json          into the record, and the page from it
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kernels.gpu import instruction_cases, rounding_cases

ROOT = Path(__file__).resolve().parents[3]
RECORD = ROOT / "bench" / "results" / "instructions_h200.json"
PAGE = ROOT / "docs" / "instructions.md"
FAMILIES = {  # the beginning of a name: what its problems are about
    "instruction mma": "`mma.sync` m16n8k16 on f16 and bf16, m16n8k8 on TF32",
    "instruction ldmatrix": "`ldmatrix.x4`, `.trans`",
    "instruction cp.async": "`cp.async` of 4, 8 and 16 bytes, with zeros; its groups",
    "instruction lanes": "`shfl`, `vote.ballot`, atomics in shared memory",
    "instruction float to": "`cvt.rn` to f16 and bf16, single and in pairs; float8 by integer arithmetic",
    "instruction tma 2-D": "`cp.async.bulk.tensor.2d`, each swizzle, over the edges",
    "instruction tma 3-D": "`cp.async.bulk.tensor.3d`",
    "instruction tma 4-D": "`cp.async.bulk.tensor.4d`, with steps",
    "instruction tma im2col": "`cp.async.bulk.tensor.4d.im2col`: strides, dilation, padding, pixels that begin anywhere; `.multicast`",
    "instruction bulk copy": "`cp.async.bulk`",
    "instruction wgmma f16": "`wgmma` f16, operands behind descriptors: K-major, M- or N-major, other swizzles",
    "instruction wgmma bf16": "`wgmma` bf16, likewise",
    "instruction wgmma f32": "`wgmma` TF32",
    "instruction wgmma e4m3": "`wgmma` e4m3",
    "instruction wgmma e5m2": "`wgmma` e5m2",
    "instruction wgmma registers": "`wgmma` with A from registers, B N-major",
    "instruction stmatrix": "`stmatrix.x4`, then `cp.async.bulk.tensor` to memory, clipped at edges",
    "instruction cluster": "clusters: `.multicast`, `mapa`, `st.shared::cluster`, `mbarrier` of another block, `barrier.cluster`",
    "instruction mbarrier": "`mbarrier` with parities, a ring of stages; `bar.sync`, `bar.arrive`",
    "rounding tf32": "a tensor map of TFLOAT32: what it rounds",
    "rounding wgmma": "`wgmma` on float8: what its sums lose",
}
HEAD = """# Instructions: the emulator beside an H200

Made by `tests/kernels/gpu/instructions.py` from [instructions_h200.json](../bench/results/instructions_h200.json).

Each line is a set of small kernels around one instruction, with the register and descriptor layouts of the PTX manual and data whose results are exact. The
expected bits are computed by numpy. `tests/kernels/gpu/test_emulated.py` asks them of the emulator in each run of the tests; the device computed
them at the commit that is named. So where a line says "all", both agree in every bit.
"""
TAIL = """
Without results of their own, so not in the table: `griddepcontrol` and `setmaxnreg` (all Hopper products, and each model on the H200, run through them),
`prefetch`, fences.

AMD's matrix instructions, DPP and exchange between lanes are held against the layouts that AMD publishes, by `tests/emulator/test_cdna.py`. No AMD
device has been asked.
"""


def family(name: str) -> str:
    """The longest beginning in FAMILIES of a problem's name; KeyError if it has none."""
    found = [f for f in FAMILIES if name.startswith(f)]
    if not found:
        raise KeyError(f"{name!r} is of no family in FAMILIES")
    return max(found, key=len)


def names() -> list[str]:
    """Of all problems that the emulator runs today."""
    return [p.name for cases in (instruction_cases.cases, rounding_cases.cases) for p in cases()]


def page(record: Mapping[str, Any], today: Iterable[str]) -> str:
    """The page as Markdown; ``record``: what run_on_device.py wrote; ``today``: the problems' names."""
    about, verdicts = record["about"], {p["name"]: bool(p["good"]) for p in record["problems"]}
    problems: dict[str, list[str]] = {f: [] for f in FAMILIES}
    for name in today:
        problems[family(name)].append(name)
    lines = [HEAD, f"{about['device']}, commit {about['commit']}, {about['date'][:10]}.", ""]
    lines += ["| instruction | kernels | the device agrees | forms |", "| --- | --- | --- | --- |"]
    for prefix, own in problems.items():
        asked = [n for n in own if n in verdicts]
        wrong = [n for n in asked if not verdicts[n]]
        says = "all" if asked == own else f"all {len(asked)} that it was asked" if asked else "not asked yet"
        if wrong:
            says = f"**not** in {', '.join(wrong)}"
        forms = ", ".join(n.removeprefix(prefix).strip() for n in own).strip(", ")
        lines.append(f"| {FAMILIES[prefix]} | {len(own)} | {says} | {forms} |")
    return "\n".join(lines) + "\n" + TAIL


def extract(run: Mapping[str, Any]) -> dict[str, Any]:
    """What a run of run_on_device.py says of instructions."""
    return {"about": run["about"], "problems": [p for p in run["problems"] if p["name"].startswith(tuple(FAMILIES))]}


def main() -> None:
    """Write the page, and the record if a run is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--add", type=Path, help="what run_on_device.py wrote on a device")
    options = parser.parse_args()
    if options.add is not None:
        record = extract(json.loads(options.add.read_text()))
        problems = ",\n".join(json.dumps(p) for p in record["problems"])
        RECORD.write_text(f'{{\n"about": {json.dumps(record["about"], indent=1)},\n"problems": [\n{problems}\n]\n}}\n', encoding="utf-8")
    PAGE.write_text(page(json.loads(RECORD.read_text()), names()), encoding="utf-8")


if __name__ == "__main__":
    main()
