// Words that the operands of contractions are described in, for every back end.
#pragma once
#include "aitc/platform.h"

AITC_BEGIN

// Which axis of a matrix lies contiguous in memory. A is (batch, M, K): K or M; B is (batch, K, N): K or N; `none`:
// neither has stride 1.
enum class Major { K, M, N, none };

// Whether Shape::N is known when compiling and a multiple of V: then no row ends inside a vector of V.
template <class P> constexpr bool is_static_member = false;
template <> constexpr bool is_static_member<const int*> = true;
template <> constexpr bool is_static_member<const int64_t*> = true;
template <class Shape, int V, bool is_static> struct StaticMultiple {
  static constexpr bool value = V == 1;
};
template <class Shape, int V> struct StaticMultiple<Shape, V, true> {
  static constexpr bool value = Shape::N % V == 0;
};
template <class Shape, int V> constexpr bool static_multiple =
    StaticMultiple<Shape, V, is_static_member<decltype(&Shape::N)>>::value;

AITC_END
