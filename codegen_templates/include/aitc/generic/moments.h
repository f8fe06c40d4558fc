// moments.h: mean and deviation of a row from the moments of its parts, which an epilogue has left in memory.
//
//   merged_moments<Parts, Width, Centred>(parts, epsilon) -> RowMoments
//   RowParts<Parts, Across> mine; mine.load_from(parts, across); merged_moments<Width, Centred>(mine, epsilon, across) -> RowMoments
//     parts    Parts pairs: the mean of Width elements, and the sum of their squared differences from it
//     across   Alone{}, or the lanes that share the work: static constexpr int count; int index(); float sum(float)
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

// What a lane loads of a row's moments. Loading and merging are apart, so that the loads of several rows are under way at once.
template <int Parts, class Across> struct RowParts {
  static constexpr int each = (Parts + Across::count - 1) / Across::count, V = Parts % Across::count == 0 && each % 2 == 0 ? 2 : 1;
  Vec<float, 2 * V> v[each / V];
  AITC_FN void load_from(const float* parts, const Across& across) {
    const int first = across.index() * each;
    AITC_UNROLL
    for (int i = 0; i < each / V; ++i)
      if (V == 2 || first + i < Parts) v[i] = load<2 * V>(parts + (first + i * V) * 2);
  }
};

template <int Width, bool Centred = true, int Parts, class Across> AITC_FN RowMoments merged_moments(const RowParts<Parts, Across>& parts, float epsilon, const Across& across) {
  using Mine = RowParts<Parts, Across>;
  constexpr int V = Mine::V, n = Mine::each / V;
  const int first = across.index() * Mine::each;
  float sum = 0, squares = 0, apart = 0;
  AITC_UNROLL
  for (int i = 0; i < n; ++i)
    AITC_UNROLL
    for (int e = 0; e < V; ++e)
      if (V == 2 || first + i < Parts) sum += parts.v[i][2 * e], squares += parts.v[i][2 * e + 1];
  const float mean = Centred ? across.sum(sum) / Parts : 0.0f;
  AITC_UNROLL
  for (int i = 0; i < n; ++i)
    AITC_UNROLL
    for (int e = 0; e < V; ++e)
      if (V == 2 || first + i < Parts) apart += (parts.v[i][2 * e] - mean) * (parts.v[i][2 * e] - mean);
  return {mean, m_rsqrt(across.sum(squares + Width * apart) / float(Parts * Width) + epsilon)};
}

template <int Parts, int Width, bool Centred = true> AITC_FN RowMoments merged_moments(const float* parts, float epsilon) {
  RowParts<Parts, Alone> mine;
  mine.load_from(parts, Alone{});
  return merged_moments<Width, Centred>(mine, epsilon, Alone{});
}

AITC_END
