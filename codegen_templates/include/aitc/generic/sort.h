// Sorting in place without recursion or further memory, the same on processors and GPUs (one thread).
#pragma once
#include "aitc/generic/element.h"

AITC_BEGIN

// Heap sort of order[0..n) by before(a, b); not stable, so `before` has to tell all elements apart.
template <class I, class Before> AITC_FN void sort_by(int64_t* order, I n, const Before& before) {
  const auto sift = [&](I root, I end) {
    const int64_t moved = order[root];
    for (I child; (child = 2 * root + 1) < end; root = child) {
      if (child + 1 < end && before(order[child], order[child + 1])) ++child;
      if (!before(moved, order[child])) break;
      order[root] = order[child];
    }
    order[root] = moved;
  };
  for (I i = n / 2; i > 0; --i) sift(i - 1, n);
  for (I end = n; end > 1;) {
    --end;
    const int64_t last = order[end];
    order[end] = order[0];
    order[0] = last;
    sift(0, end);
  }
}

AITC_END
