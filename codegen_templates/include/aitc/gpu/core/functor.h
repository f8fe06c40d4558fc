// functor.h: calls load and store functors with vectors no wider than they allow.
#pragma once
#include "aitc/types.h"

AITC_BEGIN

// x[j] = load(row, k + j), or load(row + j, k) if along_rows; V a power of two.
template <int V, bool along_rows = false, class Load, class T>
AITC_FN void load_pack(const Load& load, int64_t row, int64_t k, T (&x)[V]) {
  constexpr int W = min_of(V, Load::width);
  if constexpr (W == V) {
    load.template operator()<V>(row, k, x);
  } else {
    AITC_UNROLL
    for (int j = 0; j < V; j += W) {
      T part[W];
      load.template operator()<W>(along_rows ? row + j : row, along_rows ? k : k + j, part);
      AITC_UNROLL
      for (int e = 0; e < W; ++e) x[j + e] = part[e];
    }
  }
}
template <int V, bool along_rows = false, class Store, class T>
AITC_FN void store_pack(const Store& store, int64_t row, int64_t k, const T (&x)[V]) {
  constexpr int W = min_of(V, Store::width);
  if constexpr (W == V) {
    store.template operator()<V>(row, k, x);
  } else {
    AITC_UNROLL
    for (int j = 0; j < V; j += W) {
      T part[W];
      AITC_UNROLL
      for (int e = 0; e < W; ++e) part[e] = x[j + e];
      store.template operator()<W>(along_rows ? row + j : row, along_rows ? k : k + j, part);
    }
  }
}

// f(k, x) for the packs at k = first, first + step ... below K of a row (along_rows: of V rows), in order. Four loads are
// under way before the first of them is used, and before anything is stored.
template <int V, bool along_rows = false, class Load, class F>
AITC_FN void for_packs(const Load& load, int64_t row, int first, int K, int step, F&& f) {
  constexpr int batch = 4;
  AITC_NO_UNROLL
  for (int k = first; k < K; k += batch * step) {
    typename Load::type x[batch][V];
    AITC_UNROLL
    for (int b = 0; b < batch; ++b)
      if (b * step < K - k) load_pack<V, along_rows>(load, row, k + b * step, x[b]);
    AITC_UNROLL
    for (int b = 0; b < batch; ++b)
      if (b * step < K - k) f(k + b * step, x[b]);
    if (K - k <= batch * step) break;  // before k overflows
  }
}

// A value of any size between the lanes of a warp, in words of 4 bytes.
template <class State> AITC_FN State shuffle_state_xor(const State& s, int mask) {
  static_assert(sizeof(State) % 4 == 0, "whole words");
  constexpr int words = int(sizeof(State)) / 4;
  uint32_t from[words], to[words];
  __builtin_memcpy(from, &s, sizeof(State));
  AITC_UNROLL
  for (int i = 0; i < words; ++i) to[i] = shuffle_xor(from[i], mask);
  State r;
  __builtin_memcpy(&r, to, sizeof(State));
  return r;
}

AITC_END
