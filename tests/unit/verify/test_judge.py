"""Right answers that onnxruntime does not give, and whose fault the difference is."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

from aitc.ir import dtype as dt
from aitc.verify.compare import OutputReport, tolerance
from aitc.verify.exact import exact_outputs
from aitc.verify.judge import Evidence, judge
from aitc.verify.reference import NoReference, Reference, TooLarge

RNG = np.random.default_rng(0)
U32 = 2.0**-24


def parsed(text: str, opset: int = 18, domains: str = "") -> bytes:
    head = f'<ir_version: 10, opset_import: ["" : {opset}{domains}]>'
    return onnx.parser.parse_model(f"{head} m {text}").SerializeToString()


def judged(model: bytes, feeds: dict[str, np.ndarray], got: np.ndarray, dtype: dt.DType = dt.F32, depth: int = 8) -> OutputReport:
    reference = Reference(model)
    evidence = Evidence(reference, feeds, reference.run(feeds), U32)
    return judge({"y": dtype}, evidence, {"y": got.astype(dtype.numpy)}, tolerance(U32, depth))[0]


CANCELLING = parsed(
    "(float[2,512,8] x) => (float[2,512,8] y) <int64[1] a={1}, float e={0.000001}, float c={20}> { x2=Add(x,c) "
    "m=ReduceMean<keepdims=1>(x2,a) q=Mul(x2,x2) mq=ReduceMean<keepdims=1>(q,a) mm=Mul(m,m) v=Sub(mq,mm) ve=Add(v,e) s=Sqrt(ve) "
    "d=Sub(x2,m) y=Div(d,s) }"
)


def sequential(x: np.ndarray) -> np.ndarray:
    """The same with one accumulator in float32, the worst order there is."""
    x2 = x + np.float32(20)
    total = squares = np.zeros_like(x2[:, 0])
    for i in range(x2.shape[1]):
        total, squares = total + x2[:, i], squares + x2[:, i] * x2[:, i]
    mean, square = total[:, None] / np.float32(512), squares[:, None] / np.float32(512)
    return np.asarray((x2 - mean) / np.sqrt(square - mean * mean + np.float32(1e-6)))


def test_a_variance_that_cancels() -> None:
    x = RNG.standard_normal((2, 512, 8)).astype(np.float32)
    right = sequential(x)
    report = judged(CANCELLING, {"x": x}, right)
    assert report.ok and report.fault == "model"
    wrong = judged(CANCELLING, {"x": x}, right * 1.003)
    assert not wrong.ok and wrong.fault == "binary" and "onnxruntime by" in wrong.note


def test_products_of_u8_and_s8_are_exact_whatever_onnxruntime_does() -> None:
    body = "{ q,s,z=DynamicQuantizeLinear(x) i=MatMulInteger(q,w,z) f=Cast<to=1>(i) y=Mul(f,s) }"
    values = ",".join(str(v) for v in RNG.integers(-127, 128, 256 * 8))
    model = parsed(f"(float[m,256] x) => (float[m,8] y) <int8[256,8] w={{{values}}}> {body}")
    feeds = {"x": RNG.standard_normal((16, 256)).astype(np.float32)}
    exact = exact_outputs(model, feeds)["y"]
    assert judged(model, feeds, exact).ok
    saturated = Reference(model).run(feeds)["y"]
    report = judged(model, feeds, exact)
    assert report.fault == ("" if np.allclose(saturated, exact, rtol=1e-5) else "onnxruntime")
    exact[3, 4] += np.abs(exact).max() / 100
    assert not judged(model, feeds, exact).ok


def test_a_sigmoid_near_zero_is_judged_against_float64() -> None:
    model = parsed("(float[64] x) => (float[64] y) { y=Sigmoid(x) }")
    x = np.linspace(-22, -15.5, 64).astype(np.float32)
    right = 1 / (1 + np.exp(-x.astype(np.float64)))
    assert judged(model, {"x": x}, right).ok
    assert judged(model, {"x": x}, right * (1 + 3e-7)).ok


def test_a_small_output_is_held_to_its_own_size() -> None:
    model = parsed("(float[64] x) => (float[64] y) <float c={0.000000001}> { y=Mul(x,c) }")
    x = RNG.standard_normal(64).astype(np.float32)
    assert judged(model, {"x": x}, x * 1e-9).ok
    for wrong in (x * 0, x * 2e-9, -x * 1e-9, np.roll(x, 1) * 1e-9):
        report = judged(model, {"x": x}, wrong)
        assert not report.ok and report.fault == "binary", report


QUANTISED = parsed("(float[n] x) => (uint8[n] y) <float s={0.1}, uint8 z={128}> { h=Mul(x,s) t=Mul(h,h) y=QuantizeLinear(t,s,z) }")


def near_a_boundary() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Inputs of which number 1 is a rounding boundary (131 or 130) in exact arithmetic, and what onnxruntime makes of them."""
    steps = np.arange(1, 65) + np.where(np.arange(64) == 1, 0.5, 0.2)
    scale = np.float64(np.float32(0.1))
    feeds = {"x": (np.sqrt(steps * scale) / scale).astype(np.float32)}
    return feeds, Reference(QUANTISED).run(feeds)["y"].astype(np.int64)


def test_one_step_at_a_rounding_boundary_and_no_more() -> None:
    feeds, right = near_a_boundary()
    assert right[1] in (130, 131)
    for position, value, ok in ((1, 130, True), (1, 131, True), (1, 133, False), (0, right[0] + 1, False), (9, 0, False)):
        got = right.copy()
        got[position] = value
        assert judged(QUANTISED, feeds, got, dt.U8).ok is ok, (position, value)


def test_a_boundary_that_grows() -> None:
    """A value next to a boundary becomes the other step of a QuantizeLinear, and a product spreads it."""
    values = ",".join(f"{v:.4f}" for v in RNG.standard_normal(64 * 16))
    model = parsed(
        f"(float[1,64] x) => (float[1,16] y) <float s={{0.1}}, uint8 z={{128}}, float[64,16] w={{{values}}}> "
        "{ h=Mul(x,s) t=Mul(h,h) q=QuantizeLinear(t,s,z) d=DequantizeLinear(q,s,z) y=MatMul(d,w) }"
    )
    feeds, q = near_a_boundary()
    x = {"x": feeds["x"][None]}
    w = onnx.numpy_helper.to_array(onnx.load_from_string(model).graph.initializer[2])

    def product(position: int, value: int) -> np.ndarray:
        changed = q.copy()
        changed[position] = value
        return np.asarray(((changed - 128) * np.float32(0.1))[None] @ w)

    assert judged(model, x, product(1, 130)).ok and judged(model, x, product(1, 131)).ok
    assert not judged(model, x, product(0, int(q[0]) + 16)).ok
    assert not judged(model, x, product(1, 160)).ok


def test_an_operator_that_onnx_reference_lacks_is_judged_all_the_same() -> None:
    model = parsed(
        "(float[4,32] x) => (float[4,32] y) { g=com.microsoft.FastGelu(x) y=Softmax(g) }", domains=', "com.microsoft" : 1'
    )
    x = RNG.standard_normal((4, 32)).astype(np.float32)
    right = Reference(model).run({"x": x})["y"]
    assert np.allclose(exact_outputs(model, {"x": x})["y"], right, atol=1e-6)
    wrong = judged(model, {"x": x}, right * 1.001)
    assert not wrong.ok and wrong.fault == "binary"


def test_what_is_too_large_to_judge_fails_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(*_: object) -> None:
        raise TooLarge("float64 takes too long")

    monkeypatch.setattr("aitc.verify.judge.exact_outputs", too_large)
    x = RNG.standard_normal((2, 512, 8)).astype(np.float32)
    report = judged(CANCELLING, {"x": x}, sequential(x) * 1.01)
    assert not report.ok and "not judged: float64 takes too long" in report.note


def test_float64_takes_no_longer_than_it_may() -> None:
    with pytest.raises(TooLarge, match="too long"):
        exact_outputs(CANCELLING, {"x": np.zeros((2, 512, 8), np.float32)}, time_s=-1)
    with pytest.raises(NoReference):
        exact_outputs(parsed("(float[2] x) => (float[2] y) { y=mine.What(x) }", domains=', "mine" : 1'), {"x": np.zeros(2, np.float32)})
