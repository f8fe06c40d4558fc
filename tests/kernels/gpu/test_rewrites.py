"""What the schedule takes apart or puts together only where it is large, on small tensors: the generated texts, emulated, against the numpy reference."""

from __future__ import annotations

import numpy as np
import pytest

from aitc import pipeline
from aitc.ir.interpret import interpret
from aitc.kernels.hopper.conv_patch_sm90 import ConvPatchSm90
from aitc.kernels.hopper.product_sm90 import ProductSm90
from aitc.schedule.choose.select import choosing
from aitc.schedule.plan.check import check_plan
from aitc.schedule.plan.plan import Port
from aitc.schedule.rewrite import split_norms, sum_convs, upsample
from aitc.schedule.schedule import schedule_with
from aitc.verify.inputs import random_inputs

from .every_kernel import F16, Model
from .plan_run import Run
from .test_every_configuration import difference


def _norms(m: Model) -> None:
    """Groups narrower than a vector, across vectors, and wider; one image and two; with and without what follows."""
    for images, channels, groups in ((1, 32, 8), (2, 80, 8), (1, 64, 2)):
        x = m.op("Relu", m.input(F16, images, channels, 9, 7), keep=False)
        x = m.op("Conv", x, m.weight(F16, channels, channels, 1, 1), keep=False)
        y = m.op("GroupNormalization", x, m.weight(F16, channels), m.weight(F16, channels), num_groups=groups, keep=False)
        m.op("Mul", y, m.op("Sigmoid", y, keep=False))
    x = m.op("Conv", m.input(F16, 2, 16, 8, 8), m.weight(F16, 24, 16, 1, 1), keep=False)
    m.op("InstanceNormalization", x, m.weight(F16, 24), m.weight(F16, 24))


def _sums(m: Model) -> None:
    """A 3x3 and a strided convolution of one tap; two of one tap; of different depths, with a bias on one side or both."""
    x, z = m.input(F16, 2, 72, 10, 10), m.input(F16, 2, 40, 20, 20)
    one = m.op("Conv", x, m.weight(F16, 64, 72, 3, 3), m.weight(F16, 64), pads=[1, 1, 1, 1], keep=False)
    two = m.op("Conv", z, m.weight(F16, 64, 40, 1, 1), m.weight(F16, 64), strides=[2, 2], keep=False)
    m.op("Relu", m.op("Add", one, two, keep=False))
    one = m.op("Conv", x, m.weight(F16, 136, 72, 1, 1), keep=False)
    two = m.op("Conv", m.input(F16, 2, 200, 10, 10), m.weight(F16, 136, 200, 1, 1), m.weight(F16, 136), keep=False)
    m.op("Add", one, two)


def _patches(m: Model) -> None:
    """Of 64 channels with few filters: 3x3, wide and narrow."""
    x = m.input(F16, 2, 64, 11, 18)
    y = m.op("Relu", m.op("Conv", x, m.weight(F16, 64, 64, 3, 3), m.weight(F16, 64), pads=[1, 1, 1, 1], keep=False), keep=False)
    m.op("MaxPool", y, kernel_shape=[2, 2])  # behind which they may be stored channels-last
    m.op("MaxPool", m.op("Conv", x, m.weight(F16, 24, 64, 1, 5), m.weight(F16, 24), pads=[0, 2, 0, 2], keep=False), kernel_shape=[2, 2])


def _enlarged(m: Model) -> None:
    """Results that interleave with others': in whole lines by the copy engine, and lines that it cannot cut into boxes."""
    for width in (16, 10):
        x = m.op("Relu", m.input(F16, 2, 64, 6, width), keep=False)
        x = m.op("Resize", x, "", m.constant(np.array([1, 1, 2, 2], np.float32)), mode="nearest", coordinate_transformation_mode="asymmetric",
                 nearest_mode="floor", keep=False)  # fmt: skip
        m.op("MaxPool", m.op("Conv", x, m.weight(F16, 72, 64, 3, 3), m.weight(F16, 72), pads=[1, 1, 1, 1], keep=False), kernel_shape=[3, 3])


@pytest.mark.parametrize(("make", "target", "kernel", "count"), [
    (_norms, "h200", "statistics", 4), (_norms, "mi250", "statistics", 4), (_sums, "h200", "conv_sm90", 2),
    (_patches, "h200", "conv_patch_sm90", 2), (_enlarged, "h200", "conv_sm90", 8),
])  # fmt: skip
def test_computes_what_the_model_says(monkeypatch: pytest.MonkeyPatch, make: object, target: str, kernel: str, count: int) -> None:
    for module in (split_norms, sum_convs, upsample):
        monkeypatch.setattr(module, "_gain_us", lambda *_: 1.0)
    monkeypatch.setattr(ConvPatchSm90, "score_us", lambda *_: 0.0)
    monkeypatch.setattr(ProductSm90, "together", lambda *_: None)  # each has its launch
    model = Model()
    make(model)  # type: ignore[operator]
    result = pipeline.compile(model.proto(), pipeline.Options(targets=(target,), name="rewritten", stop_after="layout"))
    assert result.graph is not None and result.facts is not None
    inputs = random_inputs([Port(v.name, v.type.dtype, v.shape, "") for v in result.graph.inputs], {})
    want = interpret(result.graph, inputs)
    plan = check_plan(schedule_with(result.graph, result.targets[0], result.facts, choosing(None))[0])
    assert sum(n.entry.startswith(kernel) for n in plan.launches) == count
    run = Run(plan, [n.entry for n in plan.launches], inputs)
    for launch in plan.launches:
        run.launch(launch)
    for port in plan.outputs:
        got = run.memory[port.buffer].view(port.dtype.numpy)
        expected = want[port.name]
        assert not difference(got[: expected.size].reshape(expected.shape), np.asarray(expected), port.dtype.name)
