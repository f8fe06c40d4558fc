// The k largest (or smallest) of a line, in order; of equal ones the first comes first; NaN counts as the largest.
//
//   topk_rank<largest, T>(at, place, n, k)          GPUs: how many elements come before element `place` (any number >= k when it is not among the k)
//   topk_line<largest, T>(at, n, k, keep)           cpu: calls keep(rank, place) for the k first
//
// at(r) gives element r of the line as T.
#pragma once
#include "aitc/generic/element.h"
#if !AITC_GPU
#include <algorithm>
#endif

AITC_BEGIN

// Whether element a at place i comes before element b at place j.
template <bool largest, class T, class I> AITC_FN bool topk_before(T a, I i, T b, I j) {
  const bool a_nan = a != a, b_nan = b != b;
  if (a_nan || b_nan) {
    if (a_nan && b_nan) return i < j;
    return a_nan == largest;
  }
  if (a == b) return i < j;
  return largest ? a > b : a < b;
}

#if AITC_GPU
template <bool largest, class T, class At, class I> AITC_FN I topk_rank(const At& at, I place, I n, I k) {
  const T mine = at(place);
  I rank = 0;
  for (I r = 0; r < n && rank < k; ++r) rank += topk_before<largest, T, I>(at(r), r, mine, place) ? 1 : 0;
  return rank;
}
#else
template <bool largest, class T, class At, class I, class Keep> AITC_FN void topk_line(const At& at, I n, I k, const Keep& keep) {
  struct Entry {
    T value;
    I place;
  };
  Entry* entries = static_cast<Entry*>(scratch(2, size_t(n + 1) * sizeof(Entry)));
  for (I r = 0; r < n; ++r) entries[r] = Entry{T(at(r)), r};
  std::partial_sort(entries, entries + k, entries + n,
                    [](const Entry& a, const Entry& b) { return topk_before<largest, T, I>(a.value, a.place, b.value, b.place); });
  for (I rank = 0; rank < k; ++rank) keep(rank, entries[rank].place);
}
#endif

AITC_END
