// moments.h: mean and deviation of a row from the moments of its parts, which an epilogue has left in memory.
//
//   merged_moments<Parts, Width, Centred>(parts, epsilon [, across]) -> RowMoments
//     parts    Parts pairs: the mean of Width elements, and the sum of their squared differences from it
//     across   Alone{} (the default), or the lanes that share the work: static constexpr int count; int index(); float sum(float)
//     Centred  otherwise the mean counts as 0
// The variance is that of the differences from the mean: parts of one size are merged by Chan, Golub and LeVeque's formula.
#pragma once
#include "aitc/math.h"
#include "aitc/platform.h"
#include "aitc/types.h"

AITC_BEGIN

struct RowMoments {
  float mean, inverse;  // 1 / sqrt(variance + epsilon)
};

struct Alone {
  static constexpr int count = 1;
  AITC_FN int index() const { return 0; }
  AITC_FN float sum(float v) const { return v; }
};

template <int Parts, int Width, bool Centred = true, class Across = Alone> AITC_FN RowMoments merged_moments(const float* parts, float epsilon, const Across& across = {}) {
  constexpr int Each = (Parts + Across::count - 1) / Across::count, V = Parts % Across::count == 0 && Each % 2 == 0 ? 2 : 1;
  const int first = across.index() * Each;
  float mean[Each], sum = 0, squares = 0;
  AITC_UNROLL
  for (int i = 0; i < Each; i += V) {
    Vec<float, 2 * V> v{};
    if (V == 2 || first + i < Parts) v = load<2 * V>(parts + (first + i) * 2);
    AITC_UNROLL
    for (int e = 0; e < V; ++e) mean[i + e] = v[2 * e], sum += v[2 * e], squares += v[2 * e + 1];
  }
  const float whole = Centred ? across.sum(sum) / Parts : 0.0f;
  float apart = 0;
  AITC_UNROLL
  for (int i = 0; i < Each; ++i)
    if (V == 2 || first + i < Parts) apart += (mean[i] - whole) * (mean[i] - whole);
  const float variance = across.sum(squares + Width * apart) / float(Parts * Width);
  return {whole, 1.0f / m_sqrt(variance + epsilon)};
}

AITC_END
