"""Every GPU kernel in every configuration that aitc may choose, with the text that the emitter generates, on the emulator: what each computes is held
against the numpy reference of the model, and nothing beside it may be touched.

``make test`` runs what test_emulated.py has no problems for.
"""

from __future__ import annotations

import time

import numpy as np
import pytest
from emulator import EmulatorError

from aitc.ir.interpret import interpret
from aitc.kernels.core.kernel import KERNELS
from aitc.schedule.plan.plan import Launch, Space
from aitc.verify.inputs import random_inputs

from .every_kernel import ALONE, EVERYWHERE, F16, PARTS, Model, candidates, candidates_of, plan_of
from .plan_run import Run

TOLERANCE = {"f16": 4e-3, "bf16": 3e-2, "f32": 2e-4, "f64": 1e-9}
"""Of the largest magnitude, by the type of the result; others have to be equal."""


def difference(got: np.ndarray, want: np.ndarray, dtype: str) -> str:
    """What is wrong with a result; "" if it is right."""
    if dtype not in TOLERANCE:
        wrong = int((got != want).sum())
        return f"{wrong} of {got.size} differ" if wrong else ""
    a, b = got.astype(np.float64), want.astype(np.float64)
    worst = float(np.abs(a - b).max(initial=0) / max(float(np.abs(b).max(initial=0)), 1e-6))
    return "" if worst <= TOLERANCE[dtype] else f"off by {worst:.1e} of the largest"


# What only some targets have: the others' kernels are those of h200 (32 lanes) or of mi250 (64).
OWN = {"h200": "", "mi250": "", "a100": "_sm80", "mi300x": "_cdna"}
PARTS_OF = {"a100": ("products", "convolutions", "attention"), "mi300x": ("float8",), "mi250": EVERYWHERE}
HERE = (("others", "h200"),)
CASES = [
    pytest.param(part, target, id=f"{part}-{target}", marks=() if (part, target) in HERE else pytest.mark.full)
    for target in OWN
    for part in PARTS_OF.get(target, tuple(PARTS))
]


@pytest.mark.slow
@pytest.mark.parametrize(("part", "target"), CASES)
def test_computes_what_the_model_says(part: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AITC_EMULATOR_ORDER", "5")  # lanes, warps, blocks and copies in an order of its own
    graph, plan, first = candidates_of(part, target)
    inputs = random_inputs(plan.inputs, {})
    want = interpret(graph, inputs)
    ports = {p.buffer: p for p in plan.outputs}
    kernels = {k.entry: k for k in plan.kernels}
    buffers = {b.name: b for b in plan.buffers}
    asked = {e for e in first if kernels[e].kernel.endswith(OWN[target])}

    def needed(launch: Launch) -> bool:
        """Whether it is to be tried, or others read what it writes, or it shows whether what was tried is right."""
        between = part in ALONE or any(b not in ports for b in Run.written(launch))
        return launch.entry in asked or (launch.chosen != "candidate" and between)

    launches = [n for n in plan.launches if needed(n)]
    run = Run(plan, [n.entry for n in launches], inputs)
    between: dict[str, np.ndarray] = {}
    faults: list[str] = []
    for launch in launches:
        what = f"{kernels[launch.entry].kernel} [{kernels[launch.entry].config}]"
        written = [buffers[b] for b in run.written(launch)]
        for b in written:
            if b.space is not Space.STATE and b.name not in run.read(launch):
                run.memory[b.name][:] = 0xFF
        try:
            run.launch(launch)
        except EmulatorError as error:
            faults.append(f"{what}: {error}")
            continue
        for b in written:
            got = run.memory[b.name].view(b.dtype.numpy)
            if b.space is Space.STATE:
                wrong = "is not 0 again" if got.any() else ""
            elif b.name in ports:
                expected = want[ports[b.name].name]
                wrong = difference(got.reshape(expected.shape), expected, b.dtype.name)
            elif launch.chosen != "candidate":
                between[b.name], wrong = got.copy(), ""  # right if the outputs are that are made of it
            else:  # memory that holds no value is scratch
                wrong = difference(got, between[b.name], b.dtype.name) if b.holds else ""
            if wrong:
                faults.append(f"{what}: {b.name} {wrong}")
    assert not faults, "\n".join(faults)
    assert asked and asked <= {n.entry for n in launches}


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize(("target", "kernel"), [("h200", "gemm_sm90"), ("a100", "gemm_sm80"), ("mi250", "gemm_cdna")])
def test_a_product_takes_no_longer_than_a_fifth_of_a_second(target: str, kernel: str) -> None:
    """256^3 in fp16 in each configuration, in 0.2 s of one processor (the best of fifteen: the machine may be busy)."""
    model = Model()
    model.op("MatMul", model.input(F16, 256, 256), model.weight(F16, 256, 256))
    _, plan, _ = candidates(model, "product", target)
    launches = [n for n in plan.launches if n.entry.startswith(kernel)]
    run = Run(plan, [n.entry for n in launches], random_inputs(plan.inputs, {}))
    slow = {}
    for launch in launches:
        run.kernels_of(launch.entry)
        best = 1e9
        for _ in range(15):
            if best >= 0.2:
                begin = time.process_time()
                run.launch(launch)
                best = min(best, time.process_time() - begin)
        if best >= 0.2:
            slow[launch.entry] = best
    assert len(launches) >= 9 and not slow


@pytest.mark.slow
def test_no_kernel_is_left_out() -> None:
    found = {k.kernel for target in ("h200", "a100", "mi250") for part in PARTS_OF.get(target, tuple(PARTS)) for k in plan_of(part, target).kernels}
    assert found == {k.name for k in KERNELS if "cpu" not in k.requires} - {"host"}  # which is no launch


def test_a_difference_shows() -> None:
    x = np.array([1.0, -4.0], np.float32)
    assert difference(x, x, "f32") == ""
    assert difference(x + np.array([0, 0.01], np.float32), x, "f32") == "off by 2.5e-03 of the largest"
    assert difference(np.array([np.nan, -4.0]), x, "f16").startswith("off by")
    assert difference(np.array([1, 2]), np.array([1, 3]), "i64") == "1 of 2 differ"
