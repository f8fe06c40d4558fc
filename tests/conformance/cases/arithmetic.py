"""Arithmetic that rewriting may break: cancellation, one input many times, broadcast slopes."""

from __future__ import annotations

import numpy as np
from conformance.cases.case import Array, Case, case, normal, whole

LARGE = np.float32([1e8, -1e8, 16777216, 0.1, 0, np.inf, -np.inf, np.nan, 3e38, 1e-38])
WRAPPING = np.array([0, 1, 127, 128, 254, 255], np.uint8)

# text of the nodes from x to y, with one = 1 and zero = 0 of x's type
CANCELLING = {
    "x_minus_x_plus_one": "t = Add(x, one) y = Sub(x, t)",
    "x_plus_one_minus_x": "t = Add(x, one) y = Sub(t, x)",
    "x_minus_one_plus_one": "t = Sub(x, one) y = Add(t, one)",
    "one_minus_one_minus_x": "t = Sub(one, x) y = Sub(one, t)",
    "x_minus_x": "y = Sub(x, x)",
    "x_times_zero": "y = Mul(x, zero)",
    "double_negation": "t = Neg(x) y = Neg(t)",
    "x_minus_minus_x": "t = Neg(x) y = Sub(x, t)",
}  # fmt: skip
FLOATS = {
    "x_over_x": "y = Div(x, x)",
    "x_times_reciprocal": "t = Reciprocal(x) y = Mul(x, t)",
    "x_to_the_zero": "y = Pow(x, zero)",
    "root_of_square": "t = Mul(x, x) y = Sqrt(t)",
    "log_of_exp": "t = Exp(x) y = Log(t)",
    "exp_of_log": "t = Log(x) y = Exp(t)",
    "max_of_nan": "y = Max(x, zero)",
    "relu_of_nan": "y = Relu(x)",
    "clip_of_nan": "y = Clip(x, zero, one)",
    "sigmoid_of_extremes": "y = Sigmoid(x)",
    "softmax_of_extremes": "s = Clip(x) y = Softmax(s)",
    "mul_by_one_and_back": "t = Mul(x, one) y = Div(t, one)",
}  # fmt: skip


def _one_input(name: str, kind: str, nodes: str, x: np.ndarray) -> Case:
    text = f"({kind}[n] x) => ({kind}[n] y) <{kind} one = {{1}}, {kind} zero = {{0}}> {{ {nodes} }}"
    return case(f"{name}_{kind}", text, {"x": x})


def _many_times() -> list[Case]:
    runs = ({"x": normal(3, 5)}, {"x": normal(1, 5)})
    names = ["Sum", "Max", "Min", "Mean"]
    cases = [
        case(f"{op.lower()}_of_one_input_{n}_times", f"(float[n,5] x) => (float[n,5] y) {{ y = {op}({', '.join('x' * n)}) }}", *runs)
        for op in names
        for n in (1, 2, 5)
    ]  # fmt: skip
    cases += [
        case("concat_of_one_input_three_times", "(float[n,5] x) => (float[m,15] y) { y = Concat<axis = 1>(x, x, x) }", *runs),
        case("product_with_itself", "(float[n,5] x) => (float[n,m] y) { t = Transpose(x) y = MatMul(x, t) }", *runs),
        case("where_of_itself", "(float[n,5] x) => (float[n,5] y) { c = Less(x, x) y = Where(c, x, x) }", *runs),
        case(
            "sum_of_itself_and_a_broadcast_of_itself",
            "(float[n,5] x) => (float[n,5] y) <int64[1] a = {0}> { t = ReduceMean(x, a) y = Sum(x, t, x, t, x) }",
            *runs,
        ),
    ]  # fmt: skip
    return cases


def _prelu() -> list[Case]:
    x = {"x": normal(2, 3, 4, 5)}
    shapes = ((3, 1, 1), (1, 3, 1, 1), (1,), (), (5,), (4, 5), (1, 1, 5), (3, 4, 5), (2, 1, 1, 1))
    cases = []
    for shape in shapes:
        label = "x".join(map(str, shape)) or "scalar"
        dims = ",".join(map(str, shape))
        kind = f"float[{dims}]" if shape else "float"
        text = f"(float[2,3,4,5] x, {kind} s) => (float[2,3,4,5] y) {{ y = PRelu(x, s) }}"
        cases.append(case(f"prelu_slope_{label}", text, x | {"s": normal(*shape, seed=1)}))
    symbolic = "(float[n,3,h,w] x, float[3,1,1] s) => (float[n,3,h,w] y) { y = PRelu(x, s) }"
    cases.append(
        case("prelu_symbolic", symbolic, x | {"s": normal(3, 1, 1)}, {"x": normal(1, 3, 1, 7), "s": normal(3, 1, 1)})
    )
    fixed = "(float[n,3,h,w] x) => (float[n,3,h,w] y) <float[3,1,1] s = {0.1, -2, 0}> { y = PRelu(x, s) }"
    return [*cases, case("prelu_constant_slope", fixed, x)]


def _flatten() -> list[Case]:
    x = {"x": normal(2, 1, 3, 2, 5, 2)}
    text = "(float[{s}] x) => (float[1,n] y) <int64[1] a = {{0}}> {{ t = Flatten<axis = 0>(x) y = ReduceSum(t, a) }}"
    cases = [
        case("flatten_axis_0_then_reduce_sum", text.format(s="2,1,3,2,5,2"), x),
        case(
            "flatten_axis_0_then_reduce_sum_symbolic", text.format(s="a,b,c,d,e,f"), x, {"x": normal(1, 2, 2, 1, 3, 3)}
        ),
        case(
            "flatten_axis_0_then_reduce_sum_of_all",
            "(float[2,1,3,2,5,2] x) => (float y) { t = Flatten<axis = 0>(x) y = ReduceSum<keepdims = 0>(t) }",
            x,
        ),
    ]
    for axis in range(-6, 7):
        for keep in (0, 1):
            reduced = "float[1,n]" if keep else "float[n]"
            nodes = f"t = Flatten<axis = {axis}>(x) y = ReduceSum<keepdims = {keep}>(t, a) z = Neg(t)"
            text = f"(float[2,1,3,2,5,2] x) => ({reduced} y, float[m,n] z) <int64[1] a = {{0}}> {{ {nodes} }}"
            label = f"{axis}".replace("-", "minus_")
            cases.append(case(f"flatten_{label}_reduce_{'keep' if keep else 'drop'}", text, x))
    return cases


def _long_sums() -> list[Case]:
    """Sums over axes of thousands of numbers far from zero: the error stays that of some dozens of additions, whichever axis it is."""
    cases = []
    x = (normal(2, 5000, 24) + 20).astype(np.float32)
    for axis, shape in ((1, (2, 5000, 24)), (0, (5000, 2, 24)), (2, (2, 24, 5000))):
        given = np.ascontiguousarray(np.moveaxis(x, 1, axis))
        extents = ",".join(map(str, shape))
        for op, power in (("ReduceSum", 1), ("ReduceMean", 1), ("ReduceSumSquare", 2), ("ReduceL1", 1)):
            text = f"""(float[{extents}] x) => (float[a,b] y) <int64[1] i = {{{axis}}}> {{ y = {op}<keepdims = 0>(x, i) }}"""

            def expect(x: Array, axis: int = axis, power: int = power, mean: bool = op == "ReduceMean") -> Array:
                total = (x.astype(np.float64) ** power).sum(axis)
                return np.asarray(total / x.shape[axis] if mean else total)

            cases.append(case(f"long_{op}_{axis}", text, {"x": given}, expect=expect, rtol=2.5e-7, scale=0))
        variance = f"""(float[{extents}] x) => (float[a,b] y) <int64[1] i = {{{axis}}}> {{
            m = ReduceMean(x, i) q = Mul(x, x) n = ReduceMean(q, i) p = Mul(m, m) v = Sub(n, p) y = Squeeze(v, i) }}"""
        cases.append(
            case(
                f"long_variance_{axis}",
                variance,
                {"x": given},
                expect=lambda x, axis=axis: x.astype(np.float64).var(axis),
                rtol=0,
                scale=2e-4,
            )
        )
    return cases


def _quantised_ranges() -> list[Case]:
    """Ranges of DynamicQuantizeLinear that are one number, or none: zeros get a scale of 1, as in ONNX Runtime."""
    text = """(float[n] x) => (uint8[n] q, float s, uint8 z, float[n] y) {
        q, s, z = DynamicQuantizeLinear(x) y = DequantizeLinear(q, s, z) }"""
    ranges = (
        [0.0, 0.0, 0.0],
        [-0.0, 0.0],
        [5.0, 5.0],
        [-3.0, -3.0, -3.0],
        [-2.0, -0.5],
        [1e-38, -1e-38, 0.0],
        [3e37, -3e37, 1.0],
        [0.0, 2.0, -0.5],
    )
    return [
        case(
            "dynamic_quantize_of_one_number",
            text,
            *({"x": np.array(r, np.float32)} for r in ranges),
            rtol=1e-6,
            scale=0,
            opset=18,
        )
    ]


CASES = [
    *_long_sums(),
    *_quantised_ranges(),
    *(_one_input(name, "float", nodes, LARGE) for name, nodes in {**CANCELLING, **FLOATS}.items()),
    *(_one_input(name, "uint8", nodes, WRAPPING) for name, nodes in CANCELLING.items() if "Neg" not in nodes),
    *(
        _one_input(name, "int64", nodes, np.array([0, 1, -1, 2**62, -(2**63), 2**63 - 1, 2**31]))
        for name, nodes in CANCELLING.items()
    ),
    *(_one_input(name, "double", nodes, LARGE.astype(np.float64)) for name, nodes in CANCELLING.items()),
    *_many_times(),
    case(
        "sum_of_one_integer_input_five_times",
        "(int64[n] x) => (int64[n] y) { a = Add(x, x) b = Add(a, x) c = Add(b, x) y = Add(c, x) }",
        {"x": whole(7, lo=-5)},
    ),
    *_prelu(),
    *_flatten(),
]
