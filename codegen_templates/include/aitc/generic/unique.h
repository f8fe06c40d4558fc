// Unique: the different rows among n, in ascending order or in that of their first occurrence; NaN equals NaN and is the largest.
//
//   unique<sorted, T>(at, n, width, memory, keep, belongs)    returns how many there are; `memory` has room for 3 n numbers
//
// at(r, k) gives element k of row r as T. keep(g, r, count) is called for each different row g, which is found first at row r;
// belongs(r, g) for each row.
#pragma once
#include "aitc/generic/sort.h"

AITC_BEGIN

template <bool sorted, class T, class I, class At, class Keep, class Belongs>
AITC_FN I unique(const At& at, I n, I width, int64_t* memory, const Keep& keep, const Belongs& belongs) {
  int64_t *const order = memory, *const begin = memory + n, *const number = memory + 2 * n;
  const auto compare = [&](int64_t a, int64_t b) {
    for (I k = 0; k < width; ++k) {
      const T x = at(I(a), k), y = at(I(b), k);
      const bool x_nan = x != x, y_nan = y != y;
      if (x_nan || y_nan) {
        if (x_nan != y_nan) return x_nan ? 1 : -1;
      } else if (x != y) {
        return x < y ? -1 : 1;
      }
    }
    return 0;
  };
  for (I r = 0; r < n; ++r) order[r] = r;
  sort_by(order, n, [&](int64_t a, int64_t b) {
    const int c = compare(a, b);
    return c != 0 ? c < 0 : a < b;
  });
  I groups = 0;
  for (I i = 0; i < n; ++i)
    if (i == 0 || compare(order[i - 1], order[i]) != 0) begin[groups++] = i;
  for (I g = 0; g < groups; ++g) number[g] = g;
  if (!sorted) sort_by(number, groups, [&](int64_t a, int64_t b) { return order[begin[a]] < order[begin[b]]; });
  for (I g = 0; g < groups; ++g) {
    const I from = I(begin[number[g]]), to = number[g] + 1 < groups ? I(begin[number[g] + 1]) : n;
    keep(g, I(order[from]), int64_t(to - from));
    for (I i = from; i < to; ++i) belongs(I(order[i]), g);
  }
  return groups;
}

AITC_END
