"""Einsum, products and transposed convolutions in their unusual forms."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from conformance.cases.case import Array, Case, case, normal

EINSUMS: tuple[tuple[str, str, tuple[tuple[int, ...], ...]], ...] = (
    ("ellipsis_products", "...nd,...md->...nm", ((2, 3, 4, 5), (2, 3, 6, 5))),
    ("ellipsis_products_of_matrices", "...nd,...md->...nm", ((4, 5), (6, 5))),
    ("ellipsis_products_broadcast", "...nd,...md->...nm", ((3, 4, 5), (2, 1, 6, 5))),
    ("summed_before_product", "...ik,...j->ij", ((2, 4, 5), (2, 3))),
    ("summed_before_product_without", "...ik,...j->ij", ((4, 5), (3,))),
    ("scalar_ellipsis", "...,...->...", ((), ())),
    ("elementwise_ellipsis", "...,...->...", ((2, 3), (2, 3))),
    ("elementwise_ellipsis_broadcast", "...,...->...", ((2, 3), (3,))),
    ("dot_of_ellipses", "...,...->", ((2, 3), (2, 3))),
    ("implicit", "ij,jk", ((3, 4), (4, 5))),
    ("implicit_order", "ba", ((3, 4),)),
    ("trace", "ii->", ((4, 4),)),
    ("diagonal", "ii->i", ((4, 4),)),
    ("batch_diagonal", "...ii->...i", ((3, 4, 4),)),
    ("diagonals_multiplied", "ii,ij->j", ((4, 4), (4, 5))),
    ("sum", "ij->", ((3, 4),)),
    ("sum_of_rows", "...j->...", ((2, 3, 4),)),
    ("outer", "i,j->ij", ((3,), (4,))),
    ("outer_reversed", "i,j->ji", ((3,), (4,))),
    ("bilinear", "bn,anm,bm->ba", ((2, 3), (4, 3, 5), (2, 5))),
    ("three", "ij,jk,kl->il", ((2, 3), (3, 4), (4, 5))),
    ("attention", "bhid,bhjd->bhij", ((2, 3, 4, 5), (2, 3, 6, 5))),
    ("attention_values", "bhij,bjhd->bihd", ((2, 3, 4, 6), (2, 6, 3, 5))),
    ("heads", "bsh,hnd->bnsd", ((2, 3, 4), (4, 2, 5))),
    ("hadamard_sum", "ij,ij->j", ((3, 4), (3, 4))),
    ("size_one_broadcast", "ij,jk->ik", ((3, 1), (4, 5))),
    ("reduce_one_side", "ij,k->ik", ((3, 4), (5,))),
    ("two_contracted", "abcd,cdef->abef", ((2, 3, 4, 5), (4, 5, 2, 3))),
    ("transposed_out", "bij,bjk->kib", ((2, 3, 4), (2, 4, 5))),
    ("with_spaces", " i j , j k -> i k ", ((3, 4), (4, 5))),
)  # fmt: skip


# numpy does not sum over an ellipsis that the result lacks
SPELLED = {
    "summed_before_product": "zik,zj->ij",
    "summed_before_product_without": "ik,j->ij",
    "dot_of_ellipses": "yz,yz->",
}


def _einsums() -> list[Case]:
    cases = []
    for name, equation, shapes in EINSUMS:
        inputs = {f"x{n}": normal(*shape, seed=n) for n, shape in enumerate(shapes)}
        result = np.einsum(SPELLED.get(name, equation.replace(" ", "")), *(x.astype(np.float64) for x in inputs.values()))

        def expect(result: Array = result, **_: Array) -> Array:
            return np.asarray(result)

        for symbolic in (False, True):
            declared = []
            for n, (term, shape) in enumerate(zip(equation.replace(" ", "").split("->")[0].split(","), shapes)):
                dims = _symbols(term, shape) if symbolic else [str(s) for s in shape]
                declared.append(f"{_kind(dims)} x{n}")
            out = _kind([f"o{i}" for i in range(result.ndim)])
            node = f'y = Einsum<equation = "{equation}">({", ".join(inputs)})'
            text = f"({', '.join(declared)}) => ({out} y) {{ {node} }}"
            cases.append(case(f"einsum_{name}{'_symbolic' if symbolic else ''}", text, inputs, expect=expect))
    return cases


def _kind(dims: Sequence[object]) -> str:
    return f"float[{', '.join(map(str, dims))}]" if dims else "float"


def _symbols(term: str, shape: Sequence[int]) -> list[str]:
    """A symbol for each letter; ones stay ones, since a symbol does not say that it broadcasts."""
    letters = term.replace("...", "." * (len(shape) - len(term.replace("...", ""))))
    return [str(s) if s == 1 or c == "." else f"d_{c}" for c, s in zip(letters, shape)]


TRANSPOSED: tuple[tuple[str, dict[str, Any], tuple[int, ...], tuple[int, ...]], ...] = (  # attributes, shapes of x and w
    ("output_padding", {"strides": [3, 2], "output_padding": [2, 1]}, (1, 2, 4, 5), (2, 3, 3, 3)),
    ("output_padding_of_stride_1_dilated", {"dilations": [2, 2], "output_padding": [1, 1]}, (1, 2, 4, 5), (2, 3, 3, 3)),
    ("output_shape", {"strides": [3, 2], "output_shape": [10, 8]}, (1, 1, 3, 3), (1, 2, 3, 3)),
    ("output_shape_odd", {"strides": [2, 2], "output_shape": [7, 9]}, (2, 2, 4, 5), (2, 2, 4, 3)),
    ("same_upper", {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, (1, 2, 4, 5), (2, 3, 3, 3)),
    ("same_lower", {"auto_pad": "SAME_LOWER", "strides": [2, 2]}, (1, 2, 4, 5), (2, 3, 4, 3)),
    ("valid", {"auto_pad": "VALID", "strides": [2, 3]}, (1, 2, 4, 5), (2, 3, 3, 2)),
    ("asymmetric_pads", {"pads": [1, 0, 2, 1], "strides": [2, 2]}, (1, 2, 4, 5), (2, 3, 4, 3)),
    ("dilation_3_1_stride_2_1", {"dilations": [3, 1], "strides": [2, 1]}, (1, 2, 4, 5), (2, 3, 3, 3)),
    ("dilation_3_1_stride_2_1_padded", {"dilations": [3, 1], "strides": [2, 1], "pads": [2, 1, 3, 0]}, (1, 2, 4, 5), (2, 3, 3, 3)),
    ("one_dimension", {"strides": [2], "pads": [1, 1], "output_padding": [1]}, (2, 3, 7), (3, 4, 3)),
    ("one_dimension_dilated", {"strides": [3], "dilations": [2]}, (2, 3, 7), (3, 4, 4)),
    ("groups", {"group": 2, "strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}, (1, 4, 4, 5), (4, 3, 3, 3)),
    ("depthwise", {"group": 4, "strides": [2, 2], "pads": [1, 1, 1, 1]}, (1, 4, 4, 5), (4, 1, 4, 4)),
    ("three_dimensions", {"strides": [2, 1, 2], "pads": [1, 0, 1, 0, 1, 1]}, (1, 2, 3, 4, 3), (2, 3, 3, 2, 3)),
    ("kernel_smaller_than_stride", {"strides": [4, 4]}, (1, 2, 3, 3), (2, 2, 2, 3)),
    ("kernel_of_one", {"strides": [2, 2], "output_padding": [1, 1]}, (1, 2, 3, 3), (2, 5, 1, 1)),
    ("kernel_is_stride", {"strides": [2, 2]}, (1, 8, 5, 7), (8, 8, 2, 2)),
)  # fmt: skip


def _conv_transpose(x: Array, w: Array, b: Array | None, a: dict[str, Any]) -> Array:
    """By the specification's formulas, in float64: each input element adds its filter to the output."""
    space, kernel, n = x.shape[2:], w.shape[2:], len(x.shape) - 2
    strides, dilations, group = a.get("strides", [1] * n), a.get("dilations", [1] * n), a.get("group", 1)
    extra, mode = a.get("output_padding", [0] * n), a.get("auto_pad", "NOTSET")
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    full = [s * (i - 1) + e + r for s, i, e, r in zip(strides, space, extra, reach)]
    pads = list(a.get("pads", [0] * 2 * n))
    wanted = a.get("output_shape") or ([i * s for i, s in zip(space, strides)] if mode.startswith("SAME") else None)
    if wanted:
        total = [f - o for f, o in zip(full, wanted)]
        half = [t // 2 for t in total]
        rest = [t - h for t, h in zip(total, half)]
        pads = [*half, *rest] if mode == "SAME_UPPER" else [*rest, *half]
    margin = [max(0, -p) for p in pads]
    y = np.zeros((x.shape[0], w.shape[1] * group, *(f + margin[i] + margin[n + i] for i, f in enumerate(full))))
    m, k = x.shape[1] // group, w.shape[1]
    for g, at in itertools.product(range(group), np.ndindex(*space)):
        own = (slice(None), slice(g * m, (g + 1) * m))
        filtered = np.tensordot(x[(*own, *at)].astype(np.float64), w[g * m : (g + 1) * m].astype(np.float64), axes=([1], [0]))
        place = (
            slice(margin[i] + at[i] * strides[i], margin[i] + at[i] * strides[i] + reach[i], dilations[i]) for i in range(n)
        )
        y[(slice(None), slice(g * k, (g + 1) * k), *place)] += filtered
    crop = (slice(max(0, pads[i]), y.shape[2 + i] - max(0, pads[n + i])) for i in range(n))
    y = y[(slice(None), slice(None), *crop)]
    return y if b is None else y + b.reshape(-1, *[1] * n)


def _transposed_convolutions() -> list[Case]:
    cases = []
    for (name, settings, x, w), form in itertools.product(TRANSPOSED, ("", "biased", "symbolic")):
        if form == "symbolic" and ("auto_pad" in settings or "output_shape" in settings):
            continue
        space = [f"s{i}" if form == "symbolic" else str(n) for i, n in enumerate(x[2:])]
        channels = w[1] * settings.get("group", 1)
        feeds = {"x": normal(*x), "w": normal(*w, seed=1)} | ({"b": normal(channels, seed=2)} if form == "biased" else {})
        kinds = {"x": _kind(["n", x[1], *space]), "w": _kind(w), "b": _kind([channels])}
        given = ", ".join(f"{kinds[f]} {f}" for f in feeds)
        spelled = ", ".join(f"{k} = {json.dumps(v)}" for k, v in settings.items())
        text = f"({given}) => ({_kind([f'o{i}' for i in range(len(x))])} y) {{ y = ConvTranspose<{spelled}>({', '.join(feeds)}) }}"

        def expect(x: Array, w: Array, b: Array | None = None, settings: dict[str, Any] = settings) -> Array:
            return _conv_transpose(x, w, b, settings)

        cases.append(case(f"conv_transpose_{name}{'_' if form else ''}{form}", text, feeds, expect=expect))
    return cases


PRODUCTS: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...] = (
    ("vectors", (5,), (5,)), ("vector_matrix", (5,), (5, 3)), ("matrix_vector", (4, 5), (5,)), ("vector_batch", (5,), (2, 5, 3)),
    ("batch_vector", (2, 4, 5), (5,)), ("broadcast", (2, 1, 4, 5), (3, 5, 6)), ("row", (1, 5), (5, 1)), ("column", (5, 1), (1, 5)),
    ("nothing_to_sum", (3, 0), (0, 4)), ("no_rows", (0, 5), (5, 4)),
)  # fmt: skip


def _products() -> list[Case]:
    cases = []
    for name, a, b in PRODUCTS:
        result = np.matmul(normal(*a), normal(*b, seed=1))
        kinds = (_kind(s) for s in (a, b, result.shape))
        text = "({} a, {} b) => ({} y) {{ y = MatMul(a, b) }}".format(*kinds)
        cases.append(case(f"matmul_{name}", text, {"a": normal(*a), "b": normal(*b, seed=1)}, expect=lambda a, b: np.matmul(a, b)))
    for ta, tb in itertools.product((0, 1), repeat=2):
        for c in ("[3,4]", "[4]", "[3,1]", "[1]", ""):
            a, b = ((5, 3) if ta else (3, 5)), ((4, 5) if tb else (5, 4))
            shape = [int(n) for n in c.strip("[]").split(",") if n]
            text = f"""(float{list(a)} a, float{list(b)} b, float{c} c) => (float[3,4] y) {{
                y = Gemm<alpha = 0.5, beta = -2.0, transA = {ta}, transB = {tb}>(a, b, c) }}"""
            feeds = {"a": normal(*a), "b": normal(*b, seed=1), "c": normal(*shape, seed=2)}
            label = c.strip("[]").replace(",", "x") or "scalar"
            cases.append(case(f"gemm_{ta}{tb}_{label}", text, feeds))
    return cases


CASES = [*_einsums(), *_transposed_convolutions(), *_products()]
