// Reductions on cpu: store(row, 0, Operation over k of load(row, k)).
//
//   reduce_rows<Op>(shape, load, store)       k is contiguous in memory: V runs along k
//   reduce_columns<Op>(shape, load, store)    row is contiguous in memory: V runs along row
//
//   Op       aitc/reduction.h: Sum Mean Max Min Prod SumSquare L1 L2 LogSum LogSumExp ArgMax<last> ArgMin<last>
//   Shape    rows, K: static constexpr int or int64_t, or members read at run time
//   Load     using type = T: float, double, int32_t or int64_t, in which the reduction is made; static constexpr int width;
//            operator()<V>(int64_t row, int64_t k, T (&x)[V]): x[j] = element (row, k + j) resp. (row + j, k)
//   Store    static constexpr int width (1 for reduce_rows);
//            operator()<V>(int64_t row, int64_t zero, const R (&acc)[V]); acc[j] belongs to row + j. R is T, or int64_t for ArgMax and ArgMin
//
// V is a power of two <= width, the coordinate it runs along a multiple of V; 16 is best. A row that is not contiguous in one
// piece (reduced axes with others between them) is the load functor's business. Sums are made of
// parts of parts: no accumulator takes more than 256 elements or 32 parts of them one after the other until there are millions, so
// that the error does not grow as that of a single running sum does.
// Few long rows are split among the threads.
//
//   #include "aitc/cpu/reduce.h"
//   using namespace aitc;
//   struct Shape { static constexpr int64_t rows = 2048, K = 49; };          // mean over (7,7) of (7,7,2048): columns
//   struct Load {
//     using type = float;
//     static constexpr int width = 16;
//     const float* x;
//     template <int V> AITC_FN void operator()(int64_t row, int64_t k, float (&v)[V]) const {
//       const auto v0 = load<V>(x + k * 2048 + row);
//       AITC_UNROLL for (int j = 0; j < V; ++j) v[j] = v0[j];
//     }
//   };
//   struct Store {
//     static constexpr int width = 16;
//     float* y;
//     template <int V> AITC_FN void operator()(int64_t row, int64_t, const float (&acc)[V]) const {
//       Vec<float, V> r;
//       AITC_UNROLL for (int j = 0; j < V; ++j) r[j] = acc[j];
//       store<V>(y + row, r);
//     }
//   };
//   AITC_KERNEL(0) void AITC_ENTRY(mean_9)(const float* x, float* y) { reduce_columns<Mean>(Shape{}, Load{x}, Store{y}); }
#pragma once
#include "aitc/cpu/cpu.h"
#include "aitc/reduction.h"
#include "aitc/types.h"

AITC_BEGIN
namespace {

// What is known of one row after some of its elements.
template <typename T>
struct Partial {
  T value;        // sum, extreme, or the maximum that `sum` is relative to
  T sum;          // LogSumExp only
  int64_t index;  // ArgMax, ArgMin only
};

template <typename Op, typename T>
AITC_FN Partial<T> merge_partial(const Partial<T>& a, const Partial<T>& b) {
  if constexpr (Op::has_index) {
    const bool tie = a.value == b.value, later = b.index > a.index;
    return Op::better(b.value, a.value) || (tie && later == Op::last) ? b : a;
  } else if constexpr (Op::has_maximum) {
    if (a.sum == T(0)) return b;
    if (b.sum == T(0)) return a;
    const T m = m_max(a.value, b.value);
    return {m, a.sum * m_exp(a.value - m) + b.sum * m_exp(b.value - m), 0};
  } else {
    return {Op::merge(a.value, b.value), T(0), 0};
  }
}

template <typename Op, typename T>
AITC_FN auto finish_partial(const Partial<T>& p, int64_t n) {
  if constexpr (Op::has_index) return p.index;
  else if constexpr (Op::has_maximum) return T(m_log(p.sum) + p.value);
  else return Op::finish(p.value, n);
}

// N running results side by side.
template <typename Op, typename T, int N>
struct Lanes {
  T value[N];                             // (N)
  T sum[Op::has_maximum ? N : 1];         // (N)
  int32_t index[Op::has_index ? N : 1];   // (N), relative to the first element of this part

  AITC_FN void reset() {
    AITC_UNROLL
    for (int i = 0; i < N; ++i) {
      if constexpr (Op::has_maximum) value[i] = lowest<T>(), sum[i] = T(0);
      else value[i] = Op::template first<T>();
      if constexpr (Op::has_index) index[i] = -1;
    }
  }
  // x[j] goes to lane + j. It is element `k` (+ j if Along) of its row. `pass` 1 of LogSumExp knows the maxima.
  template <int V, bool Along>
  AITC_FN void add(int lane, const T (&x)[V], int32_t k, int pass) {
    AITC_UNROLL
    for (int j = 0; j < V; ++j) {
      T& best = value[lane + j];
      if constexpr (Op::has_index) {
        int32_t& at = index[lane + j];
        const bool take = Op::better(x[j], best) | (x[j] == best && (Op::last || at < 0));
        best = take ? x[j] : best;
        at = take ? (Along ? k + j : k) : at;
      } else if constexpr (Op::has_maximum) {
        if (pass == 0) best = m_max(best, x[j]);
        else sum[lane + j] += m_exp(x[j] - best);
      } else {
        best = Op::add(best, x[j]);
      }
    }
  }
  // What `other` has goes into the same lanes, and `other` starts again.
  AITC_FN void take(Lanes& other) {
    AITC_UNROLL
    for (int i = 0; i < N; ++i) value[i] = Op::merge(value[i], other.value[i]);
    other.reset();
  }
  AITC_FN void between_passes(int first, int count) {  // -inf - -inf is not a number
    if constexpr (Op::has_maximum) {
      AITC_UNROLL
      for (int i = first; i < first + count; ++i) value[i] = value[i] == lowest<T>() || value[i] == highest<T>() ? T(0) : value[i];
    }
  }
  // All lanes as one, as a tree of halves.
  AITC_FN Partial<T> fold(int64_t begin) {
    if constexpr (Op::has_maximum) {
      T maxima[N];  // (N), of the lanes that have any
      AITC_UNROLL
      for (int i = 0; i < N; ++i) maxima[i] = sum[i] == T(0) ? lowest<T>() : value[i];
      const T most = fold_lanes<N>(maxima, [](T a, T b) { return m_max(a, b); });
      const T centre = most == lowest<T>() ? T(0) : most;
      AITC_UNROLL
      for (int i = 0; i < N; ++i) sum[i] = sum[i] == T(0) ? T(0) : sum[i] * m_exp(value[i] - centre);
      return {centre, fold_lanes<N>(sum, [](T a, T b) { return a + b; }), 0};
    } else {
      fold_half<N / 2>();
      return get(0, begin);
    }
  }
  template <int Half>
  AITC_FN void fold_half() {
    if constexpr (Half > 0) {
      AITC_UNROLL
      for (int i = 0; i < Half; ++i) {
        if constexpr (Op::has_index) {
          const T a = value[i], b = value[i + Half];
          const int32_t ia = index[i], ib = index[i + Half];
          const bool tie = (a == b) & ((ib >= 0) & ((ia < 0) | ((ib > ia) == Op::last)));
          const bool take = Op::better(b, a) | tie;
          value[i] = take ? b : a;
          index[i] = take ? ib : ia;
        } else {
          value[i] = Op::merge(value[i], value[i + Half]);
        }
      }
      fold_half<Half / 2>();
    }
  }
  AITC_FN Partial<T> get(int i, int64_t begin) const {
    Partial<T> p{value[i], T(0), 0};
    if constexpr (Op::has_maximum) p.sum = sum[i];
    if constexpr (Op::has_index) p.index = begin + (index[i] < 0 ? 0 : index[i]);
    return p;
  }
};

template <int V, typename Op, typename T, int N, typename Load>
AITC_FN void reduce_tail(const Load& load, int64_t row, int64_t begin, int64_t k, int64_t end, Lanes<Op, T, N>& lanes, int pass) {
  for (; k + V <= end; k += V) {
    T x[V];  // (V)
    load.template operator()<V>(row, k, x);
    lanes.template add<V, true>(0, x, int32_t(k - begin), pass);
  }
  if constexpr (V > 1) {
    if (k < end) reduce_tail<V / 2>(load, row, begin, k, end, lanes, pass);
  }
}

// Elements [begin, end) of one row, contiguous in memory; end - begin < 2^31.
template <typename Op, typename Load>
__attribute__((noinline)) Partial<typename Load::type> reduce_row(const Load& functor, int64_t row, int64_t begin, int64_t end) {
  using T = typename Load::type;
  constexpr int V = Load::width, unroll = V >= 16 ? 4 : 64 / V, N = unroll * V;
  const Load load = functor;
  Lanes<Op, T, N> lanes{};
  lanes.reset();
  for (int pass = 0; pass <= int(Op::has_maximum); ++pass) {
    int64_t k = begin;
    for (; k + N <= end; k += N) {
      AITC_UNROLL_ALL
      for (int u = 0; u < unroll; ++u) {
        T x[V];  // (V)
        load.template operator()<V>(row, k + u * V, x);
        lanes.template add<V, true>(u * V, x, int32_t(k + u * V - begin), pass);
      }
    }
    reduce_tail<V>(load, row, begin, k, end, lanes, pass);
    if (pass == 0) lanes.between_passes(0, N);
  }
  return lanes.fold(begin);
}

// Elements [begin, end) of `U * V` neighbouring rows, which are contiguous in memory. A sum is made of parts of 1024 elements, and
// these of parts of 32.
template <int V, int U, typename Op, typename Load>
AITC_FN void reduce_column_block(const Load& load, int64_t row, int64_t begin, int64_t end, Partial<typename Load::type>* partial) {
  using T = typename Load::type;
  for (int64_t first = begin; first == begin || first < end; first += 1024) {
    Lanes<Op, T, V * U> lanes{};
    lanes.reset();
    const int64_t last = min_of(end, first + 1024);
    const auto add_up = [&](int64_t from, int64_t to, auto& into, int pass) {
      for (int64_t k = from; k < to; ++k) {
        AITC_UNROLL_ALL
        for (int u = 0; u < U; ++u) {
          T x[V];  // (V)
          load.template operator()<V>(row + u * V, k, x);
          into.template add<V, false>(u * V, x, int32_t(k - first), pass);
        }
      }
    };
    if constexpr (Op::has_maximum) {
      add_up(first, last, lanes, 0);
      lanes.between_passes(0, V * U);
      add_up(first, last, lanes, 1);
    } else if constexpr (Op::has_index) {
      add_up(first, last, lanes, 0);
    } else {
      Lanes<Op, T, V * U> part{};
      part.reset();
      for (int64_t k = first; k < last; k += 32) {
        add_up(k, min_of(last, k + 32), part, 0);
        lanes.take(part);
      }
    }
    for (int i = 0; i < V * U; ++i) {
      const Partial<T> part = lanes.get(i, first);
      partial[i] = first == begin ? part : merge_partial<Op>(partial[i], part);
    }
  }
}

template <int V, typename Op, typename Load>
void reduce_column_rows(const Load& load, int64_t row, int64_t rows, int64_t begin, int64_t end, Partial<typename Load::type>* partial) {
  for (; rows >= V; rows -= V, row += V, partial += V) reduce_column_block<V, 1, Op>(load, row, begin, end, partial);
  if constexpr (V > 1) {
    if (rows > 0) reduce_column_rows<V / 2, Op>(load, row, rows, begin, end, partial);
  }
}

template <int V, typename Op, typename T, typename Store>
void store_partial(const Store& store, int64_t row, int64_t rows, int64_t n, const Partial<T>* partial) {
  using R = decltype(finish_partial<Op>(*partial, n));
  for (; rows >= V; rows -= V, row += V, partial += V) {
    R results[V];  // (V)
    for (int j = 0; j < V; ++j) results[j] = finish_partial<Op>(partial[j], n);
    store.template operator()<V>(row, 0, results);
  }
  if constexpr (V > 1) {
    if (rows > 0) store_partial<V / 2, Op>(store, row, rows, n, partial);
  }
}

// Common to both forms: blocks of rows, and parts of K if there are fewer blocks than threads.
// `one(row, rows, begin, end, partial)` reduces some elements of some rows.
template <int StoreWidth, typename Op, typename T, typename Store, typename One>
void reduce_blocks(int64_t rows, int64_t K, int64_t block, const Store& store, const One& one) {
  if (rows <= 0) return;
  const int64_t blocks = ceil_div(rows, block), threads = num_threads(), least = 1 << 14;
  int64_t parts = blocks >= 2 * threads ? 1 : max_of(int64_t(1), min_of(ceil_div(2 * threads, blocks), K * min_of(block, rows) / least));
  const int64_t part = max_of(min_of(round_up(ceil_div(K, parts), 64), int64_t(1) << 30), int64_t(64));
  parts = max_of(ceil_div(K, part), int64_t(1));
  const int64_t grain = max_of(int64_t(1), least / max_of(part * block, int64_t(1)));
  if (parts == 1) {
    parallel_for(blocks, grain, [&](int64_t first, int64_t last) {
      Partial<T>* partial = static_cast<Partial<T>*>(scratch(2, size_t(block) * sizeof(Partial<T>)));  // (block)
      for (int64_t i = first; i < last; ++i) {
        const int64_t count = min_of(block, rows - i * block);
        one(i * block, count, int64_t(0), K, partial);
        store_partial<StoreWidth, Op>(store, i * block, count, K, partial);
      }
    });
    return;
  }
  Partial<T>* partial = static_cast<Partial<T>*>(scratch(0, size_t(parts * blocks * block) * sizeof(Partial<T>)));  // (parts,blocks,block)
  parallel_for(blocks * parts, grain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t b = i % blocks, p = i / blocks;
      one(b * block, min_of(block, rows - b * block), p * part, min_of(K, (p + 1) * part), partial + (p * blocks + b) * block);
    }
  });
  for (int64_t p = 1; p < parts; ++p)
    for (int64_t r = 0; r < rows; ++r) partial[r] = merge_partial<Op>(partial[r], partial[p * blocks * block + r]);
  store_partial<StoreWidth, Op>(store, int64_t(0), rows, K, partial);
}

template <typename Op, typename Shape, typename Load, typename Store>
inline void reduce_rows(const Shape& shape, const Load& load, const Store& store) {
  using T = typename Load::type;
  constexpr int64_t part = 1 << 14;  // 256 elements a lane
  reduce_blocks<1, Op, T>(shape.rows, shape.K, 1, store, [&](int64_t row, int64_t, int64_t begin, int64_t end, Partial<T>* partial) {
    partial[0] = reduce_row<Op>(load, row, begin, min_of(end, begin + part));
    for (int64_t k = begin + part; k < end; k += part)
      partial[0] = merge_partial<Op>(partial[0], reduce_row<Op>(load, row, k, min_of(end, k + part)));
  });
}

template <typename Op, typename Shape, typename Load, typename Store>
inline void reduce_columns(const Shape& shape, const Load& functor, const Store& store) {
  using T = typename Load::type;
  constexpr int V = Load::width, U = 4;
  reduce_blocks<Store::width, Op, T>(
      shape.rows, shape.K, U * V, store, [&](int64_t row, int64_t rows, int64_t begin, int64_t end, Partial<T>* partial) {
        const Load load = functor;
        if (rows == U * V) reduce_column_block<V, U, Op>(load, row, begin, end, partial);
        else reduce_column_rows<V, Op>(load, row, rows, begin, end, partial);
      });
}

}  // namespace
AITC_END
