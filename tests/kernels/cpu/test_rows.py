"""cpu/reduce.h, cpu/normalize.h and cpu/transpose.h, against float64."""

from __future__ import annotations

import numpy as np
import pytest

from .library import HAVE_COMPILER, ISAS, PROLOGUE, build, call

pytestmark = pytest.mark.skipif(not HAVE_COMPILER, reason="no g++")

SIZES = (
    (1, 1),
    (1, 31),
    (3, 32),
    (5, 33),
    (2, 64),
    (33, 65),
    (130, 7),
    (1, 70001),
    (2, 40000),
    (65, 200),
    (70, 1000),
)  # rows, K

# ---- reduce ----------------------------------------------------------------------------------------------------------------

OPERATIONS = {
    "Sum": lambda x: x.sum(1), "Mean": lambda x: x.mean(1), "Max": lambda x: x.max(1), "Min": lambda x: x.min(1),
    "Prod": lambda x: x.prod(1),
    "SumSquare": lambda x: (x * x).sum(1), "L1": lambda x: np.abs(x).sum(1), "L2": lambda x: np.sqrt((x * x).sum(1)),
    "LogSum": lambda x: np.log(x.sum(1)), "LogSumExp": lambda x: np.log(np.exp(x - x.max(1, keepdims=True)).sum(1)) + x.max(1),
    "ArgMax<>": lambda x: x.argmax(1), "ArgMin<>": lambda x: x.argmin(1),
    "ArgMax<true>": lambda x: x.shape[1] - 1 - x[:, ::-1].argmax(1), "ArgMin<true>": lambda x: x.shape[1] - 1 - x[:, ::-1].argmin(1),
}  # fmt: skip
C_TYPES = {"float": np.float32, "double": np.float64, "int32_t": np.int32, "int64_t": np.int64}
REDUCTIONS = [
    *(("rows", op, "float") for op in OPERATIONS),
    *(("columns", op, "float") for op in ("Sum", "Mean", "Max", "Min", "L2", "LogSumExp", "ArgMax<>", "ArgMin<true>")),
    ("rows", "Sum", "double"), ("columns", "LogSumExp", "double"), ("rows", "Min", "int32_t"), ("columns", "Mean", "int32_t"),
    ("rows", "Sum", "int64_t"), ("rows", "ArgMax<>", "int64_t"), ("columns", "Max", "int64_t"),
]  # fmt: skip


def reduction_source(i: int, form: str, op: str, c_type: str) -> str:
    result = "int64_t" if op.startswith("Arg") else c_type
    address = "row * K + k" if form == "rows" else "k * rows + row"
    width = 1 if form == "rows" else 8
    return f"""
namespace reduce_{i} {{
struct Shape {{ int64_t rows, K; }};
struct Load {{
  using type = {c_type};
  static constexpr int width = 16;
  const {c_type}* x;
  int64_t rows, K;
  template <int V> AITC_FN void operator()(int64_t row, int64_t k, {c_type} (&v)[V]) const {{
    const auto v0 = load<V>(x + {address});
    AITC_UNROLL for (int j = 0; j < V; ++j) v[j] = v0[j];
  }}
}};
struct Store {{
  static constexpr int width = {width};
  {result}* y;
  uint8_t* hits;
  template <int V> AITC_FN void operator()(int64_t row, int64_t, const {result} (&acc)[V]) const {{
    for (int j = 0; j < V; ++j) y[row + j] = acc[j], hits[row + j] += 1;
  }}
}};
RUN_({i}) {{
  reduce_{form}<{op}>(Shape{{n[0], n[1]}}, Load{{as<const {c_type}>(p[0]), n[0], n[1]}}, Store{{as<{result}>(p[1]), as<uint8_t>(p[2])}});
}}
}}
"""


REDUCE_SOURCE = '#include "aitc/cpu/reduce.h"\nusing namespace aitc;\n' + PROLOGUE + "".join(
    reduction_source(i, *r) for i, r in enumerate(REDUCTIONS)
)  # fmt: skip


def reduction_input(rng: np.random.Generator, op: str, dtype: type, rows: int, K: int) -> np.ndarray:
    if np.dtype(dtype).kind == "i":
        return rng.integers(-50, 50, (rows, K)).astype(dtype)
    x = rng.standard_normal((rows, K))
    if op == "LogSum":
        x = np.abs(x) + 0.1
    if op == "Prod":
        x = np.exp(x / np.sqrt(K))
    if op.startswith("Arg"):
        x = np.round(x * 2)  # ties
    if op == "LogSumExp":
        x = x * 30
        x[0, : K // 2] = -np.inf
    return x.astype(dtype)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("i", range(len(REDUCTIONS)), ids=["-".join(r) for r in REDUCTIONS])
def test_reduce(i: int, isa: str) -> None:
    form, op, c_type = REDUCTIONS[i]
    library = build(REDUCE_SOURCE, isa)
    rng = np.random.default_rng(i)
    dtype = C_TYPES[c_type]
    for rows, K in SIZES:
        x = reduction_input(rng, op, dtype, rows, K)
        stored = x if form == "rows" else np.ascontiguousarray(x.T)
        y = np.full(rows, -77, np.int64 if op.startswith("Arg") else dtype)
        hits = np.zeros(rows, np.uint8)
        call(library, f"run_{i}", (stored, y, hits), (rows, K))
        assert (hits == 1).all(), (rows, K)
        exact = x if x.dtype.kind == "i" else x.astype(np.float64)
        expected = OPERATIONS[op](exact)
        if y.dtype.kind == "i":
            if op == "Mean":
                expected = np.trunc(expected).astype(np.int64)
            np.testing.assert_array_equal(y, expected, err_msg=str((rows, K)))
            continue
        eps = np.finfo(dtype).eps
        scale = np.abs(exact).sum(1) / (K if op == "Mean" else 1) if op in ("Sum", "Mean") else np.abs(expected) + 1
        growth = 8 + 2 * np.sqrt(K) if op == "Prod" else 8
        assert (np.abs(y - expected) <= growth * eps * scale).all(), (
            rows,
            K,
            np.abs((y - expected) / scale).max() / eps,
        )


@pytest.mark.parametrize("isa", ISAS)
def test_reduce_keeps_nan_and_infinity(isa: str) -> None:
    library = build(REDUCE_SOURCE, isa)
    for op in ("Max", "Min", "Sum", "LogSumExp"):
        for form in ("rows", "columns"):
            i = REDUCTIONS.index((form, op, "float"))
            x = np.ones((4, 100), np.float32)
            x[0, 37], x[1, 99], x[2, :], x[3, 5] = np.nan, np.inf, -np.inf, -np.inf
            y, hits = np.empty(4, np.float32), np.zeros(4, np.uint8)
            call(library, f"run_{i}", (x if form == "rows" else np.ascontiguousarray(x.T), y, hits), x.shape)
            inf = np.inf
            log100 = np.float32(1 + np.log(99))
            expected = {"Max": [np.nan, inf, -inf, 1], "Min": [np.nan, 1, -inf, -inf], "Sum": [np.nan, inf, -inf, -inf],
                        "LogSumExp": [np.nan, inf, -inf, log100]}[op]  # fmt: skip
            np.testing.assert_allclose(y, expected, rtol=1e-6, err_msg=f"{op} {form}")


# ---- normalize -------------------------------------------------------------------------------------------------------------

NORMALIZATIONS = [
    (form, op, c_type)
    for form in ("rows", "columns")
    for op, c_type in (
        ("Softmax{}", "float"),
        ("LogSoftmax{}", "float"),
        ("LayerNorm{1e-5f}", "float"),
        ("RMSNorm{1e-6f}", "float"),
        ("LayerNorm{1e-5f}", "double"),
    )
]


def normalization_source(i: int, form: str, op: str, c_type: str) -> str:
    address = "row * K + k" if form == "rows" else "k * rows + row"
    return f"""
namespace normalize_{i} {{
struct Shape {{ int64_t rows, K; }};
struct Load {{
  using type = {c_type};
  static constexpr int width = 16;
  const {c_type}* x;
  int64_t rows, K;
  template <int V> AITC_FN void operator()(int64_t row, int64_t k, {c_type} (&v)[V]) const {{
    const auto v0 = load<V>(x + {address});
    AITC_UNROLL for (int j = 0; j < V; ++j) v[j] = v0[j];
  }}
}};
struct Store {{
  static constexpr int width = 16;
  {c_type} *y, *mean, *inverse;
  uint8_t* hits;
  int64_t rows, K;
  void statistics(int64_t row, {c_type} m, {c_type} d) const {{ mean[row] = m, inverse[row] = d; }}
  template <int V> AITC_FN void operator()(int64_t row, int64_t k, const {c_type} (&v)[V]) const {{
    Vec<{c_type}, V> r;
    AITC_UNROLL for (int j = 0; j < V; ++j) r[j] = v[j];
    store<V>(y + {address}, r);
    for (int j = 0; j < V; ++j) hits[{address} + j] += 1;
  }}
}};
RUN_({i}) {{
  normalize_{form}({op}, Shape{{n[0], n[1]}}, Load{{as<const {c_type}>(p[0]), n[0], n[1]}},
                   Store{{as<{c_type}>(p[1]), as<{c_type}>(p[2]), as<{c_type}>(p[3]), as<uint8_t>(p[4]), n[0], n[1]}});
}}
}}
"""


NORMALIZE_SOURCE = '#include "aitc/cpu/normalize.h"\nusing namespace aitc;\n' + PROLOGUE + "".join(
    normalization_source(i, *n) for i, n in enumerate(NORMALIZATIONS)
)  # fmt: skip


def normalized(op: str, x: np.ndarray) -> np.ndarray:
    if op == "Softmax{}":
        e = np.exp(x - x.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)
    if op == "LogSoftmax{}":
        d = x - x.max(1, keepdims=True)
        return d - np.log(np.exp(d).sum(1, keepdims=True))
    if op.startswith("LayerNorm"):
        return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + np.float32(1e-5))
    return x / np.sqrt((x * x).mean(1, keepdims=True) + np.float32(1e-6))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("i", range(len(NORMALIZATIONS)), ids=["-".join(n) for n in NORMALIZATIONS])
def test_normalize(i: int, isa: str) -> None:
    form, op, c_type = NORMALIZATIONS[i]
    library = build(NORMALIZE_SOURCE, isa)
    rng = np.random.default_rng(i)
    dtype = C_TYPES[c_type]
    for rows, K in SIZES:
        x = (rng.standard_normal((rows, K)) * 3 + 20).astype(dtype)  # a mean far from 0: the variance must not cancel
        stored = x if form == "rows" else np.ascontiguousarray(x.T)
        y = np.full(stored.shape, np.nan, dtype)
        mean, inverse = np.full(rows, np.nan, dtype), np.full(rows, np.nan, dtype)
        hits = np.zeros(stored.shape, np.uint8)
        call(library, f"run_{i}", (stored, y, mean, inverse, hits), (rows, K))
        assert (hits == 1).all(), (rows, K)
        expected = normalized(op, x.astype(np.float64))
        got = y if form == "rows" else y.T
        tolerance = 100 * np.finfo(dtype).eps * (np.abs(expected) + (0 if op == "Softmax{}" else 1))
        assert (np.abs(got - expected) <= tolerance).all(), (rows, K, np.abs(got - expected).max())
        if op.startswith("LayerNorm"):
            np.testing.assert_allclose(mean, x.astype(np.float64).mean(1), rtol=1e-5)
            np.testing.assert_allclose(inverse, 1 / np.sqrt(x.astype(np.float64).var(1) + np.float32(1e-5)), rtol=1e-4)
        elif op.startswith("RMSNorm"):
            assert (mean == 0).all()


# ---- transpose -------------------------------------------------------------------------------------------------------------

TRANSPOSED = ("int8_t", "half_t", "float", "double")
TRANSPOSE_SOURCE = '#include "aitc/cpu/transpose.h"\nusing namespace aitc;\n' + PROLOGUE + "".join(f"""
namespace transpose_{i} {{
struct Shape {{ int batch, rows, cols; }};
struct Load {{
  using type = {t};
  static constexpr int width = 16;
  const {t}* x; int64_t rows, cols;
  template <int V> AITC_FN void operator()(int64_t batch, int64_t row, int64_t col, {t} (&v)[V]) const {{
    const auto v0 = load<V>(x + (batch * rows + row) * cols + col);
    AITC_UNROLL for (int j = 0; j < V; ++j) v[j] = v0[j];
  }}
}};
struct Store {{
  static constexpr int width = 8;
  {t}* y; uint8_t* hits; int64_t rows, cols;
  template <int V> AITC_FN void operator()(int64_t batch, int64_t row, int64_t col, const {t} (&v)[V]) const {{
    const int64_t at = (batch * cols + col) * rows + row;
    Vec<{t}, V> r;
    AITC_UNROLL for (int j = 0; j < V; ++j) r[j] = v[j];
    store<V>(y + at, r);
    for (int j = 0; j < V; ++j) hits[at + j] += 1;
  }}
}};
RUN_({i}) {{
  transpose(Shape{{int(n[0]), int(n[1]), int(n[2])}}, Load{{as<const {t}>(p[0]), n[1], n[2]}},
            Store{{as<{t}>(p[1]), as<uint8_t>(p[2]), n[1], n[2]}});
}}
}}
""" for i, t in enumerate(TRANSPOSED))  # fmt: skip


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("i", range(len(TRANSPOSED)), ids=TRANSPOSED)
def test_transpose(i: int, isa: str) -> None:
    library = build(TRANSPOSE_SOURCE, isa)
    dtype = {1: np.int8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[(1, 2, 4, 8)[i]]
    rng = np.random.default_rng(i)
    for batch, rows, cols in (
        (1, 1, 1),
        (2, 31, 33),
        (1, 64, 64),
        (3, 65, 130),
        (1, 3, 1000),
        (2, 1000, 3),
        (1, 200, 17),
    ):
        x = rng.integers(0, 100, (batch, rows, cols)).astype(dtype)
        y, hits = np.full((batch, cols, rows), 111, dtype), np.zeros((batch, cols, rows), np.uint8)
        call(library, f"run_{i}", (x, y, hits), (batch, rows, cols))
        np.testing.assert_array_equal(y, x.transpose(0, 2, 1))
        assert (hits == 1).all()
