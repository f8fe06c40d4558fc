// Softmax and normalisations on cpu: store(row, k, y), where y depends on the whole row load(row, .).
//
//   normalize_rows(op, shape, load, store)       k is contiguous in memory: V runs along k
//   normalize_columns(op, shape, load, store)    row is contiguous in memory: V runs along row (instance norm of NHWC, softmax over
//                                                an axis that is not the last)
//
//   op       Softmax{}      y = exp(x - max) / sum
//            LogSoftmax{}   y = x - max - log(sum)
//            LayerNorm{e}   y = (x - mean) / sqrt(variance + e)       instance and group norm too; scale and bias are the store's
//            RMSNorm{e}     y = x / sqrt(mean(x^2) + e)
//   Shape    rows, K: static constexpr int or int64_t, or members read at run time
//   Load     using type = float or double (statistics are made in it); static constexpr int width;
//            operator()<V>(int64_t row, int64_t k, T (&x)[V]): x[j] = element (row, k + j) resp. (row + j, k)
//   Store    static constexpr int width; operator()<V>(int64_t row, int64_t k, const T (&y)[V])
//            optional: void statistics(int64_t row, T mean, T inverse_deviation) const, called once a row before its stores
//            (LayerNorm; RMSNorm gives mean = 0)
//
// The load is called once for each element (several times by normalize_columns when K is large): rows are kept in the cache, and the variance is
// that of the differences from the mean. V is a power of two <= width, the coordinate it runs along a multiple of V.
//
//   #include "aitc/cpu/normalize.h"
//   using namespace aitc;
//   struct Shape { static constexpr int64_t rows = 128, K = 768; };
//   struct Load {
//     using type = float;
//     static constexpr int width = 16;
//     const float* x;
//     template <int V> AITC_FN void operator()(int64_t row, int64_t k, float (&v)[V]) const {
//       const auto v0 = load<V>(x + row * 768 + k);
//       AITC_UNROLL for (int j = 0; j < V; ++j) v[j] = v0[j];
//     }
//   };
//   struct Store {
//     static constexpr int width = 16;
//     const float *scale, *bias; float* out;
//     template <int V> AITC_FN void operator()(int64_t row, int64_t k, const float (&y)[V]) const {
//       const auto v0 = load<V>(scale + k);
//       const auto v1 = load<V>(bias + k);
//       Vec<float, V> r;
//       AITC_UNROLL for (int j = 0; j < V; ++j) r[j] = y[j] * v0[j] + v1[j];
//       store<V>(out + row * 768 + k, r);
//     }
//   };
//   AITC_KERNEL(0) void AITC_ENTRY(layer_norm_2)(const float* x, const float* scale, const float* bias, float* out) {
//     normalize_rows(LayerNorm{1e-12f}, Shape{}, Load{x}, Store{scale, bias, out});
//   }
#pragma once
#include "aitc/cpu/cpu.h"
#include "aitc/reduction.h"
#include "aitc/types.h"

AITC_BEGIN
namespace {

struct Softmax {
  static constexpr bool exponential = true, logarithm = false, centred = false;
  float epsilon = 0;
};
struct LogSoftmax {
  static constexpr bool exponential = true, logarithm = true, centred = false;
  float epsilon = 0;
};
struct LayerNorm {
  static constexpr bool exponential = false, logarithm = false, centred = true;
  float epsilon;
};
struct RMSNorm {
  static constexpr bool exponential = false, logarithm = false, centred = false;
  float epsilon;
};

template <typename Store, typename T>
AITC_FN auto give_statistics(const Store& store, int64_t row, T mean, T inverse, int) -> decltype(store.statistics(row, mean, inverse)) {
  store.statistics(row, mean, inverse);
}
template <typename Store, typename T>
AITC_FN void give_statistics(const Store&, int64_t, T, T, long) {}

template <int V, typename T, typename Load>
AITC_FN void load_row(const Load& load, int64_t row, int64_t k, int64_t K, T* x) {
  for (; k + V <= K; k += V) {
    T piece[V];  // (V)
    load.template operator()<V>(row, k, piece);
    copy_elements<V>(x + k, piece);
  }
  if constexpr (V > 1) {
    if (k < K) load_row<V / 2>(load, row, k, K, x);
  }
}

// y = x * factor + offset, handed to the store.
template <int V, typename T, typename Store>
AITC_FN void store_scaled(const Store& store, int64_t row, int64_t k, int64_t K, const T* x, T factor, T offset) {
  for (; k + V <= K; k += V) {
    T piece[V];  // (V)
    AITC_UNROLL
    for (int j = 0; j < V; ++j) piece[j] = x[k + j] * factor + offset;
    store.template operator()<V>(row, k, piece);
  }
  if constexpr (V > 1) {
    if (k < K) store_scaled<V / 2>(store, row, k, K, x, factor, offset);
  }
}

// Sum of term(k) for 0 <= k < n in four vectors of independent lanes, each of parts of 64 terms.
template <typename T, typename Term>
AITC_FN T sum_of(int64_t n, const Term& term) {
  constexpr int N = 4 * AITC_VECTOR_BYTES / int(sizeof(T));
  T lanes[N], rest = T(0);  // (N)
  AITC_UNROLL
  for (int j = 0; j < N; ++j) lanes[j] = T(0);
  int64_t k = 0;
  while (k + N <= n) {
    T part[N];  // (N)
    AITC_UNROLL
    for (int j = 0; j < N; ++j) part[j] = T(0);
    for (const int64_t end = min_of(n, k + 64 * N); k + N <= end; k += N) {
      AITC_UNROLL
      for (int j = 0; j < N; ++j) part[j] += term(k + j);
    }
    AITC_UNROLL
    for (int j = 0; j < N; ++j) lanes[j] += part[j];
  }
#pragma omp simd reduction(+ : rest)
  for (int64_t i = k; i < n; ++i) rest += term(i);
  return fold_lanes<N>(lanes, [](T a, T b) { return a + b; }) + rest;
}

template <typename T>
AITC_FN T maximum_of(const T* x, int64_t n) {
  constexpr int N = 4 * AITC_VECTOR_BYTES / int(sizeof(T));
  T lanes[N], best = lowest<T>();  // (N)
  AITC_UNROLL
  for (int j = 0; j < N; ++j) lanes[j] = best;
  int64_t k = 0;
  for (; k + N <= n; k += N) {
    AITC_UNROLL
    for (int j = 0; j < N; ++j) lanes[j] = x[k + j] > lanes[j] ? x[k + j] : lanes[j];
  }
#pragma omp simd reduction(max : best)
  for (int64_t i = k; i < n; ++i) best = x[i] > best ? x[i] : best;
  const T most = fold_lanes<N>(lanes, [](T a, T b) { return b > a ? b : a; });
  return most > best ? most : best;
}

template <typename Op, typename Load, typename Store>
__attribute__((noinline)) void normalize_row(const Op& op, const Load& load_functor, const Store& store_functor, int64_t row, int64_t K,
                                             typename Load::type* x) {
  using T = typename Load::type;
  const Load load = load_functor;
  const Store store = store_functor;
  load_row<Load::width>(load, row, int64_t(0), K, x);
  if constexpr (Op::exponential) {
    const T most = maximum_of(x, K);
    if constexpr (Op::logarithm) {
      const T sum = sum_of<T>(K, [=](int64_t k) { return exp_not_positive(x[k] -= most); });
      store_scaled<Store::width>(store, row, int64_t(0), K, x, T(1), -m_log(sum));  // the maximum first: it may be much larger
    } else {
      const T sum = sum_of<T>(K, [=](int64_t k) { return x[k] = exp_not_positive(x[k] - most); });
      store_scaled<Store::width>(store, row, int64_t(0), K, x, T(1) / sum, T(0));
    }
  } else {
    T mean = T(0);
    if constexpr (Op::centred) mean = sum_of<T>(K, [=](int64_t k) { return x[k]; }) / T(K);
    const T squares = sum_of<T>(K, [=](int64_t k) {
      const T d = x[k] - mean;
      if constexpr (Op::centred) x[k] = d;
      return d * d;
    });
    const T inverse = T(1) / m_sqrt(squares / T(K) + T(op.epsilon));
    give_statistics(store, row, mean, inverse, 0);
    store_scaled<Store::width>(store, row, int64_t(0), K, x, inverse, T(0));
  }
}

template <typename Op, typename Shape, typename Load, typename Store>
inline void normalize_rows(const Op& op, const Shape& shape, const Load& load, const Store& store) {
  using T = typename Load::type;
  const int64_t K = shape.K;
  if (K <= 0) return;
  parallel_for(shape.rows, max_of(int64_t(1), int64_t(Op::exponential ? 4096 : 16384) / K), [&](int64_t begin, int64_t end) {
    T* x = static_cast<T*>(scratch(2, size_t(K) * sizeof(T)));  // (K)
    for (int64_t row = begin; row < end; ++row) normalize_row(op, load, store, row, K, x);
  });
}

// V neighbouring rows at once, which are contiguous in memory; x holds them as [k][V] if they fit (`kept`).
template <int V, typename Op, typename Load, typename Store>
__attribute__((noinline)) void normalize_column_block(const Op& op, const Load& load_functor, const Store& store_functor, int64_t row,
                                                      int64_t K, bool kept, typename Load::type* x) {
  using T = typename Load::type;
  const Load load = load_functor;
  const Store store = store_functor;
  const auto get = [&](int64_t k, bool first, T(&piece)[V]) {
    if (first || !kept) load.template operator()<V>(row, k, piece);
    else copy_elements<V>(piece, x + k * V);
    if (first && kept) copy_elements<V>(x + k * V, piece);
  };
  // total[j] = sum over k of term(element, j), made of parts of 1024 elements, and these of parts of 32
  const auto add_up = [&](bool first, T(&total)[V], const auto& term) {
    AITC_UNROLL
    for (int j = 0; j < V; ++j) total[j] = T(0);
    T part[V], few[V], piece[V];  // (V)
    for (int64_t k = 0; k < K;) {
      AITC_UNROLL
      for (int j = 0; j < V; ++j) part[j] = T(0);
      for (const int64_t end = min_of(K, k + 1024); k < end;) {
        AITC_UNROLL
        for (int j = 0; j < V; ++j) few[j] = T(0);
        for (const int64_t next = min_of(end, k + 32); k < next; ++k) {
          get(k, first, piece);
          AITC_UNROLL
          for (int j = 0; j < V; ++j) few[j] += term(piece[j], j);
        }
        AITC_UNROLL
        for (int j = 0; j < V; ++j) part[j] += few[j];
      }
      AITC_UNROLL
      for (int j = 0; j < V; ++j) total[j] += part[j];
    }
  };
  T sum[V], centre[V], factor[V], piece[V];  // (V)
  AITC_UNROLL
  for (int j = 0; j < V; ++j) centre[j] = Op::exponential ? lowest<T>() : T(0);
  if constexpr (Op::exponential) {
    for (int64_t k = 0; k < K; ++k) {
      get(k, true, piece);
      AITC_UNROLL
      for (int j = 0; j < V; ++j) centre[j] = piece[j] > centre[j] ? piece[j] : centre[j];
    }
    add_up(false, sum, [&](T x, int j) { return exp_not_positive(x - centre[j]); });
    AITC_UNROLL
    for (int j = 0; j < V; ++j) {
      if constexpr (Op::logarithm) factor[j] = m_log(sum[j]);
      else factor[j] = T(1) / sum[j];
    }
  } else {
    if constexpr (Op::centred) {
      add_up(true, centre, [](T x, int) { return x; });
      AITC_UNROLL
      for (int j = 0; j < V; ++j) centre[j] /= T(K);
    }
    add_up(!Op::centred, sum, [&](T x, int j) { return (x - centre[j]) * (x - centre[j]); });
    AITC_UNROLL
    for (int j = 0; j < V; ++j) factor[j] = T(1) / m_sqrt(sum[j] / T(K) + T(op.epsilon));
    for (int j = 0; j < V; ++j) give_statistics(store, row + j, centre[j], factor[j], 0);
  }
  for (int64_t k = 0; k < K; ++k) {
    get(k, false, piece);
    AITC_UNROLL
    for (int j = 0; j < V; ++j) {
      if constexpr (Op::exponential && !Op::logarithm) piece[j] = exp_not_positive(piece[j] - centre[j]) * factor[j];
      else if constexpr (Op::exponential) piece[j] = piece[j] - centre[j] - factor[j];
      else piece[j] = (piece[j] - centre[j]) * factor[j];
    }
    store.template operator()<V>(row, k, piece);
  }
}

template <int V, typename Op, typename Load, typename Store>
void normalize_column_rows(const Op& op, const Load& load, const Store& store, int64_t row, int64_t rows, int64_t K, bool kept,
                           typename Load::type* x) {
  for (; rows >= V; rows -= V, row += V) normalize_column_block<V>(op, load, store, row, K, kept, x);
  if constexpr (V > 1) {
    if (rows > 0) normalize_column_rows<V / 2>(op, load, store, row, rows, K, kept, x);
  }
}

template <typename Op, typename Shape, typename Load, typename Store>
inline void normalize_columns(const Op& op, const Shape& shape, const Load& load, const Store& store) {
  using T = typename Load::type;
  constexpr int V = Load::width < Store::width ? Load::width : Store::width;
  const int64_t K = shape.K, rows = shape.rows;
  if (K <= 0) return;
  const bool kept = K * V * int64_t(sizeof(T)) <= (512 << 10);
  parallel_for(ceil_div(rows, V), max_of(int64_t(1), 4096 / (K * V)), [&](int64_t begin, int64_t end) {
    T* x = static_cast<T*>(scratch(2, size_t(kept ? K * V : 1) * sizeof(T)));  // (K,V)
    normalize_column_rows<V>(op, load, store, begin * V, min_of(rows, end * V) - begin * V, K, kept, x);
  });
}

}  // namespace
AITC_END
