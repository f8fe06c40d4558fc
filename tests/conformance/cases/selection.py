"""TopK and scattering: ties, counts beyond what fits a block, counts that are computed, duplicate and negative indices."""

from __future__ import annotations

import itertools

import numpy as np
from conformance.cases.case import (
    Array,
    Case,
    Expect,
    case,
    normal,
    onnxruntime_gives,
    parse,
    specification_gives,
    whole,
)

REDUCTIONS = ("none", "add", "mul", "max", "min")


def _top(x: Array, k: int, axis: int, largest: bool) -> tuple[Array, Array]:
    """Sorted; of equal elements the one with the lower index first."""
    keys = -x.astype(np.float64) if largest else x.astype(np.float64)
    order = np.argsort(keys, axis=axis, kind="stable")
    index = np.take(order, np.arange(k), axis=axis)
    return np.take_along_axis(x, index, axis), index


def _topk(name: str, x: Array, k: int, axis: int = -1, largest: int = 1, symbolic: bool = False) -> Case:
    kind = {"float32": "float", "float16": "float16", "float64": "double"}.get(x.dtype.name, x.dtype.name)
    dims = "abcd"[: x.ndim] if symbolic else x.shape
    out = ",".join(f"o{i}" for i in range(x.ndim))
    text = f"""({kind}[{",".join(map(str, dims))}] x) => ({kind}[{out}] v, int64[{out}] i) <int64[1] k = {{{k}}}> {{
        v, i = TopK<axis = {axis}, largest = {largest}>(x, k) }}"""
    return case(f"topk_{name}", text, {"x": x}, expect=lambda x: _top(x, k, axis, bool(largest)))


def _topks() -> list[Case]:
    ties = whole(3, 40, hi=4).astype(np.float32)
    computed = """(float[n,m] x) => (float[n,k] v, int64[n,k] i) <int64[1] one = {1}, int64[1] two = {2}, int64[1] end = {2}> {
        s = Shape(x) m = Slice(s, one, end) k = Div(m, two) v, i = TopK(x, k) }"""
    given = "(float[n,m] x, int64[1] k) => (float[n,a] v, int64[n,a] i) { v, i = TopK(x, k) }"
    smaller = """(float[m] x) => (float[a] v, int64[a] i) <int64[1] most = {100}> {
        s = Shape(x) k = Min(s, most) v, i = TopK(x, k) }"""

    def by_count(x: Array, k: Array) -> tuple[Array, Array]:
        return _top(x, int(k[0]), -1, True)

    return [
        _topk("above_4096", normal(2, 6000), 5000),
        _topk("of_all_above_4096", normal(1, 4500), 4500, largest=0),
        _topk("above_4096_along_axis_0", normal(5000, 2), 4200, axis=0),
        _topk("ties", ties, 17),
        _topk("ties_smallest", ties, 17, largest=0),
        _topk("all_equal", np.zeros((2, 70), np.float32), 5),
        _topk("vector", normal(11), 3, axis=0),
        _topk("vector_symbolic", normal(11), 3, axis=0, symbolic=True),
        _topk("vector_of_one", normal(1), 1, axis=0),
        _topk("none", normal(2, 3), 0),
        _topk("middle_axis", normal(2, 9, 3), 4, axis=1),
        _topk("negative_axis_symbolic", normal(2, 9, 3), 2, axis=-2, symbolic=True),
        _topk("int64_beyond_doubles", np.array([2**62, 2**62 - 256, -(2**62), 0, 5]), 3),
        _topk("uint8", whole(2, 30, hi=256, dtype=np.uint8), 6),
        _topk("int8_smallest", whole(2, 30, lo=-128, hi=128, dtype=np.int8), 6, largest=0),
        _topk("half", normal(2, 30, dtype=np.float16), 6),
        _topk("double", normal(2, 30, dtype=np.float64), 6),
        _topk("infinities", np.float32([[np.inf, -np.inf, 0, np.inf, 1, -np.inf]]), 5),
        case("topk_computed", computed, {"x": normal(2, 9)}, {"x": normal(1, 4)}, expect=lambda x: _top(x, x.shape[1] // 2, -1, True)),
        case("topk_given", given, *({"x": normal(2, 9), "k": np.array([k])} for k in (1, 9, 4)), expect=by_count),
        case("topk_of_at_most", smaller, {"x": normal(250)}, {"x": normal(7)}, expect=lambda x: _top(x, min(len(x), 100), -1, True)),
    ]  # fmt: skip


COMBINE = {
    "none": lambda old, new: new, "add": lambda old, new: old + new, "mul": lambda old, new: old * new, "max": max, "min": min,
}  # fmt: skip


def _scatter_elements(x: Array, i: Array, u: Array, axis: int, reduction: str) -> Array:
    y = x.copy()
    for place in np.ndindex(i.shape):
        at = list(place)
        at[axis] = int(i[place])
        y[tuple(at)] = COMBINE[reduction](y[tuple(at)], u[place])
    return y


def _scatter_nd(x: Array, i: Array, u: Array, reduction: str) -> Array:
    y = x.copy()
    for place in np.ndindex(i.shape[:-1]):
        at = tuple(i[place].tolist())
        y[at] = np.vectorize(COMBINE[reduction], otypes=[y.dtype])(y[at], u[place]) if y[at].size else y[at]
    return y


def _scatters() -> list[Case]:
    cases = []
    for reduction, (dtype, kind) in itertools.product(REDUCTIONS, ((np.float32, "float"), (np.int64, "int64"), (np.int8, "int8"))):
        if dtype == np.int8 and reduction in ("mul", "none"):
            continue
        x, u = (normal(5, 4, seed=s, scale=4).astype(dtype) for s in (0, 1))
        label = f"{reduction}_{kind}"

        def elements(x: Array, i: Array, u: Array, axis: int = 0, reduction: str = reduction) -> Array:
            return _scatter_elements(x, i, u, axis, reduction)

        def rows(x: Array, i: Array, u: Array, reduction: str = reduction) -> Array:
            return _scatter_nd(x, i, u, reduction)

        node = f'{{ y = ScatterElements<axis = 0, reduction = "{reduction}">(x, i, u) }}'
        text = f"({kind}[a,b] x, int64[c,d] i, {kind}[c,d] u) => ({kind}[a,b] y) {node}"
        unique = np.array([[4, -1, 0, -5], [1, 0, 3, 2], [-3, 1, -4, 0]])  # no place twice in a column
        twice = whole(3, 4, lo=-5, hi=5)
        many = whole(9, 4, lo=-5, hi=5)  # more indices than rows
        more = normal(9, 4, seed=2, scale=4).astype(dtype)
        sets = [{"x": x, "i": unique, "u": u[:3]}]
        if reduction != "none":  # the order of equal places is not said
            sets += [{"x": x, "i": twice, "u": u[:3]}, {"x": x, "i": many, "u": more}]
        cases.append(case(f"scatter_elements_{label}", text, *sets, expect=elements, scale=1e-5))
        node = f'{{ y = ScatterND<reduction = "{reduction}">(x, i, u) }}'
        text = f"({kind}[a,b] x, int64[n,1] i, {kind}[n,b] u) => ({kind}[a,b] y) {node}"
        sets = [{"x": x, "i": np.array([[4], [-4], [0]]), "u": u[:3]}]
        if reduction != "none":
            sets += [{"x": x, "i": np.array([[1], [-4], [1]]), "u": u[:3]}, {"x": x, "i": many[:, :1], "u": more}]
        cases.append(case(f"scatter_nd_{label}", text, *sets, expect=rows, scale=1e-5))
        text = f"({kind}[a,b] x, int64[n,2] i, {kind}[n] u) => ({kind}[a,b] y) {node}"
        sets = [{"x": x, "i": np.array([[4, 0], [-4, -1], [0, 1]]), "u": u[:3, 0]}]
        if reduction != "none":
            sets.append({"x": x, "i": np.stack([many[:, 0], whole(9, lo=-4, hi=4)], 1), "u": more[:, 0]})
        cases.append(case(f"scatter_nd_places_{label}", text, *sets, expect=rows, scale=1e-5))
    for axis in (-1, 1):
        text = f"(float[a,b] x, int64[a,d] i, float[a,d] u) => (float[a,b] y) {{ y = ScatterElements<axis = {axis}, reduction = \"add\">(x, i, u) }}"
        run = {"x": normal(3, 5), "i": whole(3, 8, lo=-5, hi=5), "u": normal(3, 8)}
        label = f"scatter_elements_axis_{'minus_1' if axis < 0 else 1}"
        cases.append(case(label, text, run, expect=lambda x, i, u: _scatter_elements(x, i, u, 1, "add")))
    old = "(float[5] x, int64[3] i, float[3] u) => (float[5] y) { y = Scatter(x, i, u) }"
    cases += [
        case("scatter_of_opset_9", old, {"x": normal(5), "i": np.array([1, 4, 0]), "u": normal(3)}, opset=9),
        case(
            "scatter_nothing",
            "(float[5] x, int64[n,1] i, float[n] u) => (float[5] y) { y = ScatterND(x, i, u) }",
            {"x": normal(5), "i": whole(0, 1), "u": normal(0)},
            {"x": normal(5), "i": np.array([[2]]), "u": normal(1)},
            oracle=specification_gives,
            dims={"n": (0, 8)},
        ),
        case(
            "scatter_kept_input",
            "(float[5] x, int64[2,1] i, float[2] u) => (float[5] y, float[5] z) { y = ScatterND(x, i, u) z = Neg(x) }",
            {"x": normal(5), "i": np.array([[2], [0]]), "u": normal(2)},
        ),
    ]
    return cases


def _found() -> list[Case]:
    """Results that only the data counts, found in several parts that are joined."""
    many, few = whole(70, 93, lo=-1, hi=2), np.zeros((70, 93), np.int64)
    few[69, 92] = 1
    rows = {"x": np.repeat(many, 40, axis=0)}
    boxes = np.sort(normal(2, 60, 4, scale=2).reshape(2, 60, 2, 2), axis=2).reshape(2, 60, 4)
    scores = normal(2, 3, 60, seed=1)
    text = """(float[b,n,4] boxes, float[b,c,n] scores, float least) => (int64[k,3] y)
        <int64 most = {{{most}}}, float overlap = {{0.3}}> {{ y = NonMaxSuppression(boxes, scores, most, overlap, least) }}"""
    runs = [{"boxes": boxes, "scores": scores, "least": np.array(low, np.float32)} for low in (-9, 0.5, 9)]
    centers = """(float[1,60,4] boxes, float[1,2,60] scores, float least) => (int64[k,3] y) <int64 most = {60}, float overlap = {0.3}> {
        y = NonMaxSuppression<center_point_box = 1>(boxes, scores, most, overlap, least) }"""
    none = {"boxes": boxes, "scores": scores[:, :0], "least": np.array(0, np.float32)}
    return [
        case("nonzero_of_many", "(int64[70,93] x) => (int64[2,k] y) { y = NonZero(x) }", {"x": many}, {"x": few}, {"x": 0 * few}),
        case("nonzero_of_many_symbolic", "(int64[n,m] x) => (int64[2,k] y) { y = NonZero(x) }",
             rows, {"x": few}, {"x": many[:1, :1]}, {"x": many[:0]}, dims={"n": (0, 4000)}),
        case("nonzero_of_transposed", "(int64[93,70] x) => (int64[2,k] y) { t = Transpose(x) y = NonZero(t) }", {"x": many.T.copy()}),
        case("nms_of_classes", text.format(most=7), *runs),
        case("nms_of_sizes_below_zero", centers, *_turned()),
        case("nms_of_no_class", text.format(most=60), runs[0], none, dims={"c": (0, 90)}, expect=_boxes_kept(text.format(most=60))),
    ]  # fmt: skip


def _turned() -> list[dict[str, Array]]:
    """Centres with widths or heights below zero, as a head without an exponential gives them: none, some and all."""
    boxes, scores = normal(1, 60, 4) * 0.5, normal(1, 2, 60)
    sizes = np.abs(boxes), boxes, -np.abs(boxes)
    return [{"boxes": b.astype(np.float32), "scores": scores, "least": np.array(-9, np.float32)} for b in sizes]


def _boxes_kept(text: str) -> Expect:
    """ONNX Runtime refuses to search no class."""
    search = onnxruntime_gives(parse(text))

    def expect(**feeds: Array) -> Array:
        return search(**feeds)[0] if feeds["scores"].size else np.zeros((0, 3), np.int64)

    return expect


CASES = [*_topks(), *_scatters(), *_found()]
