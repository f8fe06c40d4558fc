"""types.h, cpu/elementary.h, generic map loops and host/thread_pool.h."""

from __future__ import annotations

import math

import numpy as np
import pytest

from .library import HAVE_COMPILER, ISAS, PROLOGUE, build, call, to_bfloat16

pytestmark = pytest.mark.skipif(not HAVE_COMPILER, reason="no g++")

FUNCTIONS = {
    "m_exp": (np.exp, 2), "m_exp2": (np.exp2, 2), "m_log": (np.log, 1), "m_tanh": (np.tanh, 2), "m_erf": (np.vectorize(math.erf), 2),
    "exp_not_positive": (np.exp, 2),
    "m_sin": (np.sin, 2), "m_cos": (np.cos, 2), "m_sqrt": (np.sqrt, 0.51), "m_rsqrt": (lambda x: 1 / np.sqrt(x), 2),
}  # fmt: skip
POWERS = (0.5, 2.0, 3.0, -1.0, 1.7, -3.3, 0.0, 1e10, -np.inf, np.inf, np.nan)

SOURCE = '#include "aitc/types.h"\nusing namespace aitc;\n' + PROLOGUE + "".join(f"""
RUN_({i}) {{
  const float* x = as<const float>(p[0]); float* y = as<float>(p[1]);
  const int64_t count = n[0];
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = {name}(x[i]);
}}
""" for i, name in enumerate(FUNCTIONS)) + """
RUN_(pow) {
  const float *x = as<const float>(p[0]), *e = as<const float>(p[1]); float* y = as<float>(p[2]);
  const int64_t count = n[0];
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = m_pow(x[i], e[i]);
}
template <typename From, typename To, bool saturate> void convert_all(void* const* p, const int64_t* n) {
  for (int64_t i = 0; i < n[0]; ++i) as<To>(p[1])[i] = convert<To, saturate>(as<const From>(p[0])[i]);
}
RUN_(half_float) { convert_all<half_t, float, true>(p, n); }
RUN_(float_half) { convert_all<float, half_t, true>(p, n); }
RUN_(double_half) { convert_all<double, half_t, true>(p, n); }
RUN_(bfloat16_float) { convert_all<bfloat16_t, float, true>(p, n); }
RUN_(float_bfloat16) { convert_all<float, bfloat16_t, true>(p, n); }
RUN_(float_bool) { convert_all<float, bool, true>(p, n); }
RUN_(bool_half) { convert_all<bool, half_t, true>(p, n); }
RUN_(float_int8) { convert_all<float, int8_t, true>(p, n); }
#define FLOAT8(name) \\
  RUN_(name##_float) { convert_all<float8_##name##_t, float, true>(p, n); } \\
  RUN_(float_##name) { convert_all<float, float8_##name##_t, true>(p, n); } \\
  RUN_(float_##name##_unsaturated) { convert_all<float, float8_##name##_t, false>(p, n); }
FLOAT8(e4m3) FLOAT8(e5m2) FLOAT8(e4m3fnuz) FLOAT8(e5m2fnuz)

struct Count {
  uint8_t* hits;
  template <int V> AITC_FN void operator()(int64_t i) const {
    auto v = load<V>(hits + i);
    AITC_UNROLL for (int j = 0; j < V; ++j) v[j] += V;
    store<V>(hits + i, v);
  }
};
RUN_(map) { for_each<16>(n[0], Count{as<uint8_t>(p[0])}); }
RUN_(map1) { for_each<1>(n[0], Count{as<uint8_t>(p[0])}); }
RUN_(nested) {
  int64_t* sums = as<int64_t>(p[0]);
  parallel_for(n[0], 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      parallel_for(n[1], 1, [&](int64_t first, int64_t last) { for (int64_t j = first; j < last; ++j) sums[i] += j; });
  });
}
RUN_(threads) { (void)n; *as<int64_t>(p[0]) = num_threads(); }
"""  # fmt: skip


def ulps(got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Distance in units in the last place of float; 0 where both are NaN or the same infinity."""
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = expected.astype(np.float32)
        unit = np.maximum(np.exp2(np.floor(np.log2(np.maximum(np.abs(expected), 1e-300))) - 23), 2.0**-149)
        error = np.abs(got.astype(np.float64) - expected) / unit
    same = (np.isnan(got) & np.isnan(rounded)) | (got == rounded)
    return np.where(same, 0, np.where(np.isnan(error), np.inf, error))


def all_floats(step: int) -> np.ndarray:
    """Every `step`-th float, and the special ones."""
    special = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 2, 0.5, -3, 3.4e38, 1e-45, 1.17549435e-38], np.float32
    )
    return np.concatenate([np.arange(0, 2**32, step, dtype=np.uint32).view(np.float32), special])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_elementary(name: str, isa: str) -> None:
    exact, bound = FUNCTIONS[name]
    x = all_floats(20011)
    if name in ("m_sin", "m_cos"):
        x = x[~(np.abs(x) > (1e6 if isa == "baseline" else 1e15))]
    if name == "exp_not_positive":
        x = x[(x > -87.3) & (x <= 0) | (x < -104) | np.isnan(x)]  # between them: subnormal
    y = np.empty_like(x)
    call(build(SOURCE, isa), f"run_{list(FUNCTIONS).index(name)}", (x, y), (x.size,))
    with np.errstate(all="ignore"):
        error = ulps(y, exact(x.astype(np.float64)))
    assert error.max() <= bound, (float(error.max()), float(x[error.argmax()]))


@pytest.mark.parametrize("isa", ISAS)
def test_pow(isa: str) -> None:
    x = all_floats(200003)
    for power in POWERS:
        e = np.full_like(x, power)
        y = np.empty_like(x)
        call(build(SOURCE, isa), "run_pow", (x, e, y), (x.size,))
        with np.errstate(all="ignore"):
            error = ulps(y, np.power(x.astype(np.float64), e.astype(np.float64)))
        assert error.max() <= 1, (power, float(error.max()), float(x[error.argmax()]))


def convert(name: str, x: np.ndarray, dtype: type) -> np.ndarray:
    y = np.empty(x.shape, dtype)
    call(build(SOURCE, ISAS[0]), f"run_{name}", (x, y), (x.size,))
    return y


def test_sixteen_bits() -> None:
    codes = np.arange(65536).astype(np.uint16)
    np.testing.assert_array_equal(convert("half_float", codes, np.float32), codes.view(np.float16).astype(np.float32))
    np.testing.assert_array_equal(
        convert("bfloat16_float", codes, np.float32), (codes.astype(np.uint32) << 16).view(np.float32)
    )
    x = all_floats(30011)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(convert("float_half", x, np.float16), x.astype(np.float16))
        numbers = x[~np.isnan(x)]
        np.testing.assert_array_equal(convert("float_bfloat16", numbers, np.uint16), to_bfloat16(numbers))
        got = convert(
            "float_bfloat16", np.array([np.nan, np.uint32(0x7F800001).view(np.float32)], np.float32), np.uint16
        )
        assert ((got & 0x7F80) == 0x7F80).all() and ((got & 0x7F) != 0).all()
        # halfway cases that rounding twice would get wrong
        halves = np.arange(0, 0x7BFF, 7).astype(np.uint16).view(np.float16).astype(np.float64)
        middle = (halves[1:] + np.nextafter(halves[1:].astype(np.float16), np.float16(np.inf)).astype(np.float64)) / 2
        tricky = np.concatenate(
            [middle, middle * (1 + 1e-12), middle * (1 - 1e-12), -middle, [1e300, -np.inf, np.nan, 1e-320, -1e-9]]
        )
        np.testing.assert_array_equal(convert("double_half", tricky, np.float16), tricky.astype(np.float16))


def test_integers_and_bool() -> None:
    x = np.array([0, -0.0, 1.9, -1.9, 127, -128, np.nan, 1e-40], np.float32)
    np.testing.assert_array_equal(convert("float_bool", x, np.bool_), x != 0)
    np.testing.assert_array_equal(convert("float_int8", x[:6], np.int8), [0, 0, 1, -1, 127, -128])
    np.testing.assert_array_equal(convert("bool_half", np.array([True, False]), np.float16), [1, 0])


@pytest.mark.parametrize(
    ("name", "onnx"),
    [("e4m3", "FLOAT8E4M3FN"), ("e5m2", "FLOAT8E5M2"), ("e4m3fnuz", "FLOAT8E4M3FNUZ"), ("e5m2fnuz", "FLOAT8E5M2FNUZ")],
)
def test_float8(name: str, onnx: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = {
        "e4m3": ml_dtypes.float8_e4m3fn,
        "e5m2": ml_dtypes.float8_e5m2,
        "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
        "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    }[name]
    codes = np.arange(256).astype(np.uint8)
    decoded = codes.view(dtype).astype(np.float32)
    np.testing.assert_array_equal(convert(f"{name}_float", codes, np.float32), decoded)
    most = np.nanmax(np.where(np.isinf(decoded), 0, decoded))
    x = np.concatenate(
        [
            all_floats(30011),
            np.linspace(-1.2 * most, 1.2 * most, 5001).astype(np.float32),
            np.linspace(-0.02, 0.02, 5001).astype(np.float32),
        ]
    )
    with np.errstate(over="ignore", invalid="ignore"):
        plain = x.astype(dtype)
        saturated = np.clip(x, -most, most).astype(dtype)

    def same(got: np.ndarray, expected: np.ndarray) -> None:  # a NaN may have any sign
        np.testing.assert_array_equal(got.view(dtype).astype(np.float32), expected.astype(np.float32), err_msg=onnx)

    same(convert(f"float_{name}_unsaturated", x, np.uint8), plain)
    same(convert(f"float_{name}", x, np.uint8), saturated)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 100_000, 1_000_003])
def test_map_visits_each_element_once(count: int) -> None:
    hits = np.zeros(count + 1, np.uint8)
    call(build(SOURCE, ISAS[0]), "run_map", (hits,), (count,))
    whole = count // 16 * 16
    assert (hits[:whole] == 16).all() and (hits[whole:count] == 1).all() and hits[count] == 0
    hits[:] = 0
    call(build(SOURCE, ISAS[0]), "run_map1", (hits,), (count,))
    assert (hits[:count] == 1).all()


def test_parallel_for_nests_and_is_shared_by_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    library = build(SOURCE, ISAS[0])
    sums = np.zeros((4, 200), np.int64)

    def work(row: int) -> None:
        for _ in range(50):
            call(library, "run_nested", (sums[row],), (200, 30))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert (sums == 50 * sum(range(30))).all()


def test_number_of_threads_follows_the_environment() -> None:
    import subprocess
    import sys

    library = build(SOURCE, ISAS[0])
    code = (
        "import ctypes, sys\n"
        "lib, out = ctypes.CDLL(sys.argv[1]), ctypes.c_int64()\n"
        "lib.run_threads((ctypes.c_void_p * 1)(ctypes.addressof(out)), (ctypes.c_int64 * 1)())\n"
        "print(out.value)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, library._name],
        env={"AITC_NUM_THREADS": "3"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "3"


def test_a_forked_child_computes() -> None:
    """Workers do not survive fork(); the child must not wait for them."""
    import os

    library = build(SOURCE, ISAS[0])
    sums = np.zeros(64, np.int64)
    call(library, "run_nested", (sums,), (64, 10))  # the pool is running now
    child = os.fork()
    if child == 0:
        call(library, "run_nested", (sums,), (64, 10))
        os._exit(0 if (sums == 90).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
