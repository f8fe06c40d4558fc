// Batched matrix product on cpu: store(batch, row, col, sum over k of A[batch, row, k] * B[batch, k, col]).
//
//   gemm<Tile<>>(shape, a, b, store)
//
//   Tile<rows = 0, vectors = 0>   register tile: rows x (vectors * lanes); 0 = the instruction set's best (AVX-512 8 x 32,
//                                 AVX2 6 x 16 floats), and for a static M the height that divides it best
//   Shape    batch, M, N, K: static constexpr int, or int members read at run time. Any may be 0.
//   A        (batch, M, K): using type; static constexpr Major major = Major::K (stride_col == 1), Major::M (stride_row == 1) or
//            Major::none; int64_t stride_row, stride_col in elements, static constexpr or members, any value (0 broadcasts);
//            const type* matrix(int batch) const
//   B        (batch, K, N): using type; then either the same with major Major::N (stride_col == 1), Major::K or Major::none,
//            or, for constants, `static constexpr bool packed = true` and matrix(batch) points to panels [ceil(N/32)][K][32]
//            of `type` (cpu/microkernel.h says how to make them in numpy). Packed float is the fast way.
//   Store    static constexpr int width; operator()<V>(int batch, int64_t row, int64_t col, const S (&acc)[V]), V <= width; 16 is best
//   types    float, half_t, bfloat16_t, float8 sum in float; double in double; integers up to 32 bits in int32_t (wrapping),
//            64 bits in int64_t; that type is S. A and B may differ (uint8_t x int8_t).
//
// `width` of operands is ignored: loads may be unaligned. For small M (decoding, fully connected layers at batch 1) the strip
// is M high and packed B streams through once, at memory speed.
//
//   #include "aitc/cpu/gemm.h"
//   using namespace aitc;
//   struct Shape { static constexpr int batch = 1; int M; static constexpr int N = 768, K = 3072; };
//   struct A {                                              // (batch, M, K)
//     using type = float;
//     static constexpr Major major = Major::K;
//     static constexpr int64_t stride_row = 3072, stride_col = 1;
//     const float* data;
//     AITC_FN const float* matrix(int) const { return data; }
//   };
//   struct B {                                              // (batch, K, N), in panels
//     using type = float;
//     static constexpr bool packed = true;
//     const float* data;
//     AITC_FN const float* matrix(int) const { return data; }
//   };
//   struct Store {
//     static constexpr int width = 16;
//     const float* bias; float* out;
//     template <int V> AITC_FN void operator()(int, int64_t row, int64_t col, const float (&acc)[V]) const {
//       const auto v0 = load<V>(bias + col);
//       Vec<float, V> r;
//       AITC_UNROLL for (int j = 0; j < V; ++j) r[j] = acc[j] + v0[j];
//       store<V>(out + row * 768 + col, r);
//     }
//   };
//   AITC_KERNEL(0) void AITC_ENTRY(gemm_4)(const float* x, const float* w, const float* bias, float* out, int M) {
//     gemm<Tile<>>(Shape{M}, A{x}, B{w}, Store{bias, out});
//   }
#pragma once
#include "aitc/cpu/panel.h"
#include "aitc/operand.h"

AITC_BEGIN
namespace {

AITC_STATIC_MEMBER(M)
AITC_STATIC_MEMBER(N)

// dst[i * dst_stride + k] = A[first + i, k]: rows that the micro-kernel can read.
template <typename T, typename A>
void pack_rows(const A& a, const typename A::type* matrix, int64_t first, int64_t rows, int64_t K, T* dst, int64_t dst_stride) {
  const typename A::type* src = matrix + first * a.stride_row;
  if constexpr (A::major == Major::M && is_same<T, typename A::type>) {
    for (int64_t k = 0; k < K; k += 16)
      transpose_block(min_of(int64_t(16), K - k), rows, src + k * a.stride_col, a.stride_col, dst + k, dst_stride);
  } else if constexpr (A::major == Major::K) {
    for (int64_t i = 0; i < rows; ++i) {
      const typename A::type* row = src + i * a.stride_row;
      T* out = dst + i * dst_stride;
#pragma omp simd
      for (int64_t k = 0; k < K; ++k) out[k] = convert<T>(row[k]);
    }
  } else {
    for (int64_t k0 = 0; k0 < K; k0 += 16)  // 16 columns at a time: each line of dst is filled while it is in the cache
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t k = k0; k < min_of(K, k0 + 16); ++k) dst[i * dst_stride + k] = convert<T>(src[i * a.stride_row + k * a.stride_col]);
  }
}

template <int R, int NV, typename Shape, typename A, typename B, typename Store>
void gemm_strips(const Shape& shape, const A& a, const B& b, const Store& store) {
  using T = sum_t<typename A::type, typename B::type>;
  constexpr bool packed = is_packed<B>(0);
  constexpr bool rows_usable = is_same<T, typename A::type> && A::major == Major::K;
  const int64_t M = shape.M, N = shape.N, K = shape.K;
  if (M <= 0 || N <= 0 || shape.batch <= 0) return;
  const Blocks blocks = cut_blocks(shape.batch, M, N, K, R, int(sizeof(T)), packed ? 48 : 256);

  parallel_for(blocks.tasks(shape.batch), blocks.grain, [&](int64_t begin, int64_t end) {
    // Rows a multiple of a page apart fall into the same few lines of the first-level cache: such A is copied, too.
    const bool copy = !rows_usable || (M > R && int64_t(a.stride_row) * int64_t(sizeof(T)) % 4096 == 0);
    const int64_t row_elems = round_up(K, 16) + 16, strips = blocks.m / R;
    const int64_t table_bytes = round_up(strips * R * int64_t(sizeof(T*)), 64);
    char* memory = static_cast<char*>(scratch(2, size_t(table_bytes + (copy ? blocks.m * row_elems * int64_t(sizeof(T)) : 0))));
    const T** table = reinterpret_cast<const T**>(memory);  // (strips,R)
    T* copied = reinterpret_cast<T*>(memory + table_bytes);  // (m,row_elems)
    T* own_panel = packed && is_same<T, typename B::type> ? nullptr : static_cast<T*>(scratch(3, size_t(K * panel_width) * sizeof(T)));

    int64_t in_table = -1;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t m_block = task % blocks.m_blocks, rest = task / blocks.m_blocks;
      const int64_t group = rest % blocks.groups, batch = rest / blocks.groups;
      const int64_t row = m_block * blocks.m, rows = min_of(blocks.m, M - row);
      if (in_table != batch * blocks.m_blocks + m_block) {
        in_table = batch * blocks.m_blocks + m_block;
        const typename A::type* matrix = a.matrix(int(batch));
        if (copy) pack_rows(a, matrix, row, rows, K, copied, row_elems);
        for (int64_t i = 0; i < round_up(rows, R); ++i) {
          const int64_t r = min_of(i, rows - 1);  // strips are whole: the last row again, its results are dropped
          if constexpr (rows_usable) table[i] = copy ? copied + r * row_elems : matrix + (row + r) * a.stride_row;
          else table[i] = copied + r * row_elems;
        }
      }
      const typename B::type* matrix = b.matrix(int(batch));
      const int64_t last = min_of((group + 1) * blocks.panels, ceil_div(N, panel_width));
      for (int64_t p = group * blocks.panels; p < last; ++p) {
        const int64_t col = p * panel_width;
        const int cols = int(min_of(int64_t(panel_width), N - col));
        const T* panel = get_panel<T>(b, matrix, p, col, cols, K, own_panel);
        multiply_block<R, NV, static_N<Shape>(0)>(table, rows, 1, K, panel, store, int(batch), row, col, cols);
      }
    }
  });
}

template <typename Tile, typename Shape, typename A, typename B, typename Store>
inline void gemm(const Shape& shape, const A& a, const B& b, const Store& store) {
  constexpr int M = static_M<Shape>(0), most = Tile::rows;
  if constexpr (M > 0) {
    gemm_strips<best_strip(M, most), Tile::vectors>(shape, a, b, store);
  } else {
    constexpr int low = 4;  // for few rows, and for those that would leave a tall strip half empty
    const int64_t rows = shape.M;
    if (ceil_div(rows, most) * most <= ceil_div(rows, low) * low + low) gemm_strips<most, Tile::vectors>(shape, a, b, store);
    else gemm_strips<low, Tile::vectors>(shape, a, b, store);
  }
}

}  // namespace
AITC_END
