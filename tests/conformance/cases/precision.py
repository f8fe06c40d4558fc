"""What overflows or drowns in float16 unless it is kept in float32: compiled with ``--precision fp16``, compared with float32."""

from __future__ import annotations

import numpy as np
from conformance.cases.case import EPS, Array, Case, case, normal, specification_gives

PRECISION = "fp16"
EMULATED = (  # on a GPU that the CPU emulates, too
    "layer_norm_decomposed_1e_12_near_100", "mask_where_minus_inf", "l2_spelled_near_300", "mean_after_sum", "residual_stream_beyond_65504",
    "mask_added", "mask_filled", "mask_before_softmax", "mask_of_attention",
)  # fmt: skip
ROUNDINGS = 1e-2  # of the largest value: a few layers of float16, whose roundoff is 5e-4

# LayerNormalization as it was exported before opset 17, of x [n, 5, 64]
DECOMPOSED = """<float two = {{2}}, float epsilon = {{{epsilon}}}> {{
    mean = ReduceMean<axes = [-1]>(x) d = Sub(x, mean) square = Pow(d, two) variance = ReduceMean<axes = [-1]>(square)
    sum = Add(variance, epsilon) root = Sqrt(sum) y = Div(d, root) }}"""


def _of_rows(x: Array, epsilon: float) -> Array:
    x = x.astype(np.float64)
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)


def _half(name: str, text: str, *runs: dict[str, Array], opset: int = 17, scale: float = ROUNDINGS, **more: object) -> Case:
    return case(name, text, *runs, opset=opset, rtol=ROUNDINGS, scale=scale, **more)  # type: ignore[arg-type]


def _layer_norms() -> list[Case]:
    given = "(float[n,5,64] x) => (float[n,5,64] y)"
    near_100 = np.sign(normal(2, 5, 64)) * normal(2, 5, 64, seed=1, scale=2, mean=100)
    above_100 = normal(2, 5, 64, scale=2, mean=100)
    small = normal(2, 5, 64, scale=1e-3)
    cases = []
    for spelled, epsilon in (("1e_12", 1e-12), ("1e_5", 1e-5)):
        text = f"{given} {DECOMPOSED.format(epsilon=epsilon)}"
        label = f"layer_norm_decomposed_{spelled}"

        def expect(x: Array, epsilon: float = epsilon) -> Array:
            return _of_rows(x, epsilon)

        # inputs are float32: what fp16 leaves of them is the caller's choice of precision, what is made of it is ours
        for name, x in (("near_100", near_100), ("above_100", above_100), ("small", small)):
            x = x.astype(np.float16).astype(np.float32)
            cases.append(_half(f"{label}_{name}", text, {"x": x.astype(np.float32)}, expect=expect))
    squared = DECOMPOSED.replace("Pow(d, two)", "Mul(d, d)").format(epsilon=1e-12)
    cases.append(_half("layer_norm_decomposed_by_product", f"{given} {squared}", {"x": near_100.astype(np.float32)}))
    rms = """<float two = {2}, float epsilon = {1e-6}> {
        square = Pow(x, two) mean = ReduceMean<axes = [-1]>(square) sum = Add(mean, epsilon) root = Sqrt(sum) y = Div(x, root) }"""
    cases.append(_half("rms_norm_decomposed_of_3000", f"{given} {rms}", {"x": normal(2, 5, 64, scale=3000)}))
    return cases


def _constants() -> list[Case]:
    mask = np.zeros((2, 6), np.float32)
    mask[0, 3:] = 1
    cases = []
    for low in ("-1e12", "-inf", "-3.4028235e38", "-65504", "-1e4"):
        label = low.replace("-", "minus_").replace(".", "_").replace("+", "")
        added = f"""(float[2,6] x, float[2,6] m) => (float[2,6] y) <float low = {{{low}}}> {{
            h = MatMul(x, w) t = Mul(m, low) s = Add(h, t) y = Softmax(s) }}"""
        added = added.replace("> {", ", float[6,6] w = {" + ", ".join(str(n % 7 / 4) for n in range(36)) + "}> {", 1)
        if low != "-inf":  # 0 * inf is NaN in float32, too
            cases.append(_half(f"mask_times_{label}", added, {"x": normal(2, 6), "m": mask}))
        chosen = added.replace("t = Mul(m, low) s = Add(h, t)", "b = Cast<to = 9>(m) s = Where(b, low, h)")
        cases.append(_half(f"mask_where_{label}", chosen, {"x": normal(2, 6), "m": mask}))
        largest = f"""(float[2,6] x) => (float[2,6] y) <float low = {{{low}}}> {{ r = Relu(x) y = Max(r, low) }}"""
        cases.append(_half(f"maximum_with_{label}", largest, {"x": normal(2, 6)}))
    clip = "(float[2,6] x) => (float[2,6] y) <float low = {-3.4e38}, float high = {3.4e38}> { r = Neg(x) y = Clip(r, low, high) }"
    least = "(float[2,6] x) => (float[2,1] y) <float high = {1e12}> { m = Min(x, high) y = ReduceMin<axes = [1]>(m) }"
    tiny = "(float[2,6] x) => (float[2,6] y) <float small = {1e-12}> { r = Abs(x) m = Max(r, small) y = Div(x, m) }"
    return [
        *cases,
        _half("clip_to_float32", clip, {"x": normal(2, 6)}),
        _half("minimum_with_1e12", least, {"x": normal(2, 6)}),
        _half("division_by_at_least_1e_minus_12", tiny, {"x": np.where(normal(2, 6) > 0, normal(2, 6, seed=1), 0).astype(np.float32)}),
    ]


def _lengths() -> list[Case]:
    x = {"x": normal(3, 96, scale=20, mean=300)}
    given = "(float[n,96] x) => (float[n,96] y)"
    return [
        _half("l2_by_reduction_near_300", f"{given} {{ l = ReduceL2<axes = [1]>(x) y = Div(x, l) }}", x),
        _half("l2_spelled_near_300",
              f"{given} <int64[1] a = {{1}}> {{ q = Mul(x, x) s = ReduceSum(q, a) l = Sqrt(s) y = Div(x, l) }}", x),
        _half("l2_with_a_floor_near_300",
              f"{given} <float e = {{1e-12}}> {{ l = ReduceL2<axes = [1]>(x) m = Max(l, e) y = Div(x, m) }}", x),
        _half("lp_normalization_near_300", f"{given} {{ y = LpNormalization<axis = 1, p = 2>(x) }}", x),
        _half("cosine_of_300", """(float[n,96] x, float[m,96] z) => (float[n,m] y) {
            l = ReduceL2<axes = [1]>(x) u = Div(x, l) k = ReduceL2<axes = [1]>(z) v = Div(z, k)
            t = Transpose<perm = [1, 0]>(v) y = MatMul(u, t) }""", x | {"z": normal(4, 96, scale=20, mean=-300, seed=1)}),
        _half("sum_of_squares_near_300", "(float[n,96] x) => (float[n] y) { y = ReduceSumSquare<axes = [1], keepdims = 0>(x) }", x),
        _half("log_sum_exp_of_large", "(float[n,96] x) => (float[n] y) { y = ReduceLogSumExp<axes = [1], keepdims = 0>(x) }", x),
        _half("softmax_of_large", f"{given} {{ y = Softmax(x) }}", x),
    ]  # fmt: skip


def _many_elements() -> list[Case]:
    image = normal(1, 2, 1024, 1024, mean=1)
    long = normal(1, 2, 262144, mean=3)

    def normalized(x: Array) -> Array:
        return _of_rows(x, 1e-5)

    square = "(float[1,2,1024,1024] x) => (float[1,2,1,1] y)"
    return [
        _half("mean_over_1024_squared", f"{square} {{ y = ReduceMean<axes = [2, 3]>(x) }}", {"x": image}),
        _half("global_average_over_1024_squared", f"{square} {{ r = Relu(x) y = GlobalAveragePool(r) }}", {"x": image}),
        _half("sum_over_1024_squared", f"{square} <int64[2] a = {{2, 3}}> {{ y = ReduceSum(x, a) }}", {"x": image}),
        _half("mean_after_sum",
              f"{square} <int64[2] a = {{2, 3}}, float n = {{1048576}}> {{ s = ReduceSum(x, a) y = Div(s, n) }}", {"x": image}),
        _half("instance_norm_over_262144", """(float[1,2,262144] x) => (float[1,2,262144] y) <float[2] s = {1, 1}, float[2] b = {0, 0}> {
            y = InstanceNormalization(x, s, b) }""", {"x": long}, expect=normalized),
        _half("instance_norm_over_262144_symbolic", """(float[1,2,n] x) => (float[1,2,n] y) <float[2] s = {1, 1}, float[2] b = {0, 0}> {
            y = InstanceNormalization(x, s, b) }""", {"x": long}, expect=normalized),
    ]  # fmt: skip


def _residuals() -> list[Case]:
    weights = ", ".join(str((n * 7 % 11 - 5) / 2) for n in range(256))
    stream = f"""(float[n,16] x) => (float[n,16] y) <float[16,16] w = {{{weights}}}, float[16] g = {{{", ".join(["1"] * 16)}}}> {{
        a = MatMul(x, w) h1 = Add(x, a) b = MatMul(h1, w) h2 = Add(h1, b) c = MatMul(h2, w) h3 = Add(h2, c) d = MatMul(h3, w) h4 = Add(h3, d)
        e = MatMul(h4, w) h5 = Add(h4, e) y = LayerNormalization(h5, g) }}"""
    plain = f"""(float[n,16] x) => (float[n,16] y) <float large = {{300}}, float small = {{1e-5}}, float[16,16] w = {{{weights}}}> {{
        p = MatMul(x, w) h = Mul(p, large) k = Mul(h, large) y = Mul(k, small) }}"""
    back = f"""(float[n,16] x) => (float[n,16] y) <float large = {{60000}}, float[16,16] w = {{{weights}}}> {{
        p = MatMul(x, w) h = Add(p, large) k = Add(h, large) l = Sub(k, large) m = Sub(l, large) r = Mul(m, m) y = Sqrt(r) }}"""
    feeds = {"x": normal(3, 16, scale=4)}
    return [
        _half("residual_stream_beyond_65504", stream, feeds),
        _half("scaled_beyond_65504_and_back", plain, feeds),
        # the offset leaves float32 itself only some digits
        _half("offset_beyond_65504_and_back", back, feeds, scale=2e-2 + 2**20 * EPS / 20),
    ]


def _masks() -> list[Case]:
    """Float32 masks of float32's least number and its like, whose rows 2 see no key: there comes the mean of the values. NaN stays NaN."""
    keep = np.random.default_rng(0).random((2, 1, 6, 6)) > 0.4
    keep[:, :, 2] = False
    qkv = {n: normal(2, 2, 6, 8, seed=i) for i, n in enumerate("qkv")}
    given = ", ".join(f"float[2,2,6,8] {n}" for n in qkv)
    attend = "kt = Transpose<perm = [0, 1, 3, 2]>(k) s = MatMul(q, kt) {} p = Softmax<axis = -1>(t) y = MatMul(p, v)"
    low = f"<float low = {{{np.finfo(np.float32).min!r}}}, float one = {{1}}, float zero = {{0}}>".replace("np.float32(", "").replace(")", "")
    added = f"({given}, float[2,1,6,6] m) => (float[2,2,6,8] y) {{ {attend.format('t = Add(s, m)')} }}"
    chosen = f"({given}, bool[2,1,6,6] c) => (float[2,2,6,8] y) {low} {{ {attend.format('m = Where(c, zero, low) t = Add(s, m)')} }}"
    filled = f"({given}, bool[2,1,6,6] c) => (float[2,2,6,8] y) {low} {{ {attend.format('t = Where(c, s, low)')} }}"
    computed = f"({given}, float[2,1,6,6] a) => (float[2,2,6,8] y) {low} {{ {attend.format('n = Sub(one, a) m = Mul(n, low) t = Add(s, m)')} }}"
    alone = "(float[n,6,8] x, float[8,6] w, float[n,6,6] m) => (float[n,6,6] y) { s = MatMul(x, w) t = Add(s, m) y = Softmax<axis = -1>(t) }"
    operator = f"({given}, float[2,1,6,6] m) => (float[2,2,6,8] y) {{ y = Attention(q, k, v, m) }}"
    masks = [np.where(keep, 0, x).astype(np.float32) for x in (np.finfo(np.float32).min, -1e9, -3.4e38, -1e4)]
    masks[-1][0, 0, 4, 3] = np.nan
    rows = {"x": normal(2, 6, 8), "w": normal(8, 6, seed=1)}
    return [
        _half("mask_added", added, *({**qkv, "m": m} for m in masks)),
        _half("mask_chosen", chosen, {**qkv, "c": keep}),
        _half("mask_filled", filled, {**qkv, "c": keep}),
        _half("mask_computed", computed, {**qkv, "a": keep.astype(np.float32)}),
        _half("mask_before_softmax", alone, *({**rows, "m": m[:, 0]} for m in masks)),
        # ONNX Runtime's Attention makes something else than the mean of a row that sees no key
        _half("mask_of_attention", operator, *({**qkv, "m": m} for m in masks), opset=23, oracle=specification_gives),
    ]


CASES = [*_masks(), *_layer_norms(), *_constants(), *_lengths(), *_many_elements(), *_residuals()]
