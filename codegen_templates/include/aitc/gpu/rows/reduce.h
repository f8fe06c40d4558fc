// reduce.h: store(row, 0, Operation over k of load(row, k)) on GPUs.
//
//   reduce_rows<Op, RowReduction<V, lanes, threads>>(shape, load, store)
//     k is contiguous in memory: V runs along k. `lanes` threads share a row: a power of two up to warp_size, or all
//     `threads`, a multiple of warp_size. A block takes threads / lanes rows.
//     Blocks   ceil(rows / (threads / lanes)) in x
//     Shared   lanes > warp_size ? threads / warp_size * state : 0
//   reduce_columns<Op, ColumnReduction<V, across, down>>(shape, load, store)
//     row is contiguous in memory: V runs along row. `across` threads side by side take V rows each, `down` threads (a
//     power of two) share them.
//     Blocks   ceil(rows / (V * across)) in x
//     Threads  across * down
//     Shared   down > 1 ? across * down * V * state : 0
//   `state` is sizeof(T); LogSumExp, ArgMax and ArgMin: 2 * sizeof(T).
//
//   Op       aitc/reduction.h: Sum Mean Max Min Prod SumSquare L1 L2 LogSum LogSumExp ArgMax<last> ArgMin<last>
//   Shape    rows, K: static constexpr int or int64_t, or members read at run time; K < 2^31
//   Load     using type = T: float, double, int32_t or int64_t, in which the reduction is made; static constexpr int
//            width; operator()<W>(int64_t row, int64_t k, T (&x)[W]), W <= min(V, width): x[j] = element (row, k + j)
//            resp. (row + j, k)
//   Store    static constexpr int width (1 for reduce_rows); operator()<W>(int64_t row, int64_t zero, const R
//            (&acc)[W]): acc[j] belongs to row + j. R is T, or int64_t for ArgMax and ArgMin
// V is a power of two that divides K (reduce_rows) or rows (reduce_columns) and whatever the rows are cut from: no
// vector crosses a gap in memory. Few rows, long: do it in two launches, (rows, parts, K / parts) first.
//
//   #include "aitc/gpu/rows/reduce.h"
//   using namespace aitc;
//   struct Shape { static constexpr int64_t rows = 2048, K = 49; };          // mean over (7,7) of (7,7,2048): columns
//   struct Load {
//     using type = float;
//     static constexpr int width = 8;
//     const half_t* x;
//     template <int V> AITC_FN void operator()(int64_t row, int64_t k, float (&v)[V]) const {
//       const auto v0 = load<V>(x + k * 2048 + row);
//       AITC_UNROLL for (int j = 0; j < V; ++j) v[j] = convert<float>(v0[j]);
//     }
//   };
//   struct Store {
//     static constexpr int width = 8;
//     half_t* y;
//     template <int V> AITC_FN void operator()(int64_t row, int64_t, const float (&acc)[V]) const {
//       Vec<half_t, V> r;
//       AITC_UNROLL for (int j = 0; j < V; ++j) r[j] = convert<half_t>(acc[j]);
//       store<V>(y + row, r);
//     }
//   };
//   AITC_KERNEL(128) void AITC_ENTRY(mean_9)(const half_t* x, half_t* y) {
//     reduce_columns<Mean, ColumnReduction<8, 16, 8>>(Shape{}, Load{x}, Store{y});
//   }
// All functions take `blocks` (blocks.h) last: those of the launch that work on these rows, all unless given.
#pragma once
#include "aitc/gpu/core/blocks.h"
#include "aitc/gpu/core/functor.h"
#include "aitc/reduction.h"

AITC_BEGIN

template <int V_, int Lanes, int Threads> struct RowReduction {
  static constexpr int V = V_, lanes = Lanes, threads = Threads, rows = Threads / Lanes;
  static_assert(lanes <= warp_size || lanes == threads, "a row has a part of a warp, a warp, or the block");
};
template <int V_, int Across, int Down> struct ColumnReduction {
  static constexpr int V = V_, across = Across, down = Down, threads = Across * Down;
};

// What is known of one row after some of its elements.
template <class T> struct PlainState {
  T value;
};
template <class T> struct MaximumState {
  T value, sum;
};
template <class T, class Index> struct IndexState {
  T value;
  Index index;  // -1: nothing yet
};
template <class Op, class T> struct Reduction {
  using State = select_t<Op::has_index, IndexState<T, select_t<sizeof(T) == 8, int64_t, int32_t>>,
                         select_t<Op::has_maximum, MaximumState<T>, PlainState<T>>>;
  using Result = select_t<Op::has_index, int64_t, T>;

  static AITC_FN State first() {
    State s;
    if constexpr (Op::has_maximum) s.value = lowest<T>(), s.sum = T(0);
    else s.value = Op::template first<T>();
    if constexpr (Op::has_index) s.index = -1;
    return s;
  }
  static AITC_FN void add(State& s, T x, int k) {
    if constexpr (Op::has_index) {
      const bool take = Op::better(x, s.value) || (x == s.value && (Op::last || s.index < 0));
      s.value = take ? x : s.value;
      s.index = take ? k : s.index;
    } else if constexpr (Op::has_maximum) {
      const T m = m_max(s.value, x), base = m == lowest<T>() || m == highest<T>() ? T(0) : m;
      s.sum = s.sum * m_exp((s.value == lowest<T>() ? base : s.value) - base) + m_exp(x - base);
      s.value = m;
    } else {
      s.value = Op::add(s.value, x);
    }
  }
  static AITC_FN State merge(const State& a, const State& b) {
    if constexpr (Op::has_index) {
      const bool better = Op::better(b.value, a.value) || (a.value == b.value && (b.index > a.index) == Op::last),
                 take = a.index < 0 || (b.index >= 0 && better);
      return {take ? b.value : a.value, take ? b.index : a.index};  // the members: clang would choose an address
    } else if constexpr (Op::has_maximum) {
      const T m = m_max(a.value, b.value), base = m == lowest<T>() || m == highest<T>() ? T(0) : m;
      State r;
      r.value = m;
      r.sum = (a.sum == T(0) ? T(0) : a.sum * m_exp(a.value - base)) +
              (b.sum == T(0) ? T(0) : b.sum * m_exp(b.value - base));
      return r;
    } else {
      return {Op::merge(a.value, b.value)};
    }
  }
  static AITC_FN Result finish(const State& s, int64_t n) {
    if constexpr (Op::has_index) return s.index < 0 ? 0 : s.index;
    else if constexpr (Op::has_maximum)
      return m_log(s.sum) + (s.value == lowest<T>() || s.value == highest<T>() ? T(0) : s.value);
    else return Op::finish(s.value, n);
  }
};

template <class Op, class Tile, class Shape, class Load, class Store, class Blocks = AllBlocks>
AITC_FN void reduce_rows(const Shape& shape, const Load& load, const Store& store, const Blocks& blocks = {}) {
  using R = Reduction<Op, typename Load::type>;
  using State = typename R::State;
  constexpr int V = Tile::V;
  const int64_t rows = shape.rows;
  const int K = int(shape.K), lane = thread_index() % Tile::lanes;
  const int64_t row = int64_t(blocks.index()) * Tile::rows + thread_index() / Tile::lanes;
  grid_dependency_wait();
  State partial[V];  // one chain of additions each
  AITC_UNROLL
  for (int j = 0; j < V; ++j) partial[j] = R::first();
  if (row < rows)
    for_packs<V>(load, row, lane * V, K, Tile::lanes * V, [&](int k, const typename Load::type(&x)[V]) {
      AITC_UNROLL
      for (int j = 0; j < V; ++j) R::add(partial[j], x[j], k + j);
    });
  grid_dependency_launch();
  State s = partial[0];
  AITC_UNROLL
  for (int j = 1; j < V; ++j) s = R::merge(s, partial[j]);
  AITC_UNROLL
  for (int mask = min_of(Tile::lanes, warp_size) / 2; mask > 0; mask /= 2) s = R::merge(s, shuffle_state_xor(s, mask));
  if constexpr (Tile::lanes > warp_size) {
    State* scratch = reinterpret_cast<State*>(shared_memory());
    if (lane_index() == 0) scratch[warp_index()] = s;
    block_barrier();
    s = scratch[0];
    AITC_UNROLL
    for (int w = 1; w < Tile::threads / warp_size; ++w) s = R::merge(s, scratch[w]);
  }
  if (row < rows && lane == 0) {
    const typename R::Result result[1] = {R::finish(s, K)};
    store.template operator()<1>(row, 0, result);
  }
}

template <class Op, class Tile, class Shape, class Load, class Store, class Blocks = AllBlocks>
AITC_FN void reduce_columns(const Shape& shape, const Load& load, const Store& store, const Blocks& blocks = {}) {
  using R = Reduction<Op, typename Load::type>;
  using State = typename R::State;
  constexpr int V = Tile::V;
  const int64_t rows = shape.rows;
  const int K = int(shape.K), x_index = thread_index() % Tile::across, y_index = thread_index() / Tile::across;
  const int64_t row = (int64_t(blocks.index()) * Tile::across + x_index) * V;
  grid_dependency_wait();
  State state[V];
  AITC_UNROLL
  for (int j = 0; j < V; ++j) state[j] = R::first();
  if (row < rows)
    for_packs<V, true>(load, row, y_index, K, Tile::down, [&](int k, const typename Load::type(&x)[V]) {
      AITC_UNROLL
      for (int j = 0; j < V; ++j) R::add(state[j], x[j], k);
    });
  grid_dependency_launch();
  if constexpr (Tile::down > 1) {
    State* scratch = reinterpret_cast<State*>(shared_memory());  // (down,V,across)
    AITC_UNROLL
    for (int half = Tile::down / 2; half > 0; half /= 2) {
      if (y_index >= half && y_index < 2 * half)
        AITC_UNROLL
        for (int j = 0; j < V; ++j) scratch[(y_index * V + j) * Tile::across + x_index] = state[j];
      block_barrier();
      if (y_index < half)
        AITC_UNROLL
      for (int j = 0; j < V; ++j)
        state[j] = R::merge(state[j], scratch[((y_index + half) * V + j) * Tile::across + x_index]);
    }
  }
  if (row < rows && y_index == 0) {
    typename R::Result result[V];
    AITC_UNROLL
    for (int j = 0; j < V; ++j) result[j] = R::finish(state[j], K);
    store_pack<V, true>(store, row, 0, result);
  }
}

AITC_END
