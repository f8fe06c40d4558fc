"""Pointwise kernels: generic/map.h with the functions of math.h, as the GPU back end gives them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from .gemm_cases import largest_power
from .problem import CTYPES, SIZES, Input, Output, Problem, Scalar, rounded

_erf = np.vectorize(math.erf, otypes=[np.float64])

FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp_(x)": np.exp,
    "log_(abs_(x) + T(0.01))": lambda x: np.log(np.abs(x) + 0.01),
    "tanh_(x)": np.tanh,
    "erf_(x)": _erf,
    "sigmoid(x)": lambda x: 1 / (1 + np.exp(-x)),
    "silu(x)": lambda x: x / (1 + np.exp(-x)),
    "gelu(x)": lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
    "gelu_tanh(x)": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "relu(x)": lambda x: np.maximum(x, 0),
    "sin_(x) + cos_(x)": lambda x: np.sin(x) + np.cos(x),
    "rsqrt_(abs_(x) + T(1))": lambda x: 1 / np.sqrt(np.abs(x) + 1),
    "pow_(abs_(x), T(1.5))": lambda x: np.abs(x) ** 1.5,
    "round_(x)": np.rint,
    "max_(x, -x)": np.abs,
}
"""Device expression of x (of type T) -> float64."""


def pointwise(expression: str, count: int, dtype: str, V: int, fast: bool = False) -> Problem:
    """y[i] = expression(x[i]) for `count` elements, V at a time."""
    rng = np.random.default_rng(count)
    x = rounded(rng.standard_normal(count) * 3, dtype)
    ct, compute = CTYPES[dtype], "double" if dtype == "f64" else "float"
    threads = 128
    source = f"""{"#define AITC_FAST_MATH" if fast else ""}
#include "aitc/generic/map.h"
using namespace aitc;
using T = {compute};
struct Body {{
  const {ct}* input;
  {ct}* output;
  template <int V> AITC_FN void operator()(int64_t i) const {{
    const auto v = load<V>(input + i);
    Vec<{ct}, V> r;
    AITC_UNROLL
    for (int j = 0; j < V; ++j) {{
      const T x = convert<T>(v[j]);
      r[j] = convert<{ct}>({expression});
    }}
    store<V>(output + i, r);
  }}
}};
AITC_KERNEL({threads}) void AITC_ENTRY(pointwise)(const {ct}* input, {ct}* output, int64_t count) {{
  for_each<{V}>(count, Body{{input, output}});
}}
"""
    with np.errstate(all="ignore"):
        expected = FUNCTIONS[expression](x)
    blocks = max(1, min(-(-count // (V * threads)), 3))  # fewer than the elements need: the loop strides
    return Problem(
        name=f"map {expression} {dtype} ({count}) V {V}{' fast' if fast else ''}",
        source=source,
        entry="pointwise",
        blocks=blocks,
        threads=threads,
        smem_bytes=0,
        arguments=(
            Input(x, dtype),
            Output(expected, dtype, 2e-3 if fast and dtype == "f16" else None),
            Scalar(count, "i64"),
        ),
    )


def cases() -> Iterator[Problem]:
    """Every function in float and half (exact and fast), a few in the other types; odd counts."""
    for index, expression in enumerate(FUNCTIONS):
        yield pointwise(expression, 1031 + index, "f32", 4)
        yield pointwise(expression, 2049, "f16", 8)
        yield pointwise(expression, 515, "f16", 8, fast=True)
    for dtype in ("bf16", "f64"):
        for count in (1, 31, 33, 4096):
            V = largest_power(count, limit=16 // SIZES[dtype])
            yield pointwise("gelu(x)", count, dtype, V)
            yield pointwise("tanh_(x)", count, dtype, V, fast=True)
