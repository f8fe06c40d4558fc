"""Reshape, Slice, Pad, Gather and Concat at their edges: nothing in them, symbols, bounds that are cut, sizes that only the data knows."""

from __future__ import annotations

import itertools

import numpy as np
from conformance.cases.case import Array, Case, case, normal, whole

INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)
MAYBE_NONE = {"n": (0, 1000)}


def _reshape() -> list[Case]:
    four = "(float[B,16,38,38] x) => (float[B,4,n] y)"
    exported = """<int64[1] four = {4}, int64[1] open = {-1}, int64 zero = {0}, int64[1] a = {0}> {
        s = Shape(x) b0 = Gather(s, zero) b1 = Unsqueeze(b0, a) t = Concat<axis = 0>(b1, four, open) y = Reshape(x, t) }"""
    runs = ({"x": normal(1, 16, 38, 38)}, {"x": normal(3, 16, 38, 38)})
    return [
        case("reshape_symbolic_batch_to_4", f"{four} <int64[3] s = {{0, 4, -1}}> {{ y = Reshape(x, s) }}", *runs),
        case("reshape_symbolic_batch_to_4_exported", f"{four} {exported}", *runs),
        case(
            "reshape_symbolic_batch_open",
            "(float[B,16,38,38] x) => (float[n,4,5776] y) <int64[3] s = {-1, 4, 5776}> { y = Reshape(x, s) }",
            *runs,
        ),
        case("reshape_nothing_to_open_0", "(float[1,0] x) => (float[a,0] y) <int64[2] s = {1, 0}> { y = Reshape(x, s) }",
             {"x": normal(1, 0)}),
        case("reshape_nothing_allowzero", "(float[2,0] x) => (float[0,a] y) <int64[2] s = {0, 7}> { y = Reshape<allowzero = 1>(x, s) }",
             {"x": normal(2, 0)}),
        case("reshape_nothing_symbolic", "(float[n,m] x) => (float[a,b] y) <int64[2] s = {-1, 0}> { y = Reshape(x, s) }",
             {"x": normal(2, 3)}, {"x": normal(0, 3)}, dims=MAYBE_NONE),
        case("reshape_nothing_to_2_open", "(float[n,6] x) => (float[2,b] y) <int64[2] s = {2, -1}> { y = Reshape(x, s) }",
             {"x": normal(3, 6)}, {"x": normal(0, 6)}, dims=MAYBE_NONE),
        case("reshape_to_scalar", "(float[1,1] x) => (float y) <int64[0] s = {}> { t = Reshape(x, s) y = Neg(t) }", {"x": normal(1, 1)}),
        case("reshape_by_data", "(float[n,6] x, int64[3] s) => (float[a,b,c] y) { t = Reshape(x, s) y = Neg(t) }",
             {"x": normal(4, 6), "s": np.array([0, 3, -1])}, {"x": normal(4, 6), "s": np.array([-1, 1, 2])},
             {"x": normal(2, 6), "s": np.array([1, 1, 12])}),
        case("reduce_nothing", "(float[n,3] x) => (float[3] y, float[n] z) <int64[1] a = {0}, int64[1] b = {1}>"
             "{ y = ReduceSum<keepdims = 0>(x, a) z = ReduceSum<keepdims = 0>(x, b) }", {"x": normal(0, 3)}, {"x": normal(2, 3)}, dims=MAYBE_NONE),
    ]  # fmt: skip


SLICES: tuple[tuple[str, list[int], list[int], list[int], list[int]], ...] = (  # starts, ends, axes, steps of [5, 7, 4]
    ("reversed", [-1], [INT64_MIN], [1], [-1]),
    ("reversed_from_beyond", [INT64_MAX], [INT64_MIN], [0], [-1]),
    ("reversed_by_two", [5], [0], [1], [-2]),
    ("reversed_by_three_from_beyond", [100], [-100], [1], [-3]),
    ("reversed_nothing", [1], [4], [1], [-1]),
    ("end_is_cut", [1], [1000], [1], [1]),
    ("end_is_int64_max", [2], [INT64_MAX], [0], [2]),
    ("start_is_cut", [-1000], [3], [1], [1]),
    ("starts_beyond", [9], [20], [1], [1]),
    ("nothing", [3], [3], [1], [1]),
    ("ends_before_it_starts", [4], [2], [1], [1]),
    ("step_beyond", [1], [7], [1], [100]),
    ("negative_axis", [1], [-1], [-1], [2]),
    ("several", [-1, 1, INT64_MAX], [INT64_MIN, 6, 0], [0, 1, 2], [-2, 2, -1]),
    ("axes_out_of_order", [1, -2], [3, INT64_MIN], [2, 0], [1, -1]),
)


def _slices() -> list[Case]:
    cases = []
    for name, starts, ends, axes, steps in SLICES:
        n = len(starts)
        constants = ", ".join(
            f"int64[{n}] {k} = {{{', '.join(map(str, v))}}}"
            for k, v in (("s", starts), ("e", ends), ("a", axes), ("t", steps))
        )
        own = {"x": normal(5, 7, 4)}
        bounds = {"s": np.array(starts), "e": np.array(ends)}
        node = "{ r = Slice(x, s, e, a, t) y = Neg(r) }"
        out = "=> (float[i,j,k] y)"
        cases.append(case(f"slice_{name}", f"(float[5,7,4] x) {out} <{constants}> {node}", own))
        other = {"x": normal(2, 3, 4)}
        cases.append(case(f"slice_{name}_symbolic", f"(float[n,m,4] x) {out} <{constants}> {node}", own, other))
        known = f"int64[{n}] a = {{{', '.join(map(str, axes))}}}, int64[{n}] t = {{{', '.join(map(str, steps))}}}"
        given = f"float[n,m,4] x, int64[{n}] s, int64[{n}] e"
        zero = {"x": normal(0, 3, 4)}
        runs = [x | bounds for x in (own, other, zero)]
        computed = _sliced(axes, steps)
        text = f"({given}) {out} <{known}> {node}"
        cases.append(case(f"slice_{name}_of_data", text, *runs, expect=computed, dims=MAYBE_NONE))
        every = f"{given}, int64[{n}] a, int64[{n}] t"
        runs = [x | {"a": np.array(axes), "t": np.array(steps)} for x in runs]
        text = f"({every}) {out} {node}"
        cases.append(case(f"slice_{name}_of_data_in_all", text, *runs, expect=computed, dims=MAYBE_NONE))
    return cases


def _sliced(axes: list[int], steps: list[int]) -> object:
    def expect(x: Array, s: Array, e: Array, **_: Array) -> Array:
        index = [slice(None)] * x.ndim
        for start, end, axis, step in zip(s.tolist(), e.tolist(), axes, steps):
            index[axis] = slice(start, None if step < 0 and end == INT64_MIN else end, step)
            if step < 0 and end != INT64_MIN and end < -x.shape[axis]:
                index[axis] = slice(start, None, step)
        return -x[tuple(index)]

    return expect


def _pads() -> list[Case]:
    cases = []
    for mode, pads in itertools.product(
        ("constant", "reflect", "edge", "wrap"),
        ((1, 2, 2, 1), (0, -1, 0, -2), (2, -2, -1, 3), (-1, 1, 2, -3), (0, 0, 0, 0), (-2, -2, -2, -2)),
    ):
        label = "_".join(map(str, pads)).replace("-", "m")
        text = f"int64[4] p = {{{', '.join(map(str, pads))}}}> {{ y = Pad<mode = \"{mode}\">(x, p) }}"
        x = {"x": normal(5, 6)}
        numpy_pad = _padded(mode, pads)
        cases.append(case(f"pad_{mode}_{label}", f"(float[5,6] x) => (float[a,b] y) <{text}", x, expect=numpy_pad))
        cases.append(
            case(f"pad_{mode}_{label}_symbolic", f"(float[n,m] x) => (float[a,b] y) <{text}", x, {"x": normal(7, 6)}, expect=numpy_pad)
        )
    value = "<int64[4] p = {1, -1, 0, 2}, float v = {-3.5}> { y = Pad(x, p, v) }"
    axes = "<int64[2] p = {-1, 2}, float v = {7}, int64[1] a = {-1}> { y = Pad(x, p, v, a) }"
    return [
        *cases,
        case("pad_value", f"(float[n,6] x) => (float[a,b] y) {value}", {"x": normal(2, 6)}),
        case("pad_axes", f"(float[n,6] x) => (float[a,b] y) {axes}", {"x": normal(2, 6)}),
        case(
            "pad_by_data",
            "(float[n,6] x, int64[4] p) => (float[a,b] y) { y = Pad(x, p) }",
            *({"x": normal(3, 6), "p": np.array(p)} for p in ((1, 2, 3, 4), (-1, 0, 2, -5), (0, 0, 0, 0))),
        ),
        case(
            "pad_integers_by_reflection",
            "(int64[5] x) => (int64[n] y) <int64[2] p = {3, 4}> { y = Pad<mode = \"reflect\">(x, p) }",
            {"x": whole(5)},
        ),
    ]  # fmt: skip


def _padded(mode: str, pads: tuple[int, ...]) -> object:
    """Negative pads cut first; what is left is padded."""
    begin, end = pads[:2], pads[2:]

    def expect(x: Array) -> Array:
        cut = x[tuple(slice(max(0, -b), n - max(0, -e)) for b, e, n in zip(begin, end, x.shape))]
        return np.pad(cut, [(max(0, b), max(0, e)) for b, e in zip(begin, end)], mode=mode)  # type: ignore[call-overload]

    return expect


def _expands() -> list[Case]:
    x = {"x": normal(3, 1)}
    own = [x | {"s": np.array(s)} for s in ((3, 4), (1, 4), (1, 1), (3, 1))]
    higher = "(float[n,1] x, int64[3] s) => (float[a,b,c] y) { e = Expand(x, s) y = Neg(e) }"
    return [
        case("expand_by_data", "(float[n,1] x, int64[2] s) => (float[a,b] y) { e = Expand(x, s) y = Neg(e) }", *own),
        case("expand_by_data_to_more_axes", higher, *(x | {"s": np.array(s)} for s in ((2, 3, 4), (5, 1, 1)))),
        case("expand_by_data_to_fewer_axes", "(float[2,n,1] x, int64[1] s) => (float[2,n,b] y) { e = Expand(x, s) y = Neg(e) }",
             {"x": normal(2, 3, 1), "s": np.array([5])}),
        case("expand_like_another", "(float[1,m] x, float[n,m] z) => (float[n,m] y) { s = Shape(z) e = Expand(x, s) y = Add(e, z) }",
             {"x": normal(1, 4), "z": normal(3, 4)}),
    ]  # fmt: skip


def _gathers() -> list[Case]:
    table = normal(11, 4)
    ids = whole(2, 5, lo=-11, hi=11)
    rows = ({"w": table, "i": ids}, {"w": normal(3, 4), "i": whole(1, 1, lo=-3, hi=3)})
    text = "(float[v,4] w, int64[batch,sequence] i) => (float[batch,sequence,4] y) { y = Gather(w, i) }"
    then = "(float[v,4] w, int64[batch,sequence] i) => (float[n,4] y) <int64[2] s = {-1, 4}> { g = Gather(w, i) y = Reshape(g, s) }"
    fixed = f"(int64[batch,sequence] i) => (float[batch,sequence,2] y) <float[4,2] w = {{{', '.join(map(str, range(8)))}}}>"
    return [
        case("gather_symbolic_batch_and_sequence", text, *rows),
        case("gather_symbolic_and_reshape", then, *rows),
        case("gather_constant_table", f"{fixed} {{ y = Gather(w, i) }}", {"i": whole(2, 3, lo=-4, hi=4)}, {"i": whole(0, 3)},
             dims={"batch": (0, 9)}),
        case("gather_nothing", "(float[3,n] x, int64[0] i) => (float[0,n] y) { y = Gather(x, i) }",
             {"x": normal(3, 4), "i": whole(0)}),
        case("gather_middle_axis", "(float[a,b,c] x, int64[n,m] i) => (float[a,n,m,c] y) { y = Gather<axis = 1>(x, i) }",
             {"x": normal(2, 5, 3), "i": whole(2, 2, lo=-5, hi=5)}, {"x": normal(1, 1, 1), "i": whole(1, 3, hi=1)}),
        case("gather_of_a_slice_of_a_transpose",
             "(float[a,b,c] x, int64[n] i) => (float[c,n,a] y) <int64[1] s = {-1}, int64[1] e = {-1000}, int64[1] t = {-1}, int64[1] z = {1}>"
             "{ p = Transpose<perm = [2, 1, 0]>(x) q = Slice(p, s, e, z, t) y = Gather<axis = 1>(q, i) }",
             {"x": normal(2, 5, 3), "i": whole(4, lo=-5, hi=5)}),
        case("gather_elements_negative", "(float[3,n] x, int64[2,n] i) => (float[2,n] y) { y = GatherElements<axis = 0>(x, i) }",
             {"x": normal(3, 4), "i": whole(2, 4, lo=-3, hi=3)}),
        case("gather_nd_batch", "(float[2,3,n] x, int64[2,4,1] i) => (float[2,4,n] y) { y = GatherND<batch_dims = 1>(x, i) }",
             {"x": normal(2, 3, 4), "i": whole(2, 4, 1, lo=-3, hi=3)}),
    ]  # fmt: skip


CASES = [*_reshape(), *_slices(), *_pads(), *_expands(), *_gathers()]
