// How gemm.h and conv.h get at the panels of B that cpu/microkernel.h multiplies by.
#pragma once
#include "aitc/cpu/block_transpose.h"
#include "aitc/cpu/microkernel.h"
#include "aitc/operand.h"

AITC_BEGIN
namespace {

template <typename Operand>
constexpr auto is_packed(int) -> decltype(bool(Operand::packed)) {
  return Operand::packed;
}
template <typename Operand>
constexpr bool is_packed(long) {
  return false;
}

// panel[k][c] = B[k, col + c], zero for c >= cols.
template <typename T, typename B>
void pack_panel(const B& b, const typename B::type* matrix, int64_t col, int cols, int64_t K, T* panel) {
  const typename B::type* src = matrix + col * b.stride_col;
  if constexpr (B::major == Major::K && is_same<T, typename B::type>) {
    if (cols < panel_width)
      for (int64_t i = 0; i < K * panel_width; ++i) panel[i] = T(0);
    transpose_block(cols, K, src, b.stride_col, panel, panel_width);
  } else {
    for (int64_t k = 0; k < K; ++k, panel += panel_width) {
      const typename B::type* row = src + k * b.stride_row;
      if (cols == panel_width) {
        if constexpr (B::major == Major::N) {
#pragma omp simd
          for (int c = 0; c < panel_width; ++c) panel[c] = convert<T>(row[c]);
        } else {
          for (int c = 0; c < panel_width; ++c) panel[c] = convert<T>(row[c * b.stride_col]);
        }
      } else {
        for (int c = 0; c < panel_width; ++c) panel[c] = c < cols ? convert<T>(row[c * b.stride_col]) : T(0);
      }
    }
  }
}

// The panel of columns [col, col + cols): where it lies, or made in `own`, which is needed unless B is packed in type T.
template <typename T, typename B>
AITC_FN const T* get_panel(const B& b, const typename B::type* matrix, int64_t index, int64_t col, int cols, int64_t K, T* own) {
  if constexpr (!is_packed<B>(0)) {
    pack_panel(b, matrix, col, cols, K, own);
    return own;
  } else if constexpr (is_same<T, typename B::type>) {
    return matrix + index * K * panel_width;
  } else {
    const typename B::type* src = matrix + index * K * panel_width;
#pragma omp simd
    for (int64_t i = 0; i < K * panel_width; ++i) own[i] = convert<T>(src[i]);
    return own;
  }
}

}  // namespace
AITC_END
