// Non-maximum suppression of the boxes of one class: by falling score, of equal ones the first, each box is kept unless it overlaps one
// that was kept by more than `limit` of their union.
//
//   suppress<centers>(box, score, n, most, limit, threshold, memory, keep)    `memory` has room for n numbers
//
// box(i, k) and score(i) give floats: two opposite corners (y, x, y, x), or with `centers` (x, y, width, height). keep(i) is called for each box
// that is kept, in order.
#pragma once
#include "aitc/generic/sort.h"

AITC_BEGIN

struct Box {
  float top, left, bottom, right;
};

template <bool centers, class I, class At> AITC_FN Box box_at(const At& box, I i) {
  const float a = box(i, 0), b = box(i, 1), c = box(i, 2), d = box(i, 3);
  if (centers) return {b - d / 2, a - c / 2, b + d / 2, a + c / 2};
  return {a < c ? a : c, b < d ? b : d, a < c ? c : a, b < d ? d : b};
}

AITC_FN bool overlaps(const Box& a, const Box& b, float limit) {
  const float top = a.top > b.top ? a.top : b.top, left = a.left > b.left ? a.left : b.left;
  const float bottom = a.bottom < b.bottom ? a.bottom : b.bottom, right = a.right < b.right ? a.right : b.right;
  const float height = bottom - top, width = right - left;
  const float both = height > 0 && width > 0 ? height * width : 0.0f;
  const float all = (a.bottom - a.top) * (a.right - a.left) + (b.bottom - b.top) * (b.right - b.left) - both;
  return both > 0 && both > limit * all;  // `all` is below zero where a width or a height is: such boxes overlap nothing
}

template <bool centers, class I, class At, class Score, class Keep>
AITC_FN void suppress(const At& box, const Score& score, I n, int64_t most, float limit, float threshold, int64_t* memory, const Keep& keep) {
  I candidates = 0;
  for (I i = 0; i < n; ++i)
    if (score(i) > threshold) memory[candidates++] = i;
  sort_by(memory, candidates, [&](int64_t a, int64_t b) {
    const float x = score(I(a)), y = score(I(b));
    return x != y ? x > y : a < b;
  });
  I kept = 0;  // memory[0..kept) are the boxes kept so far
  for (I c = 0; c < candidates && kept < most; ++c) {
    const I i = I(memory[c]);
    const Box mine = box_at<centers, I>(box, i);
    bool free = true;
    for (I k = 0; k < kept && free; ++k) free = !overlaps(box_at<centers, I>(box, I(memory[k])), mine, limit);
    if (!free) continue;
    memory[kept++] = i;
    keep(i);
  }
}

AITC_END
