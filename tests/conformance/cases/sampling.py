"""Resize in every mode and with every coordinate transformation, GridSample in five dimensions, rare pools."""

from __future__ import annotations

import itertools

import numpy as np
from conformance.cases.case import Array, Case, case, normal, onnxruntime_gives, specification_gives

COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize",
)  # fmt: skip
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
# how much of [1, 2, 5, 6]: a smaller one, a larger one, one of each, one row
SIZES = {"down": (3, 4), "up": (9, 13), "mixed": (7, 4), "one": (1, 11)}
SCALES = {
    "down": (0.5, 0.75),
    "up": (1.75, 2.25),
    "mixed": (1.5, 0.5),
    "quarter": (0.25, 3.0),
}  # of few bits, as is the region


def _resizes(name: str, settings: str, lead: str = "", source: str = "x", opset: int = 19) -> Case:
    """All sizes and scales of a setting (attributes, without the braces) in one model, as outputs ``y0`` ..."""
    constants = ["float[8] roi = {0, 0, 0.125, 0.25, 1, 1, 0.75, 0.875}"]
    nodes, outputs = [lead], []
    sizes = SIZES if opset >= 13 else {}  # until then scales were no optional input
    for n, (h, w) in enumerate(sizes.values()):
        constants.append(f"int64[4] z{n} = {{1, 2, {h}, {w}}}")
        nodes.append(f"y{n} = Resize<{settings}>({source}, roi, , z{n})")
        outputs.append(f"float[1,2,{h},{w}] y{n}")
    for n, (h, w) in enumerate(SCALES.values(), len(sizes)):
        constants.append(f"float[4] s{n} = {{1, 1, {h}, {w}}}")
        nodes.append(f"y{n} = Resize<{settings}>({source}, roi, s{n})")
        outputs.append(f"float[1,2,h{n},w{n}] y{n}")
    shape = "1,5,6,2" if lead else "1,2,5,6"
    text = f"(float[{shape}] x) => ({', '.join(outputs)}) <{', '.join(constants)}> {{ {' '.join(nodes)} }}"
    x = normal(*map(int, shape.split(",")))
    # onnx.reference takes other sizes than the text of the specification has for these two
    oracle = onnxruntime_gives if "pytorch_half_pixel" in name or "_tf_" in name else specification_gives
    return case(name, text, {"x": x}, oracle=oracle, opset=opset)


def _every_resize() -> list[Case]:
    cases = []
    for mode, coordinates in itertools.product(("nearest", "linear", "cubic"), COORDINATES):
        settings = f'mode = "{mode}", coordinate_transformation_mode = "{coordinates}", extrapolation_value = 7.0'
        if mode == "nearest":
            cases += [
                _resizes(f"resize_nearest_{r}_{coordinates}", f'{settings}, nearest_mode = "{r}"') for r in NEAREST
            ]
        else:
            cases.append(_resizes(f"resize_{mode}_{coordinates}", settings))
            if coordinates != "tf_crop_and_resize":
                cases.append(_resizes(f"resize_{mode}_{coordinates}_antialias", f"{settings}, antialias = 1"))
    cases += [
        _resizes(f"resize_nearest_{r}_tf_half_pixel", f'coordinate_transformation_mode = "tf_half_pixel_for_nn", nearest_mode = "{r}"', opset=12)
        for r in NEAREST
    ]
    rows = """(float[1,1,5,6] x) => (float[1,1,a,b] y) <float[0] roi = {}, float[4] s = {1, 1, 1.7, 0.6}> {
        y = Resize<coordinate_transformation_mode = "tf_half_pixel_for_nn", nearest_mode = "floor">(x, roi, s) }"""
    picked = np.float32([0, 0, 6, 12, 12, 18, 18, 24])[:, None] + np.float32([0, 2, 4])
    x = np.arange(30, dtype=np.float32).reshape(1, 1, 5, 6)
    cases.append(case("resize_tf_half_pixel_of_opset_11", rows, {"x": x}, expect=lambda x: picked[None, None], opset=11))
    turned = "t = Transpose<perm = [0, 3, 1, 2]>(x)"
    for mode, antialias in itertools.product(("nearest", "linear", "cubic"), (0, 1)):
        if mode != "nearest" or not antialias:
            settings = f'mode = "{mode}", antialias = {antialias}'
            cases.append(_resizes(f"resize_after_transpose_{mode}_{antialias}", settings, turned, "t"))
    for policy in ("not_larger", "not_smaller"):
        text = f"""(float[1,2,5,6] x) => (float[1,2,a,b] y) <int64[2] z = {{7, 4}}> {{
            y = Resize<mode = "linear", axes = [2, 3], keep_aspect_ratio_policy = "{policy}">(x, , , z) }}"""
        cases.append(case(f"resize_{policy}", text, {"x": normal(1, 2, 5, 6)}, oracle=specification_gives, opset=19))
    return cases


def _floor_of_float32() -> list[Case]:
    """5 * 1.8 is 9 in float32 and less in exact arithmetic on float32(1.8); exporters spell sizes this way."""
    runs = ({"x": normal(1, 1, 5, 7)}, {"x": normal(1, 1, 10, 3)})
    fixed = "(float[1,1,5,7] x) => (float[1,1,a,b] y) <float[4] s = {1, 1, 1.8, 2.2}> { y = Resize(x, , s) }"
    symbolic = "(float[1,1,h,w] x) => (float[1,1,a,b] y) <float[4] s = {1, 1, 1.8, 2.2}> { y = Resize(x, , s) }"
    spelled = """(float[1,1,h,w] x) => (float[1,1,a,b] y) <float[4] s = {1, 1, 1.8, 2.2}> {
        z = Shape(x) f = Cast<to = 1>(z) m = Mul(f, s) g = Floor(m) i = Cast<to = 7>(g) y = Resize(x, , , i) }"""
    return [
        case("resize_scale_of_many_bits", fixed, runs[0]),
        case("resize_scale_of_many_bits_symbolic", symbolic, *runs),
        case("resize_scale_of_many_bits_spelled", spelled, *runs),
    ]


def _resizes_of_symbols() -> list[Case]:
    runs = ({"x": normal(1, 3, 5, 6)}, {"x": normal(2, 3, 4, 9)})
    cases = []
    for mode in ("nearest", "linear", "cubic"):
        by_scales = f"""(float[n,3,h,w] x) => (float[n,3,a,b] y) <float[4] s = {{1, 1, 2, 1.5}}> {{
            y = Resize<mode = "{mode}">(x, , s) }}"""
        by_sizes = f"""(float[n,3,h,w] x) => (float[n,3,a,b] y) <int64[2] z = {{7, 4}}, int64[1] i = {{0}}, int64[1] j = {{2}}> {{
            s = Shape(x) f = Slice(s, i, j) t = Concat<axis = 0>(f, z) y = Resize<mode = "{mode}">(x, , , t) }}"""
        like = f"""(float[n,3,h,w] x, float[n,3,a,b] l) => (float[n,3,a,b] y) {{
            t = Shape(l) r = Resize<mode = "{mode}">(x, , , t) y = Add(r, l) }}"""
        weights = ", ".join(str(i / 8) for i in range(-12, 12))
        conv = f"""(float[n,3,h,w] x) => (float[n,8,a,b] y) <float[8,3,1,1] k = {{{weights}}}, float[4] s = {{1, 1, 2, 2}}> {{
            c = Conv(x, k) y = Resize<mode = "{mode}">(c, , s) }}"""
        cases += [
            case(f"resize_{mode}_symbolic_by_scales", by_scales, *runs, oracle=specification_gives),
            case(f"resize_{mode}_symbolic_by_sizes", by_sizes, *runs, oracle=specification_gives),
            case(
                f"resize_{mode}_like_another",
                like,
                {"x": normal(1, 3, 5, 6), "l": normal(1, 3, 8, 3)},
                oracle=specification_gives,
            ),
            case(f"resize_{mode}_after_convolution", conv, *runs, oracle=specification_gives),
        ]
    return cases


def _former_resizes() -> list[Case]:
    """Upsample of opsets 7 and 9 and Resize of opset 10, which have neither coordinates nor a rounding to choose."""
    factors = {"up": "1, 1, 2, 3", "by_fractions": "1, 1, 1.6, 2.5", "same": "1, 1, 1, 1.5"}
    less = {"down": "1, 1, 0.6, 0.6", "mixed": "1, 1, 0.7, 1.3", "half": "1, 1, 0.5, 0.25", "third": "1, 1, 0.34, 3"}
    x = normal(1, 2, 5, 8)
    cases = []
    for mode in ("nearest", "linear"):
        for name, scales in factors.items():
            attribute = f'(float[1,2,5,8] x) => (float[1,2,a,b] y) {{ y = Upsample<mode = "{mode}", scales = [{scales.replace("1,", "1.0,")}]>(x) }}'
            given = f'(float[1,2,5,8] x) => (float[1,2,a,b] y) <float[4] s = {{{scales}}}> {{ y = Upsample<mode = "{mode}">(x, s) }}'
            cases.append(case(f"upsample_7_{mode}_{name}", attribute, {"x": x}, opset=7))
            cases.append(case(f"upsample_9_{mode}_{name}", given, {"x": x}, opset=9))
        for name, scales in (factors | less).items():
            text = f'(float[1,2,5,8] x) => (float[1,2,a,b] y) <float[4] s = {{{scales}}}> {{ y = Resize<mode = "{mode}">(x, s) }}'
            cases.append(case(f"resize_10_{mode}_{name}", text, {"x": x}, opset=10))
        late = f'(float[1,2,5,8] x, float[4] s) => (float[c,d,a,b] y) {{ y = Resize<mode = "{mode}">(x, s) }}'
        runs = [{"x": x, "s": np.array([1, 1, *s], np.float32)} for s in ((0.6, 0.6), (1.3, 0.5), (2, 2))]
        cases.append(case(f"resize_10_{mode}_by_data", late, *runs, opset=10))
    for rounding in NEAREST:
        settings = f'coordinate_transformation_mode = "tf_half_pixel_for_nn", nearest_mode = "{rounding}"'
        for name, scales in less.items():
            text = f"(float[1,2,5,8] x) => (float[1,2,a,b] y) <float[0] r = {{}}, float[4] s = {{{scales}}}> {{ y = Resize<{settings}>(x, r, s) }}"
            cases.append(case(f"resize_11_tf_half_pixel_{rounding}_{name}", text, {"x": x}, opset=11))
    return cases


def _keys(d: Array, a: float = -0.75) -> Array:
    """The cubic's weight at distance ``d``."""
    return np.where(
        d <= 1, ((a + 2) * d - (a + 3)) * d * d + 1, np.where(d < 2, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a, 0.0)
    )


def _grid_sample(x: Array, g: Array, mode: str, padding: str, align: int) -> Array:
    """GridSample of space (D, H, W) in float64, as the specification has it: a cubic's taps are folded each, as in PyTorch and
    ONNX Runtime (onnx.reference clamps the coordinate before)."""
    n, c, *space = x.shape
    size = np.array(space[::-1], np.float64)  # of x, y, z
    at = g.astype(np.float64)
    at = (at + 1) / 2 * (size - 1) if align else ((at + 1) * size - 1) / 2
    low, high = (0 * size, size - 1) if align else (0 * size - 0.5, size - 0.5)

    def folded(at: Array) -> Array:
        if padding == "reflection":
            span = np.where(high > low, high - low, 1)
            off = np.abs(at - low)
            turns, rest = np.floor(off / span), np.mod(off, span)
            at = np.where(high > low, np.where(turns % 2 == 0, low + rest, high - rest), low)
        return at if padding == "zeros" else np.clip(at, 0, size - 1)

    at = at if mode == "cubic" else folded(at)
    out = np.zeros((n, c, *g.shape[1:-1]))
    base = np.rint(at) if mode == "nearest" else np.floor(at)
    taps = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}[mode]
    for corner in itertools.product(taps, repeat=len(space)):
        place = base + np.array(corner)
        d = np.abs(at - place)
        each = {"nearest": 0 * d + 1, "linear": 1 - d, "cubic": _keys(d)}[mode]
        if mode == "cubic":
            place = folded(place)
        inside = np.all((place >= 0) & (place <= size - 1), axis=-1)
        index = np.rint(np.clip(place, 0, size - 1)).astype(int)
        for i in range(n):
            value = x[i][(slice(None), *(index[i, ..., a] for a in reversed(range(len(space)))))]
            out[i] += value * (np.prod(each, axis=-1) * inside)[i]
    return out


def _grid_samples() -> list[Case]:
    x, rng = normal(1, 1, 512, 32, 32), np.random.default_rng(1)
    grid = (rng.uniform(-1.2, 1.2, (1, 8, 32, 32, 3))).astype(np.float32)
    cases = []
    for mode, padding, align in itertools.product(
        ("linear", "nearest", "cubic"), ("zeros", "border", "reflection"), (0, 1)
    ):
        node = f'{{ y = GridSample<mode = "{mode}", padding_mode = "{padding}", align_corners = {align}>(x, g) }}'
        name = f"grid_sample_{mode}_{padding}_{'corners' if align else 'centers'}"

        def expect(x: Array, g: Array, mode: str = mode, padding: str = padding, align: int = align) -> Array:
            return _grid_sample(x, g, mode, padding, align)

        deep = f"(float[1,1,512,32,32] x, float[1,8,32,32,3] g) => (float[1,1,8,32,32] y) {node}"
        flat = f"(float[n,c,h,w] x, float[n,p,q,2] g) => (float[n,c,p,q] y) {node}"
        run = {"x": normal(2, 3, 5, 7), "g": rng.uniform(-1.5, 1.5, (2, 4, 3, 2)).astype(np.float32)}
        cases.append(case(f"{name}_symbolic", flat, run, expect=expect, scale=1e-5))
        if mode == "cubic":  # of images alone; its name in opset 16 is bicubic, and one row or column is all border
            old = flat.replace("cubic", "bicubic")
            thin = {"x": normal(1, 2, 1, 4), "g": rng.uniform(-2.5, 2.5, (1, 5, 6, 2)).astype(np.float32)}
            cases.append(case(f"{name}_16", old, run, thin, expect=expect, scale=1e-5, opset=16))
        else:  # a coordinate of hundreds has few bits left behind its point
            cases.append(case(f"{name}_deep", deep, {"x": x, "g": grid}, expect=expect, scale=1e-4))
    return cases


def _pools() -> list[Case]:
    """Pools that no node test of ONNX has."""
    rois = np.array([[0, 0, 0, 7, 5], [1, 2, 1, 6, 4], [0, 3, 3, 3, 3]], np.float32)
    pool = "(float[n,3,6,9] x, float[r,5] rois) => (float[r,3,2,3] y) { y = MaxRoiPool<pooled_shape = [2, 3], spatial_scale = 0.75>(x, rois) }"
    x = normal(2, 3, 6, 9)
    lengths = [
        case(
            f"global_lp_pool_{p}",
            f"(float[n,3,h,w] x) => (float[n,3,1,1] y) {{ y = GlobalLpPool<p = {p}>(x) }}",
            {"x": x},
        )
        for p in (1, 2, 3)
    ]
    return [*lengths, case("max_roi_pool", pool, {"x": x, "rois": rois})]


CASES = [
    *_every_resize(),
    *_floor_of_float32(),
    *_resizes_of_symbols(),
    *_former_resizes(),
    *_grid_samples(),
    *_pools(),
]
