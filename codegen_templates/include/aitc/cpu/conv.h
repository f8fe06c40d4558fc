// Convolution on cpu, as a matrix product whose rows are output pixels: 1-D, 2-D and 3-D, strided, dilated, padded, grouped.
//
//   conv<Tile<>>(shape, window, x, filter, store)
//
//   Tile     as in cpu/gemm.h; Tile<> is right
//   Shape    int members, each static constexpr or read at run time: batch; input D, H, W; output O, P, Q (depth, height, width);
//            C and K, channels within a group, in and out; groups. 1-D: D = H = O = P = 1; 2-D: D = O = 1.
//   Window   int members likewise: T, R, S (extent in depth, height, width); stride_d, stride_h, stride_w; dilation_d, dilation_h,
//            dilation_w; pad_d, pad_h, pad_w (before the first element; what lies behind the last is given by O, P, Q)
//   X        using type; const type* data; int64_t stride_n, stride_d, stride_h, stride_w in elements, static constexpr or members
//            (channels are contiguous, group g begins at channel g * C)
//   Filter   an operand B as in cpu/gemm.h of K = T*R*S*C rows, in this order, and N = K columns; matrix(group).
//            Constants: `packed = true` and panels [groups][ceil(K/32)][T*R*S*C][32]. From w of shape (groups*K, C, T, R, S) in numpy:
//              n = -(-K // 32) * 32
//              b = w.reshape(groups, K, C, T*R*S).transpose(0, 3, 2, 1).reshape(groups, T*R*S*C, K)
//              packed = np.pad(b, ((0,0), (0,0), (0, n-K))).reshape(groups, T*R*S*C, n//32, 32).transpose(0, 2, 1, 3).copy()
//            Otherwise K T R S C in memory is `major = Major::K, stride_row = 1, stride_col = T*R*S*C`.
//   Store    operator()<V>(int group, int64_t row, int64_t col, const S (&acc)[V]): row = ((n*O + o)*P + p)*Q + q, col = channel within
//            the group; width and types as in cpu/gemm.h
//
// The input is multiplied where it lies: each row of the product is a list of pointers to C contiguous channels, one for each filter
// tap, and padding points to zeros. With few channels (the first layer) the taps of a filter row, which are neighbours in memory, make
// one piece; only pieces that hang over the border are copied. The input is gathered into rows first if it is of another storage type,
// if its pixels are whole pages apart, or if few channels are not neighbours. A pointwise convolution is simply a GEMM.
//
//   #include "aitc/cpu/conv.h"
//   using namespace aitc;
//   struct Shape {                                          // 1x64x56x56 -> 1x64x56x56
//     static constexpr int batch = 1, D = 1, H = 56, W = 56, O = 1, P = 56, Q = 56, C = 64, K = 64, groups = 1;
//   };
//   struct Window {
//     static constexpr int T = 1, R = 3, S = 3, stride_d = 1, stride_h = 1, stride_w = 1;
//     static constexpr int dilation_d = 1, dilation_h = 1, dilation_w = 1, pad_d = 0, pad_h = 1, pad_w = 1;
//   };
//   struct X {                                              // (N, D, H, W, C)
//     using type = float;
//     static constexpr int64_t stride_n = 56 * 56 * 64, stride_d = 56 * 56 * 64, stride_h = 56 * 64, stride_w = 64;
//     const float* data;
//   };
//   struct Filter {                                         // (T R S C, K), in panels
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
//       AITC_UNROLL for (int j = 0; j < V; ++j) r[j] = m_max(acc[j] + v0[j], 0.0f);
//       store<V>(out + row * 64 + col, r);
//     }
//   };
//   AITC_KERNEL(0) void AITC_ENTRY(conv_2)(const float* x, const float* w, const float* bias, float* out) {
//     conv<Tile<>>(Shape{}, Window{}, X{x}, Filter{w}, Store{bias, out});
//   }
#pragma once
#include "aitc/cpu/panel.h"
#include "aitc/cpu/taps.h"

AITC_BEGIN
namespace {

AITC_STATIC_MEMBER(K)

// dst[(t*R + r)*S + s][c]: the pixel's window as one contiguous row.
template <typename T, typename Shape, typename Window, typename X>
void gather_window(const Shape& shape, const Window& window, const X& x, int group, const Corner& corner, T* dst) {
  const typename X::type* image = x.data + corner.n * x.stride_n + int64_t(group) * shape.C;
  const int64_t C = shape.C;
  for (int t = 0; t < window.T; ++t) {
    const int d = corner.d + t * window.dilation_d;
    for (int r = 0; r < window.R; ++r, dst += window.S * C) {
      const int h = corner.h + r * window.dilation_h;
      if (unsigned(d) >= unsigned(shape.D) || unsigned(h) >= unsigned(shape.H)) {
        for (int64_t i = 0; i < window.S * C; ++i) dst[i] = T(0);
        continue;
      }
      const typename X::type* line = image + d * x.stride_d + h * x.stride_h;
      if (window.dilation_w == 1 && x.stride_w == C) {  // neighbouring taps are neighbours in memory
        const int first = max_of(0, -corner.w), last = max_of(first, min_of(window.S, shape.W - corner.w));
        for (int64_t i = 0; i < first * C; ++i) dst[i] = T(0);
        const typename X::type* src = line + corner.w * C;
#pragma omp simd
        for (int64_t i = first * C; i < last * C; ++i) dst[i] = convert<T>(src[i]);
        for (int64_t i = last * C; i < window.S * C; ++i) dst[i] = T(0);
        continue;
      }
      for (int s = 0; s < window.S; ++s) {
        const int w = corner.w + s * window.dilation_w;
        if (unsigned(w) < unsigned(shape.W)) {
          const typename X::type* src = line + w * x.stride_w;
#pragma omp simd
          for (int64_t c = 0; c < C; ++c) dst[s * C + c] = convert<T>(src[c]);
        } else {
          for (int64_t c = 0; c < C; ++c) dst[s * C + c] = T(0);
        }
      }
    }
  }
}

// table[line * R] = the S neighbouring taps of a filter row as one piece of S * C elements. Pieces that hang over the border are
// made in `border`, which is moved on behind them.
template <int R, typename Shape, typename Window, typename X, typename T>
void point_to_lines(const Shape& shape, const Window& window, const X& x, int group, const Corner& corner, const T* zeros, T*& border,
                    const T** table) {
  const T* image = x.data + corner.n * x.stride_n + int64_t(group) * shape.C;
  const int64_t C = shape.C, length = window.S * C;
  const int64_t first = max_of(0, -corner.w), last = max_of(first, int64_t(min_of(window.S, shape.W - corner.w)));
  for (int t = 0; t < window.T; ++t) {
    const int d = corner.d + t * window.dilation_d;
    for (int r = 0; r < window.R; ++r, table += R) {
      const int h = corner.h + r * window.dilation_h;
      const T* line = image + d * x.stride_d + h * x.stride_h + corner.w * C;
      if (unsigned(d) >= unsigned(shape.D) || unsigned(h) >= unsigned(shape.H)) {
        *table = zeros;
      } else if (first == 0 && last == window.S) {
        *table = line;
      } else {
        for (int64_t i = 0; i < length; ++i) border[i] = i >= first * C && i < last * C ? line[i] : T(0);
        *table = border;
        border += length;
      }
    }
  }
}

template <int R, int NV, typename Shape, typename Window, typename X, typename Filter, typename Store>
void conv_strips(const Shape& shape, const Window& window, const X& x, const Filter& filter, const Store& store) {
  using T = sum_t<typename X::type, typename Filter::type>;
  constexpr bool packed = is_packed<Filter>(0), same_type = is_same<T, typename X::type>;
  constexpr bool own_needed = !packed || !is_same<T, typename Filter::type>;
  const int64_t M = int64_t(shape.batch) * shape.O * shape.P * shape.Q, N = shape.K, C = shape.C;
  const int taps = window.T * window.R * window.S;
  const int64_t depth = taps * C;
  if (M <= 0 || N <= 0 || shape.groups <= 0) return;
  const Blocks blocks = cut_blocks(shape.groups, M, N, depth, R, int(sizeof(T)), packed ? 48 : 256);
  const bool pages = int64_t(x.stride_w) * window.stride_w * int64_t(sizeof(T)) % 4096 == 0;
  const bool lines = same_type && window.S > 1 && C < 16 && window.dilation_w == 1 && x.stride_w == C;
  const bool gather = !lines && (!same_type || (taps > 1 && C < 8) || (pages && M > R));

  parallel_for(blocks.tasks(shape.groups), blocks.grain, [&](int64_t begin, int64_t end) {
    const int segments = gather ? 1 : lines ? window.T * window.R : taps;
    const int64_t length = depth / segments, row_elems = round_up(depth, 16) + 16;
    const int64_t table_bytes = round_up(blocks.m * segments * int64_t(sizeof(T*)), 64);
    const int64_t data_bytes = (gather ? blocks.m * row_elems : length + (lines ? blocks.m * depth : 0)) * int64_t(sizeof(T));
    char* memory = static_cast<char*>(scratch(2, size_t(table_bytes + data_bytes)));
    const T** table = reinterpret_cast<const T**>(memory);         // (m/R,segments,R)
    T* data = reinterpret_cast<T*>(memory + table_bytes);          // (m,row_elems), or (length) zeros and the border's pieces
    T* own_panel = own_needed ? static_cast<T*>(scratch(3, size_t(depth * panel_width) * sizeof(T))) : nullptr;
    if (!gather)
      for (int64_t i = 0; i < length; ++i) data[i] = T(0);

    int64_t in_table = -1;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t m_block = task % blocks.m_blocks, rest = task / blocks.m_blocks;
      const int64_t panel_group = rest % blocks.groups, group = rest / blocks.groups;
      const int64_t row = m_block * blocks.m, rows = min_of(blocks.m, M - row);
      if (in_table != group * blocks.m_blocks + m_block) {
        in_table = group * blocks.m_blocks + m_block;
        T* border = data + length;
        for (int64_t i = 0; i < round_up(rows, R); ++i) {
          const int64_t r = min_of(i, rows - 1);  // strips are whole: the last row again, its results are dropped
          const T** entry = table + (i / R) * R * segments + i % R;
          if (gather) {
            if (r == i) gather_window(shape, window, x, int(group), corner_of(shape, window, row + r), data + r * row_elems);
            *entry = data + r * row_elems;
          } else if constexpr (same_type) {
            if (r < i) {
              for (int s = 0; s < segments; ++s) entry[s * R] = entry[s * R - 1];
            } else if (lines) {
              point_to_lines<R>(shape, window, x, int(group), corner_of(shape, window, row + r), data, border, entry);
            } else {
              point_to_taps<R>(shape, window, x, int(group), corner_of(shape, window, row + r), data, entry);
            }
          }
        }
      }
      const typename Filter::type* matrix = filter.matrix(int(group));
      const int64_t last = min_of((panel_group + 1) * blocks.panels, ceil_div(N, panel_width));
      for (int64_t p = panel_group * blocks.panels; p < last; ++p) {
        const int64_t col = p * panel_width;
        const int cols = int(min_of(int64_t(panel_width), N - col));
        const T* panel = get_panel<T>(filter, matrix, p, col, cols, depth, own_panel);
        multiply_block<R, NV, static_K<Shape>(0)>(table, rows, segments, length, panel, store, int(group), row, col, cols);
      }
    }
  });
}

template <typename Tile, typename Shape, typename Window, typename X, typename Filter, typename Store>
inline void conv(const Shape& shape, const Window& window, const X& x, const Filter& filter, const Store& store) {
  constexpr int most = Tile::rows, low = 4;
  constexpr int64_t M = static_pixels<Shape>();
  if constexpr (M > 0) {
    conv_strips<best_strip(M, most), Tile::vectors>(shape, window, x, filter, store);
  } else {
    const int64_t rows = int64_t(shape.batch) * shape.O * shape.P * shape.Q;
    if (ceil_div(rows, most) * most <= ceil_div(rows, low) * low + low)
      conv_strips<most, Tile::vectors>(shape, window, x, filter, store);
    else conv_strips<low, Tile::vectors>(shape, window, x, filter, store);
  }
}

}  // namespace
AITC_END
