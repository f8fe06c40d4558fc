// The register-blocked product that gemm.h and conv.h share, and what surrounds it.
//
// B lives in panels: 32 columns wide, the same on every instruction set, so that constants are packed once at compile time:
//
//   packed B of a (K, N) matrix: [ceil(N / 32)][K][32], columns beyond N are zero. In numpy:
//     n = -(-N // 32) * 32
//     packed = np.pad(b, ((0, 0), (0, n - N))).reshape(K, n // 32, 32).transpose(1, 0, 2).copy()
//
// A is read through a table of row pointers: for each strip of R rows and each segment, R pointers to `length` contiguous
// elements. A GEMM has one segment (length K); a convolution has one for each filter tap (length C), so that its input is
// multiplied where it lies, and padding is a pointer to zeros.
#pragma once
#include "aitc/cpu/cpu.h"
#include "aitc/types.h"

AITC_BEGIN
namespace {

constexpr int panel_width = 32;

// What products of T and U are summed in.
template <typename T, typename U>
using sum_t = select_t<is_same<T, double> || is_same<U, double>, double,
                       select_t<is_floating<T> || is_floating<U>, float,
                                select_t<(sizeof(T) > 4 || sizeof(U) > 4), int64_t, int32_t>>>;

// Register tile: Rows x (Vectors * lanes). 0 asks for the instruction set's default.
template <int Rows = 0, int Vectors = 0>
struct Tile {
  static constexpr int rows = Rows > 0 ? Rows : AITC_VECTOR_BYTES >= 64 ? 8 : 6;  // more rows than that run out of address registers
  static constexpr int vectors = Vectors > 0 ? Vectors : 2;
};

// static_M<Shape>(0): the member M of Shape if it is a compile-time constant, or 0. (gcc takes the name of a member that is not
// static for an error even where substitution may fail; its address is no error.)
template <typename T>
constexpr bool is_constant = true;
template <typename S, typename T>
constexpr bool is_constant<T S::*> = false;
#define AITC_STATIC_MEMBER(member) \
  template <typename S> \
  constexpr int static_##member(int) { \
    if constexpr (is_constant<decltype(&S::member)>) return int(S::member); \
    else return 0; \
  }

// The best height of strips, at most `most`, for a matrix of `m` rows: a strip costs its rows, and about one more.
constexpr int best_strip(int64_t m, int most) {
  int best = m < most ? int(m) : most;
  for (int rows = best; rows >= (most + 1) / 2; --rows)
    if (ceil_div(m, rows) * (rows + 1) < ceil_div(m, best) * (best + 1)) best = rows;
  return best;
}

// tile(R, NV * L) = sum over segments s, k < length of rows[s * R + r][k] * panel[s * length + k][..]
template <typename T, int R, int NV>
__attribute__((noinline)) void multiply_strip(const T* const* rows, int segments, int64_t length, const T* panel, T* tile) {
  constexpr int L = AITC_VECTOR_BYTES / int(sizeof(T));
  using V = simd_t<T, L>;
  V sum[R][NV];  // (R,NV)
  AITC_UNROLL_ALL
  for (int r = 0; r < R; ++r) {
    AITC_UNROLL_ALL
    for (int v = 0; v < NV; ++v) sum[r][v] = V{};
  }
  for (int s = 0; s < segments; ++s, rows += R) {
    const T* a[R];  // (R)
    AITC_UNROLL_ALL
    for (int r = 0; r < R; ++r) a[r] = rows[r];
    for (int64_t k = 0; k < length; ++k, panel += panel_width) {
      V b[NV];  // (NV)
      AITC_UNROLL_ALL
      for (int v = 0; v < NV; ++v) b[v] = simd_load<V>(panel + v * L);
      __builtin_prefetch(panel + 24 * panel_width);
      __builtin_prefetch(panel + 24 * panel_width + 64 / sizeof(T));
      AITC_UNROLL_ALL
      for (int r = 0; r < R; ++r) {
        const V x = a[r][k] - V{};  // broadcast
        AITC_UNROLL_ALL
        for (int v = 0; v < NV; ++v) sum[r][v] += x * b[v];
      }
    }
  }
  AITC_UNROLL_ALL
  for (int r = 0; r < R; ++r) {
    AITC_UNROLL_ALL
    for (int v = 0; v < NV; ++v) simd_store(tile + (r * NV + v) * L, sum[r][v]);
  }
}

// Hands `cols` results that start at a multiple of V to the store functor, the widest pieces first.
template <int V, typename T, typename Store>
AITC_FN void store_row(const Store& store, int batch, int64_t row, int64_t col, int cols, const T* sums) {
  while (cols >= V) {
    T piece[V];  // (V)
    copy_elements<V>(piece, sums);
    store.template operator()<V>(batch, row, col, piece);
    sums += V, col += V, cols -= V;
  }
  if constexpr (V > 1) {
    if (cols > 0) store_row<V / 2>(store, batch, row, col, cols, sums);
  }
}

template <bool Whole, int Width, typename T, typename Store>
__attribute__((noinline)) void store_tile(const Store& functor, int batch, int64_t row, int64_t col, int rows, int cols, const T* tile) {
  const Store store = functor;  // a copy that no write can alias
  constexpr int V = Store::width < Width ? Store::width : Width;
  for (int r = 0; r < rows; ++r, tile += Width) {
    if constexpr (Whole) {  // N is a multiple of V: no code for narrower pieces
      for (int c = 0; c < cols; c += V) {
        T piece[V];  // (V)
        copy_elements<V>(piece, tile + c);
        store.template operator()<V>(batch, row + r, col + c, piece);
      }
    } else {
      store_row<V>(store, batch, row + r, col, cols, tile);
    }
  }
}

// One panel of B times a block of A: rows [row, row + rows), columns [col, col + cols), cols <= 32.
template <int R, int NV, int N, typename T, typename Store>
void multiply_block(const T* const* table, int64_t rows, int segments, int64_t length, const T* panel, const Store& store, int batch,
                    int64_t row, int64_t col, int cols) {
  constexpr int L = AITC_VECTOR_BYTES / int(sizeof(T)), width = NV * L;
  constexpr bool whole = N > 0 && N % min_of(int(Store::width), width) == 0, whole_half = N > 0 && N % min_of(int(Store::width), L) == 0;
  alignas(64) T tile[R * width];  // (R,NV*L)
  for (int64_t i = 0; i < rows; i += R, table += int64_t(R) * segments) {
    const int valid = int(min_of(int64_t(R), rows - i));
    for (int c = 0; c < cols; c += width) {
      if (NV > 1 && cols - c <= L) {
        if constexpr (N == 0 || (N % width != 0 && N % width <= L)) {
          multiply_strip<T, R, 1>(table, segments, length, panel + c, tile);
          store_tile<whole_half, L>(store, batch, row + i, col + c, valid, cols - c, tile);
        }
      } else {
        multiply_strip<T, R, NV>(table, segments, length, panel + c, tile);
        store_tile<whole, width>(store, batch, row + i, col + c, valid, int(min_of(width, cols - c)), tile);
      }
    }
  }
}

// How a (batch, M, N) problem is cut into tasks: blocks of rows, whose A stays in the second-level cache while panels
// of B pass by, and groups of panels. `m` counts rows, a multiple of the strip; `groups` the groups of `panels` panels.
struct Blocks {
  int64_t m, m_blocks, panels, groups, grain;
  int64_t tasks(int64_t batch) const { return batch * m_blocks * groups; }
};
inline Blocks cut_blocks(int64_t batch, int64_t M, int64_t N, int64_t K, int strip, int element_bytes, int64_t least_m) {
  const int64_t cache_bytes = 256 << 10, least_work = 1 << 17;  // multiplications that are worth another task
  const int64_t all_panels = ceil_div(N, panel_width), threads = num_threads();
  int64_t m = max_of(cache_bytes / (max_of(K, int64_t(1)) * element_bytes), least_m);
  m = min_of(m, M);
  int64_t wanted = min_of(threads == 1 ? 1 : 4 * threads, batch * M * N * K / least_work);
  int64_t m_blocks = ceil_div(M, m);
  int64_t groups = min_of(max_of(ceil_div(wanted, max_of(batch * m_blocks, int64_t(1))), int64_t(1)), all_panels);
  if (batch * m_blocks * groups < wanted) m_blocks = min_of(ceil_div(wanted, batch * groups), ceil_div(M, strip));
  m = round_up(ceil_div(M, max_of(m_blocks, int64_t(1))), strip);
  const int64_t panels = ceil_div(all_panels, groups);
  Blocks blocks{m, ceil_div(M, m), panels, ceil_div(all_panels, panels), 1};
  if (wanted <= 1) blocks.grain = blocks.tasks(batch);
  return blocks;
}

}  // namespace
AITC_END
