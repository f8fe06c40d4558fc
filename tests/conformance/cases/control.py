"""Loops of many trips, and operators inside branches that capture what is outside."""

from __future__ import annotations

import re

import numpy as np
from conformance.cases.case import Array, Case, case, normal

# nodes from x [2, 3, 8] to y, with w [8, 8] captured too; a kind of kernel each
INSIDE = {
    "product": "y = MatMul(x, w)",
    "product_and_bias": "t = MatMul(x, w) u = Relu(t) y = Add(u, x)",
    "convolution": "y = Conv<kernel_shape = [3], pads = [1, 1]>(x, f)",
    "transposed_convolution": "y = ConvTranspose<kernel_shape = [3], pads = [1, 1]>(x, f)",
    "softmax": "y = Softmax<axis = 1>(x)",
    "layer_norm": "g = Gather(w, zero) y = LayerNormalization(x, g)",
    "reduction": "t = ReduceMean<keepdims = 1>(x, last) y = Sub(x, t)",
    "transpose": "t = Transpose<perm = [0, 2, 1]>(x) u = Relu(t) y = Transpose<perm = [0, 2, 1]>(u)",
    "slice_and_concat": "a, b = Split<axis = 2, num_outputs = 2>(x) y = Concat<axis = 2>(b, a)",
    "cumulative_sum": "y = CumSum(x, axis)",
    "topk": "v, i = TopK(x, count) c = Cast<to = 1>(i) y = Add(v, c)",
    "pool": "y = MaxPool<kernel_shape = [3], pads = [1, 1]>(x)",
    "resize": "t = Resize<mode = \"linear\">(x, , scales) y = AveragePool<kernel_shape = [2], strides = [2]>(t)",
    "scatter": "y = ScatterElements<axis = 2>(x, places, updates)",
    "where": "c = Less(x, half) y = Where(c, x, half)",
    "view_alone": "s = Shape(x) y = Reshape(x, s)",
    "outer_value": "y = Identity(x)",
    "constant": "y = ConstantOfShape<value = float[1] {2}>(shape)",
    "constant_node": "t = Constant<value_float = 3.0>() y = Mul(x, t)",
}  # fmt: skip
FILTER = ", ".join(str(n / 8) for n in range(-13, 14))
CONSTANTS = f"""int64 zero = {{0}}, int64[1] last = {{-1}}, int64 axis = {{1}}, int64[1] count = {{8}}, float[3] scales = {{1, 1, 2}},
    float half = {{0.5}}, int64[3] shape = {{2, 3, 8}}, int64[1,1,2] places = {{0, -1}}, float[1,1,2] updates = {{5, 6}},
    float[3,3,3] f = {{{FILTER}}}"""


def _branches() -> list[Case]:
    runs = [{"x": normal(2, 3, 8), "w": normal(8, 8, seed=1), "flag": np.array(f)} for f in (True, False)]
    cases = []
    for name, nodes in INSIDE.items():
        body = nodes.replace("(x, w)", "(x, m)").replace("Gather(w,", "Gather(m,")
        text = f"""(float[2,3,8] x, float[8,8] w, bool flag) => (float[2,3,8] z) <{CONSTANTS}> {{
            m = Neg(w)
            t0 = Relu(x)
            z0 = If(flag) <then_branch = then () => (float[2,3,8] y) {{ {body} }},
                else_branch = else () => (float[2,3,8] n) {{ n = Neg(t0) }}>
            z = Add(z0, t0) }}"""
        cases.append(case(f"{name}_inside_if", text, *runs))
        inside = re.sub(r"\bx\b", "state", body)
        text = f"""(float[2,3,8] x, float[8,8] w, bool flag) => (float[2,3,8] z) <{CONSTANTS}, int64 two = {{2}}> {{
            m = Neg(w)
            z = Loop(two, flag, x) <
                body = body (int64 trip, bool go, float[2,3,8] state) => (bool again, float[2,3,8] y) {{ again = Identity(go) {inside} }}> }}"""
        cases.append(case(f"{name}_inside_loop", text, *runs))
    return cases


def _loops() -> list[Case]:
    many = """(int64 n, float[2] x) => (float[2] y, int64 count) <bool go = {1}, int64 zero = {0}, int64 one = {1}, float half = {0.5}> {
        y, count = Loop(n, go, x, zero) <body = body (int64 i, bool c, float[2] s, int64 k) => (bool c, float[2] t, int64 m) {
            a = Mul(s, half) t = Add(a, half) m = Add(k, one) }> }"""
    fixed = many.replace("int64 n, ", "").replace("int64 zero", "int64 n = {70000}, int64 zero")
    until = """(int64 stop) => (int64 y) <bool go = {1}, int64 zero = {0}, int64 one = {1}> {
        y = Loop(, go, zero) <body = body (int64 i, bool c, int64 k) => (bool d, int64 m) { m = Add(k, one) d = Less(m, stop) }> }"""
    scan = """(int64 n) => (int64 y, int64[k] all) <bool go = {1}, int64 zero = {0}> {
        y, all = Loop(n, go, zero) <body = body (int64 i, bool c, int64 k) => (bool c, int64 m, int64 e) { m = Add(k, i) e = Mul(m, i) }> }"""

    def halves(x: Array, n: Array | int = 70000) -> tuple[Array, Array]:
        n = max(0, int(n))
        return (x - 1) * 0.5**n + 1, np.array(n)

    def sums(n: Array) -> tuple[Array, Array]:
        i = np.arange(max(0, int(n)))
        return np.array(i.sum()), np.cumsum(i) * i

    return [
        case("loop_of_65536_trips", many, *({"n": np.array(n), "x": normal(2)} for n in (65536, 70000, 3, 0, -5)), expect=halves),
        case("loop_of_70000_constant_trips", fixed, {"x": normal(2)}, expect=halves),
        case("loop_until_70000", until, {"stop": np.array(70000)}, {"stop": np.array(0)}, expect=lambda stop: np.maximum(stop, 1)),
        case("loop_of_many_scan_outputs", scan, *({"n": np.array(n)} for n in (66000, 1, 0)), expect=sums),
    ]


def _sizes_alone() -> list[Case]:
    """Sizes that only the data decides are read, and the elements are not."""
    x = ({"x": np.float32([1, 0, 2, 0, 3])}, {"x": np.float32([0, 0])})
    in_loop = """(float[n] x, int64 trips) => (int64[2] y) <bool go = {1}, int64[2] none = {0, 0}> {
        y = Loop(trips, go, none) <body = body (int64 i, bool c, int64[2] s) => (bool d, int64[2] t) {
            d = Identity(c) places = NonZero(x) size = Shape(places) t = Add(s, size) }> }"""
    positive = """(float[n] x) => (float[m] y) <float zero = {0}> {
        c = Greater(x, zero) kept = Compress<axis = 0>(x, c) size = Shape(kept) y = ConstantOfShape(size) }"""
    return [
        case("count_of_nonzero", "(float[n] x) => (int64[2] y) { places = NonZero(x) y = Shape(places) }", *x),
        case("count_of_nonzero_inside_loop", in_loop, *({**feeds, "trips": np.array(n)} for feeds in x for n in (3, 0))),
        case("as_many_zeros_as_are_kept", positive, *x),
        case("count_of_unique", "(float[n] x) => (int64[1] y) { u = Unique(x) y = Shape(u) }", *x),
    ]


def _late() -> list[Case]:
    """Bodies that read what is outside, or a body around them, and has a size that is known late or changes with each trip."""
    rows = {"x": normal(3, 4)}, {"x": normal(1, 4)}
    grow = """y = Loop(n, go, none) <body = body (int64 i, bool c, float[p,4] acc) => (bool c, float[q,4] more) {
            row = Gather(t, i) r = Unsqueeze(row, first) more = Concat<axis = 0>(acc, r) }>"""
    outer = f"""(float[n,4] x) => (float[m,4] y) <bool go = {{1}}, int64 zero = {{0}}, int64[1] first = {{0}}, float[0,4] none = {{}}> {{
        t = Relu(x) s = Shape(t) n = Gather(s, zero) {grow} }}"""
    kept = f"""(float[k] x) => (float[m,4] y) <bool go = {{1}}, int64 one = {{1}}, int64[1] first = {{0}}, float[0,4] none = {{}}, int64[2] wide = {{1, 4}},
        float zero = {{0}}> {{
        b = Greater(x, zero) kept = Compress<axis = 0>(x, b) ax = Constant<value_ints = [1]>() col = Unsqueeze(kept, ax) t = Expand(col, wide)
        s = Shape(t) start = Constant<value = int64 {{0}}>() n = Gather(s, start) {grow} }}"""
    nested = """(float[k] x, int64 n) => (float[a] y, int64 count) <bool go = {1}, int64[1] first = {0}, float zero = {0}, float[0] none = {}> {
        b = Greater(x, zero) kept = Compress<axis = 0>(x, b)
        y = Loop(n, go, none) <body = outer (int64 i, bool c, float[p] acc) => (bool c, float[q] more) {
            twice = Concat<axis = 0>(acc, kept)
            more = Loop(i, c, twice) <body = inner (int64 j, bool d, float[r] in) => (bool d, float[u] out) {
                two = Constant<value = int64 {2}>() odd = Mod(j, two) isodd = Cast<to = 9>(odd)
                out = If(isodd) <then_branch = t () => (float[v] o1) { o1 = Concat<axis = 0>(in, kept) },
                    else_branch = e () => (float[w] o2) { minus = Constant<value_ints = [-1]>() far = Constant<value_ints = [-9223372036854775807]>()
                        rev = Slice(in, minus, far, first, minus) some = Gather(kept, first) o2 = Sub(rev, some) }> }> }>
        count = Size(y) }"""
    scanned = """(float[k] x) => (float[m,2] y, float[n] last) <float zero = {0}, int64[2] pair = {1, 2}, int64[1] one = {1}> {
        b = Greater(x, zero) kept = Compress<axis = 0>(x, b) total = ReduceSum<keepdims = 0>(kept)
        col = Unsqueeze(kept, one) two = Expand(col, pair)
        last, y = Scan<num_scan_inputs = 1, body = body (float[n] state, float[2] row) => (float[n] next, float[2] out) {
            w = ReduceMax<keepdims = 0>(kept) next = Add(state, w) m = Add(row, total) s = ReduceSum<keepdims = 0>(next) out = Mul(m, s) }>(kept, two) }"""
    stacked = """(float[k] x, int64 n) => (float[t,m] y) <bool go = {1}, float zero = {0}> {
        b = Greater(x, zero) kept = Compress<axis = 0>(x, b)
        y = Loop(n, go) <body = body (int64 i, bool c) => (bool c, float[m] out) { f = Cast<to = 1>(i) out = Mul(kept, f) }> }"""
    both = """(float[k] x, bool c) => (float[m] y) <float zero = {0}> {
        places = NonZero(x) one = Constant<value_ints = [0]>() flat = Squeeze(places, one) some = Gather(x, flat)
        y = If(c) <then_branch = t () => (float[p] a) <float[1] k = {2}> { a = Concat<axis = 0>(some, k) },
            else_branch = e () => (float[q] b) <float[1] k = {3}> { s = Mul(some, k) pos = Greater(s, zero) b = Compress<axis = 0>(s, pos) }> }"""
    data = [{"x": np.float32(v)} for v in ([1, 0, 2, -3, 3], [0.5, 4], [0, 7, 0])]
    counts = [{**feeds, "n": np.array(n)} for feeds in data for n in (0, 1, 4)]
    flags = [{**feeds, "c": np.array(c)} for feeds in data for c in (True, False)]

    def scaled(x: Array, n: Array) -> Array:  # no trips: the size of a row is known outside, where onnxruntime says 0
        return np.arange(int(n), dtype=np.float32)[:, None] * x[x > 0]

    return [
        case("loop_reads_outer_rows", outer, *rows),
        case("loop_reads_what_was_kept", kept, *data),
        case("bodies_in_bodies_of_late_sizes", nested, *counts, opset=18),
        case("scan_over_what_was_kept", scanned, *data),
        case("loop_stacks_late_sizes", stacked, *counts, expect=scaled),
        case("branches_of_late_sizes_with_their_own_constants", both, *flags),
    ]


def _ranks() -> list[Case]:
    """Branches whose results differ in rank, until what follows makes one shape of both."""
    squeezed = """(float[2,c,5] x, float[10] w) => (float[n] y, float[m] z) <int64 i1 = {1}, int64 one = {1}, int64[1] m1 = {-1}> {
        s = Shape(x) d = Gather(s, i1) p = Equal(d, one)
        q = If(p) <then_branch = t () => (float[2,5] o1) <int64[1] a = {1}> { o1 = Squeeze(x, a) },
            else_branch = e () => (float[2,c,5] o2) { o2 = Relu(x) }>
        h = Neg(q) y = Reshape(h, m1) v = Softmax<axis = -1>(q) u = Reshape(v, m1) z = Concat<axis = 0>(u, w) }"""
    data = """(float[3,4] x, bool flag) => (float[n] y) <int64[1] m1 = {-1}, int64[1] first = {0}> {
        q = If(flag) <then_branch = t () => (float[1,3,4] o1) { o1 = Unsqueeze(x, first) }, else_branch = e () => (float[k] o2) {
            zero = Constant<value_float = 0.0>() g = Greater(x, zero) c = Reshape(g, m1) o2 = Compress(x, c) }>
        r = ReduceSum<keepdims = 1>(q, m1) y = Reshape(r, m1) }"""
    one_fails = """(float[2,c,5] x, float[2,3] m) => (float[2,n] y) <int64 i1 = {1}, int64 one = {1}, int64[1] a = {1}> {
        s = Shape(x) d = Gather(s, i1) p = Equal(d, one)
        q = If(p) <then_branch = t () => (float[2,5] o1) { o1 = Squeeze(x, a) }, else_branch = e () => (float[2,c,5] o2) { o2 = Identity(x) }>
        y = Concat<axis = 1>(q, m) }"""
    return [
        case("ranks_meet_again", squeezed, *({"x": normal(2, c, 5), "w": normal(10)} for c in (1, 4))),
        case("ranks_meet_again_by_data", data, *({"x": normal(3, 4), "flag": np.array(f)} for f in (True, False))),
        case("a_branch_cannot_be_typed", one_fails, {"x": normal(2, 1, 5), "m": normal(2, 3)}),
    ]


def _empty() -> list[Case]:
    """Caches that are empty at the first step, without anyone saying that they may be."""
    cached = """(float[b,2,s,4] q, float[b,2,past,4] pk, float[b,2,past,4] pv, int64[b,total] mask) => (float[b,2,s,4] y, float[b,2,t,4] k, int64[p] at)
        <int64[2] ax = {1, 2}, float one = {1}, float big = {-10000}, int64 zero = {0}, int64 step = {1}, int64 two = {2}> {
        k = Concat<axis = 2>(pk, q) v = Concat<axis = 2>(pv, q) kt = Transpose<perm = [0, 1, 3, 2]>(k) s0 = MatMul(q, kt)
        f = Cast<to = 1>(mask) i = Sub(one, f) m = Mul(i, big) m4 = Unsqueeze(m, ax) s1 = Add(s0, m4) w = Softmax<axis = -1>(s1)
        y = MatMul(w, v) sizes = Shape(pk) n = Gather(sizes, two) at = Range(zero, n, step) }"""
    chosen = """(float[n,3] x, float[m,3] c, bool flag) => (float[k,3] y) { a = Relu(x)
        y = If(flag) <then_branch = t () => (float[k,3] u) { u = Concat<axis = 0>(a, c) },
            else_branch = e () => (float[k2,3] z) { z = Concat<axis = 0>(c, c, a) }> }"""
    steps = [
        {"q": normal(2, 2, s, 4), "pk": normal(2, 2, p, 4, seed=1), "pv": normal(2, 2, p, 4, seed=2), "mask": np.ones((2, p + s), np.int64)}
        for p, s in ((0, 3), (3, 1), (0, 1))
    ]
    rows = [{"x": normal(n, 3), "c": normal(m, 3, seed=1), "flag": np.array(f)} for n, m in ((0, 2), (2, 0), (0, 0), (1, 2)) for f in (True, False)]
    return [case("an_empty_past", cached, *steps), case("empty_parts_in_branches", chosen, *rows)]


CASES = [*_branches(), *_loops(), *_sizes_alone(), *_late(), *_ranks(), *_empty()]
