// normalize.h: softmax and normalisations on GPUs: store(row, k, y), where y depends on the whole row load(row, .).
//
//   normalize_rows<RowNorm<V, lanes, packs, threads>>(op, shape, load, store)
//     k is contiguous in memory: V runs along k. `lanes` threads (a power of two up to warp_size, or all `threads`, a
//     multiple of warp_size) hold a row in registers, `packs` vectors of V each: lanes * packs * V >= K. packs = 0: the
//     row is read again for each pass instead (beyond about 32 values a thread). A block takes threads / lanes rows.
//     Blocks   ceil(rows / (threads / lanes)) in x
//     Shared   lanes > warp_size ? 2 * threads / warp_size * sizeof(T) : 0
//     Tiles    K = 768 of 16 bits <8, 32, 3, 128>, K = 128 <8, 16, 1, 128>: a warp or less a row up to about 2048
//   normalize_columns<ColumnNorm<V, across, down>>(op, shape, load, store)
//     row is contiguous in memory (instance norm of NHWC, softmax over an axis that is not the last): V runs along row.
//     `across` threads side by side take V rows each, `down` threads (a power of two) share them; the input is read two
//     or three times.
//     Blocks   ceil(rows / (V * across)) in x
//     Threads  across * down
//     Shared   down > 1 ? across * down * V * sizeof(T) : 0
//
//   op       Softmax{}      y = exp(x - max) / sum
//            LogSoftmax{}   y = x - max - log(sum)
//            LayerNorm{e}   y = (x - mean) / sqrt(variance + e); instance and group norm too; scale and bias are the
//                           store's
//            RMSNorm{e}     y = x / sqrt(mean(x^2) + e)
//   Shape    rows, K: static constexpr int or int64_t, or members read at run time; K < 2^31
//   Load     using type = T, float or double (statistics are made in it); static constexpr int width;
//            operator()<W>(int64_t row, int64_t k, T (&x)[W]), W <= min(V, width): x[j] = element (row, k + j) resp.
//            (row + j, k)
//   Store    static constexpr int width; operator()<W>(int64_t row, int64_t k, const T (&y)[W]);
//            optional: void statistics(int64_t row, T mean, T inverse_deviation) const, called once a row (LayerNorm;
//            RMSNorm gives mean = 0)
// V is a power of two that divides K (rows) resp. rows (columns). The variance is that of the differences from the
// mean.
//
//   #include "aitc/gpu/rows/normalize.h"
//   using namespace aitc;
//   struct Shape { int64_t rows; static constexpr int64_t K = 768; };
//   struct Load {
//     using type = float;
//     static constexpr int width = 8;
//     const half_t* x;
//     template <int V> AITC_FN void operator()(int64_t row, int64_t k, float (&v)[V]) const {
//       const auto v0 = load<V>(x + row * 768 + k);
//       AITC_UNROLL for (int j = 0; j < V; ++j) v[j] = convert<float>(v0[j]);
//     }
//   };
//   struct Store {
//     static constexpr int width = 8;
//     const half_t *scale, *bias;
//     half_t* out;
//     template <int V> AITC_FN void operator()(int64_t row, int64_t k, const float (&y)[V]) const {
//       const auto v0 = load<V>(scale + k);
//       const auto v1 = load<V>(bias + k);
//       Vec<half_t, V> r;
//       AITC_UNROLL for (int j = 0; j < V; ++j) r[j] = convert<half_t>(y[j] * convert<float>(v0[j]) +
//       convert<float>(v1[j])); store<V>(out + row * 768 + k, r);
//     }
//   };
//   AITC_KERNEL(128) void AITC_ENTRY(layer_norm_2)(const half_t* x, const half_t* scale, const half_t* bias,
//                                                  half_t* out, int64_t rows) {
//     normalize_rows<RowNorm<8, 32, 3, 128>>(LayerNorm{1e-12f}, Shape{rows}, Load{x}, Store{scale, bias, out});
//   }
// All functions take `blocks` (blocks.h) last: those of the launch that work on these rows, all unless given.
#pragma once
#include "aitc/gpu/core/blocks.h"
#include "aitc/gpu/core/functor.h"
#include "aitc/reduction.h"

AITC_BEGIN

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

template <int V_, int Lanes, int Packs, int Threads> struct RowNorm {
  static constexpr int V = V_, lanes = Lanes, packs = Packs, threads = Threads, rows = Threads / Lanes;
  static_assert(lanes <= warp_size || lanes == threads, "a row has a part of a warp, a warp, or the block");
};
template <int V_, int Across, int Down> struct ColumnNorm {
  static constexpr int V = V_, across = Across, down = Down, threads = Across * Down;
};

template <class Store, class T> AITC_FN auto give_statistics(const Store& store, int64_t row, T mean, T inverse, int)
    -> decltype(store.statistics(row, mean, inverse)) {
  store.statistics(row, mean, inverse);
}
template <class Store, class T> AITC_FN void give_statistics(const Store&, int64_t, T, T, long) {}

// y = exp(x - shift) * factor, x - shift - factor (LogSoftmax: factor is log(sum)), or (x - shift) * factor.
template <class Op, class T> AITC_FN T normalized(T x, T shift, T factor) {
  if constexpr (Op::logarithm) return x - shift - factor;  // the maximum first: it may be much larger
  else if constexpr (Op::exponential) return m_exp(x - shift) * factor;
  else return (x - shift) * factor;
}

// Sums and maxima over the lanes of one row.
template <class Tile, class T> struct RowLanes {
  T* scratch;
  template <class Op> AITC_FN T over(T v, Op op) const {
    if constexpr (Tile::lanes <= warp_size) return warp_reduce<Tile::lanes>(v, op);
    else {
      block_barrier();  // the scratch of the reduction before is free
      return block_reduce<Tile::threads>(v, op, scratch);
    }
  }
  AITC_FN T sum(T v) const { return over(v, [](T a, T b) { return a + b; }); }
  AITC_FN T max(T v) const { return over(v, [](T a, T b) { return m_max(a, b); }); }
};

template <class Tile, class Op, class Shape, class Load, class Store, class Blocks = AllBlocks>
AITC_FN void normalize_rows(const Op& op, const Shape& shape, const Load& load, const Store& store,
                            const Blocks& blocks = {}) {
  using T = typename Load::type;
  constexpr int V = Tile::V, packs = Tile::packs;
  const int64_t rows = shape.rows;
  const int K = int(shape.K), lane = thread_index() % Tile::lanes;
  const int64_t row = int64_t(blocks.index()) * Tile::rows + thread_index() / Tile::lanes;
  const bool active = row < rows;
  const RowLanes<Tile, T> all{reinterpret_cast<T*>(shared_memory())};
  grid_dependency_wait();

  T held[packs ? packs : 1][V];
  if constexpr (packs > 0) {
    AITC_UNROLL
    for (int p = 0; p < packs; ++p) {
      const int k = (p * Tile::lanes + lane) * V;
      if (active && k < K) load_pack<V>(load, row, k, held[p]);
    }
    grid_dependency_launch();
  }
  // Calls f(k, x) for each vector of this thread.
  const auto each = [&](auto&& f) {
    if constexpr (packs > 0) {
      AITC_UNROLL
      for (int p = 0; p < packs; ++p) {
        const int k = (p * Tile::lanes + lane) * V;
        if (active && k < K) f(k, held[p]);
      }
    } else if (active) {
      for_packs<V>(load, row, lane * V, K, Tile::lanes * V, f);
    }
  };
  T shift = T(0), factor = T(1);
  if constexpr (Op::exponential) {
    T most = lowest<T>();
    each([&](int, T(&x)[V]) {
      AITC_UNROLL
      for (int j = 0; j < V; ++j) most = m_max(most, x[j]);
    });
    shift = all.max(most);
    T sum = T(0);
    each([&](int, T(&x)[V]) {
      AITC_UNROLL
      for (int j = 0; j < V; ++j) {
        const T e = m_exp(x[j] - shift);
        sum += e;
        if constexpr (packs > 0 && !Op::logarithm) x[j] = e;
      }
    });
    sum = all.sum(sum);
    if constexpr (Op::logarithm) factor = m_log(sum);
    else factor = T(1) / sum;
  } else {
    if constexpr (Op::centred) {
      T sum = T(0);
      each([&](int, T(&x)[V]) {
        AITC_UNROLL
        for (int j = 0; j < V; ++j) sum += x[j];
      });
      shift = all.sum(sum) / T(K);
    }
    T square = T(0);
    each([&](int, T(&x)[V]) {
      AITC_UNROLL
      for (int j = 0; j < V; ++j) square += (x[j] - shift) * (x[j] - shift);
    });
    factor = T(1) / m_sqrt(all.sum(square) / T(K) + T(op.epsilon));
    if (active && lane == 0) give_statistics(store, row, shift, factor, 0);
  }
  each([&](int k, T(&x)[V]) {
    T y[V];
    AITC_UNROLL
    for (int j = 0; j < V; ++j) {
      if constexpr (packs > 0 && Op::exponential && !Op::logarithm) y[j] = x[j] * factor;
      else y[j] = normalized<Op>(x[j], shift, factor);
    }
    store_pack<V>(store, row, k, y);
  });
  if constexpr (packs == 0) grid_dependency_launch();
}

// Merges over the threads that share V rows; leaves the result in each of them.
template <class Tile, class T> struct ColumnLanes {
  T* scratch;  // (down,V,across)
  int x_index, y_index;
  AITC_FN T& place(int y, int j) const { return scratch[(y * Tile::V + j) * Tile::across + x_index]; }
  template <class Op> AITC_FN void over(T (&v)[Tile::V], Op merge) const {
    if constexpr (Tile::down > 1) {
      block_barrier();
      AITC_UNROLL
      for (int j = 0; j < Tile::V; ++j) place(y_index, j) = v[j];
      AITC_NO_UNROLL
      for (int half = Tile::down / 2; half > 0; half /= 2) {
        block_barrier();
        if (y_index < half) {
          AITC_UNROLL
          for (int j = 0; j < Tile::V; ++j) place(y_index, j) = merge(place(y_index, j), place(y_index + half, j));
        }
      }
      block_barrier();
      AITC_UNROLL
      for (int j = 0; j < Tile::V; ++j) v[j] = place(0, j);
    }
  }
};

template <class Tile, class Op, class Shape, class Load, class Store, class Blocks = AllBlocks>
AITC_FN void normalize_columns(const Op& op, const Shape& shape, const Load& load, const Store& store,
                               const Blocks& blocks = {}) {
  using T = typename Load::type;
  constexpr int V = Tile::V;
  const int64_t rows = shape.rows;
  const int K = int(shape.K), x_index = thread_index() % Tile::across, y_index = thread_index() / Tile::across;
  const int64_t row = (int64_t(blocks.index()) * Tile::across + x_index) * V;
  const bool active = row < rows;
  grid_dependency_wait();

  const auto each = [&](auto&& f) {
    if (active) for_packs<V, true>(load, row, y_index, K, Tile::down, f);
  };
  const ColumnLanes<Tile, T> all{reinterpret_cast<T*>(shared_memory()), x_index, y_index};
  const auto add = [](T a, T b) { return a + b; };
  T shift[V], factor[V];
  AITC_UNROLL
  for (int j = 0; j < V; ++j) shift[j] = Op::exponential ? lowest<T>() : T(0), factor[j] = T(0);
  if constexpr (Op::exponential) {
    each([&](int, T(&x)[V]) {
      AITC_UNROLL
      for (int j = 0; j < V; ++j) shift[j] = m_max(shift[j], x[j]);
    });
    all.over(shift, [](T a, T b) { return m_max(a, b); });
    each([&](int, T(&x)[V]) {
      AITC_UNROLL
      for (int j = 0; j < V; ++j) factor[j] += m_exp(x[j] - shift[j]);
    });
    all.over(factor, add);
    AITC_UNROLL
    for (int j = 0; j < V; ++j) {
      if constexpr (Op::logarithm) factor[j] = m_log(factor[j]);
      else factor[j] = T(1) / factor[j];
    }
  } else {
    if constexpr (Op::centred) {
      each([&](int, T(&x)[V]) {
        AITC_UNROLL
        for (int j = 0; j < V; ++j) shift[j] += x[j];
      });
      all.over(shift, add);
      AITC_UNROLL
      for (int j = 0; j < V; ++j) shift[j] /= T(K);
    }
    each([&](int, T(&x)[V]) {
      AITC_UNROLL
      for (int j = 0; j < V; ++j) factor[j] += (x[j] - shift[j]) * (x[j] - shift[j]);
    });
    all.over(factor, add);
    AITC_UNROLL
    for (int j = 0; j < V; ++j) {
      factor[j] = T(1) / m_sqrt(factor[j] / T(K) + T(op.epsilon));
      if (active && y_index == 0) give_statistics(store, row + j, shift[j], factor[j], 0);
    }
  }
  each([&](int k, T(&x)[V]) {
    T y[V];
    AITC_UNROLL
    for (int j = 0; j < V; ++j) y[j] = normalized<Op>(x[j], shift[j], factor[j]);
    store_pack<V, true>(store, row, k, y);
  });
  grid_dependency_launch();
}

AITC_END
