"""Indices, bounds and sizes in the data that fit nothing: an error that says so, or an answer, and never foreign memory.

Bounds of Slice are cut, as the specification has it. An index beyond its axis has no meaning in ONNX: it reads or writes an element at the
edge, since a check of every index in every kernel would cost more than the gather. Sizes that cannot be are errors of the run.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conformance.cases.case import Array, Case, parse
from conformance.many import build_many, plan_of
from conformance.run_many import run_many

FAR = 1 << 40
X = np.arange(12, dtype=np.float32).reshape(3, 4)
NAN = np.float32([[[[np.nan, np.inf], [-np.inf, 1e30], [-1e30, 0.0]]]])

# name: text, inputs of one run, whether it must end in an error
BAD: dict[str, tuple[str, dict[str, Array], bool]] = {
    "gather": ("(float[n,4] x, int64[2] i) => (float[2,4] y) { y = Gather(x, i) }", {"x": X, "i": np.array([FAR, -FAR])}, False),
    "gather_int32": ("(float[n,4] x, int32[2] i) => (float[2,4] y) { y = Gather(x, i) }", {"x": X, "i": np.int32([2**31 - 1, -(2**31)])}, False),
    "gather_elements": ("(float[n,4] x, int64[1,4] i) => (float[1,4] y) { y = GatherElements(x, i) }",
                        {"x": X, "i": np.array([[FAR, -FAR, 3, -4]])}, False),
    "gather_nd": ("(float[n,4] x, int64[2,2] i) => (float[2] y) { y = GatherND(x, i) }", {"x": X, "i": np.array([[FAR, 0], [0, -FAR]])}, False),
    "scatter_elements": ("(float[n,4] x, int64[1,4] i, float[1,4] u) => (float[n,4] y) { y = ScatterElements(x, i, u) }",
                         {"x": X, "i": np.array([[FAR, -FAR, 3, -4]]), "u": X[:1]}, False),
    "scatter_nd": ("(float[n,4] x, int64[2,2] i, float[2] u) => (float[n,4] y) { y = ScatterND<reduction = \"add\">(x, i, u) }",
                   {"x": X, "i": np.array([[FAR, 0], [0, -FAR]]), "u": X[0, :2]}, False),
    "one_hot": ("(int64[3] i, int64 d, float[2] v) => (float[3,d] y) { y = OneHot(i, d, v) }",
                {"i": np.array([FAR, -FAR, 1]), "d": np.array(4), "v": X[0, :2]}, False),
    "one_hot_depth": ("(int64[3] i, int64 d, float[2] v) => (float[3,d] y) { y = OneHot(i, d, v) }",
                      {"i": np.array([0, 1, 2]), "d": np.array(-4), "v": X[0, :2]}, True),
    "slice_step_of_zero": ("(float[n,4] x, int64[1] t) => (float[m,4] y) <int64[1] s = {0}, int64[1] e = {3}, int64[1] a = {0}> { y = Slice(x, s, e, a, t) }",
                           {"x": X, "t": np.array([0])}, False),
    "slice_far": ("(float[n,4] x, int64[1] s, int64[1] e, int64[1] t) => (float[m,4] y) <int64[1] a = {0}> { y = Slice(x, s, e, a, t) }",
                  {"x": X, "s": np.array([-(2**63)]), "e": np.array([2**63 - 1]), "t": np.array([-(2**63)])}, False),
    "slice_axis": ("(float[n,4] x, int64[1] a) => (float[m,k] y) <int64[1] s = {0}, int64[1] e = {1}> { y = Slice(x, s, e, a) }",
                   {"x": X, "a": np.array([FAR])}, False),
    "pad_cuts_more_than_there_is": ("(float[n,4] x, int64[4] p) => (float[m,k] y) { y = Pad(x, p) }", {"x": X, "p": np.array([-9, 0, 0, 0])}, True),
    "pad_far": ("(float[n,4] x, int64[4] p) => (float[m,k] y) { y = Pad(x, p) }", {"x": X, "p": np.array([FAR, FAR, 0, 0])}, True),
    "reshape": ("(float[n,4] x, int64[2] s) => (float[m,k] y) { y = Reshape(x, s) }", {"x": X, "s": np.array([5, -1])}, True),
    "reshape_negative": ("(float[n,4] x, int64[2] s) => (float[m,k] y) { y = Reshape(x, s) }", {"x": X, "s": np.array([-3, -4])}, True),
    "reshape_two_open": ("(float[n,4] x, int64[2] s) => (float[m,k] y) { y = Reshape(x, s) }", {"x": X, "s": np.array([-1, -1])}, True),
    "reshape_zero_with_open": ("(float[n,4] x, int64[2] s) => (float[m,k] y) { y = Reshape<allowzero = 1>(x, s) }", {"x": X, "s": np.array([0, -1])}, True),
    "expand": ("(float[n,4] x, int64[2] s) => (float[m,k] y) { y = Expand(x, s) }", {"x": X, "s": np.array([2, 4])}, True),
    "expand_negative": ("(float[n,4] x, int64[3] s) => (float[l,m,k] y) { y = Expand(x, s) }", {"x": X, "s": np.array([-2, 3, 4])}, True),
    "tile_negative": ("(float[n,4] x, int64[2] s) => (float[m,k] y) { y = Tile(x, s) }", {"x": X, "s": np.array([-1, 1])}, True),
    "fill_negative": ("(int64[2] s) => (float[m,k] y) { y = ConstantOfShape(s) }", {"s": np.array([-1, 1])}, True),
    "range_without_step": ("(int64 a, int64 b, int64 c) => (int64[m] y) { y = Range(a, b, c) }",
                           {"a": np.array(0), "b": np.array(5), "c": np.array(0)}, False),
    "top_k_beyond": ("(float[n,4] x, int64[1] k) => (float[n,m] v, int64[n,m] i) { v, i = TopK(x, k) }", {"x": X, "k": np.array([5])}, True),
    "top_k_negative": ("(float[n,4] x, int64[1] k) => (float[n,m] v, int64[n,m] i) { v, i = TopK(x, k) }", {"x": X, "k": np.array([-1])}, True),
    "split_by_data": ("(float[n,4] x, int64[2] s) => (float[a,4] y, float[b,4] z) { y, z = Split<axis = 0>(x, s) }", {"x": X, "s": np.array([9, 1])}, True),
    "resize_negative": ("(float[1,1,3,4] x, int64[4] s) => (float[a,b,c,d] y) { y = Resize(x, , , s) }",
                        {"x": X.reshape(1, 1, 3, 4), "s": np.array([1, 1, -6, 8])}, True),
    "reverse_sequence_beyond": ("(float[n,4] x, int64[4] l) => (float[n,4] y) { y = ReverseSequence(x, l) }",
                                {"x": X, "l": np.array([FAR, 9, -5, 1])}, False),
    "running_sum_axis": ("(float[n,4] x, int64 a) => (float[n,4] y) { y = CumSum(x, a) }", {"x": X, "a": np.array(FAR)}, False),
    "reduce_axis": ("(float[n,4] x, int64[1] a) => (float[m,k] y) { y = ReduceSum(x, a) }", {"x": X, "a": np.array([-FAR])}, False),
    "divide_by_zero": ("(int64[2] a, int64[2] b) => (int64[2] y, int64[2] z) { y = Div(a, b) z = Mod(a, b) }",
                       {"a": np.array([5, -(2**63)]), "b": np.array([0, -1])}, False),
    "divide_int32_by_zero": ("(int32[2] a, int32[2] b) => (int32[2] y, int32[2] z) { y = Div(a, b) z = Mod(a, b) }",
                             {"a": np.int32([5, -(2**31)]), "b": np.int32([0, -1])}, False),
    "grid_sample_not_a_number": ("(float[1,1,3,4] x, float[1,1,3,2] g) => (float[1,1,1,3] y) { y = GridSample(x, g) }",
                                 {"x": X.reshape(1, 1, 3, 4), "g": NAN}, False),
    "grid_sample_reflected": ("(float[1,1,3,4] x, float[1,1,3,2] g) => (float[1,1,1,3] y) { y = GridSample<padding_mode = \"reflection\">(x, g) }",
                              {"x": X.reshape(1, 1, 3, 4), "g": NAN}, False),
    "roi_align_batch": ("(float[1,1,3,4] x, float[2,4] r, int64[2] b) => (float[2,1,1,1] y) { y = RoiAlign(x, r, b) }",
                        {"x": X.reshape(1, 1, 3, 4), "r": np.float32([[np.nan, 0, np.inf, 2], [-1e30, -1e30, 1e30, 1e30]]), "b": np.array([FAR, -FAR])}, False),
    "unpool": ("(float[1,1,2,2] x, int64[1,1,2,2] i) => (float[1,1,4,4] y) { y = MaxUnpool<kernel_shape = [2, 2], strides = [2, 2]>(x, i) }",
               {"x": X[:2, :2].reshape(1, 1, 2, 2), "i": np.array([FAR, -FAR, 16, 3]).reshape(1, 1, 2, 2)}, False),
    "loop_trips": ("""(int64 n, float[2] x) => (float[2] y, float[k,2] z) <bool go = {1}> {
        y, z = Loop(n, go, x) <body = body (int64 i, bool c, float[2] s) => (bool d, float[2] t, float[2] u) {
            d = Identity(c) t = Add(s, s) u = Neg(s) }> }""", {"n": np.array(-FAR), "x": X[0, :2]}, False),
    "suppression_counts": ("""(float[1,3,4] b, float[1,1,3] s, int64 n) => (int64[m,3] y) { y = NonMaxSuppression(b, s, n) }""",
                           {"b": X.reshape(1, 3, 4), "s": np.float32([[[np.nan, 1, np.inf]]]), "n": np.array(FAR)}, False),
    "lstm_lengths": ("(float[n,2,4] x, float[1,16,4] w, float[1,16,4] r, int32[2] l) => (float[n,1,2,4] y) { y = LSTM<hidden_size = 4>(x, w, r, , l) }",
                          {"x": np.ones((3, 2, 4), np.float32), "w": np.ones((1, 16, 4), np.float32), "r": np.ones((1, 16, 4), np.float32),
                           "l": np.int32([2**31 - 1, -5])}, False),
    # sizes with different names that have to be equal, and a size below a constant
    "unequal_terms": ("(float[n] a, float[m] b) => (float[k] y) { y = Add(a, b) }", {"a": X[0, :3], "b": X[0]}, True),
    "one_beside_many": ("(float[n] a, float[m] b) => (float[k] y) { y = Add(a, b) }", {"a": X[0], "b": X[0, :1]}, True),
    "unequal_inner_sizes": ("(float[n,k] a, float[m,4] b) => (float[n,4] y) { y = MatMul(a, b) }", {"a": X, "b": X}, True),
    "unequal_parts": ("(float[n,4] a, float[m,4] b) => (float[n,8] y) { y = Concat<axis = 1>(a, b) }", {"a": X, "b": X[:2]}, True),
    "shape_of_another": ("(float[n,4] a, float[m,3] b) => (float[m,3] y) { s = Shape(b) y = Reshape(a, s) }", {"a": X, "b": X[:, :3]}, True),
    "expand_to_another": ("(float[n,4] a, float[m,4] b) => (float[m,4] y) { s = Shape(b) y = Expand(a, s) }", {"a": X[:2], "b": X}, True),
    "top_k_of_a_symbol": ("(float[n] x) => (float[5] v, int64[5] i) <int64[1] k = {5}> { v, i = TopK(x, k) }", {"x": X[0]}, True),
}  # fmt: skip


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    """What each model's run said: none of the answers is the one that is expected here, so that every answer is told."""
    cases, plans = [], []
    for name, (text, feeds, _) in BAD.items():
        model = parse(text)
        given = [feeds[i.name] for i in model.graph.input]
        cases.append(Case(name, model, [(given, [None] * len(model.graph.output))], 0, 0, {}))
        plans.append(plan_of(model, f"t{len(plans)}", f"{name}.onnx"))
    folder: Path = tmp_path_factory.mktemp("bad")
    return run_many(build_many(plans, folder), cases)


@pytest.mark.parametrize("name", BAD)
def test_bad_data(name: str, outcomes: dict[str, str | None]) -> None:
    outcome = outcomes[name]
    assert outcome is not None
    error, answer = outcome.startswith("error: error[R0"), outcome.endswith(": a value instead of none")
    assert error or (answer and not BAD[name][2]), outcome
