// The map kernel: a loop over the flattened output space, for cpu, CUDA and HIP alike.
//
//   aitc::for_each<V>(int64_t count, const Body& body)
//
// calls body.template operator()<V>(i) exactly once for each i = 0, V, 2V, ... with i + V <= count, and operator()<1>(i)
// for each of the remaining count % V elements, in any order and from many threads. The body loads, computes and stores by
// itself. V elements are consecutive in the flattened output space; whoever chooses V sees to it that they do not cross a
// row where that matters. On cpu a V of 16 (floats) or 32 (16-bit types) is right for contiguous operands.
// The loop is the back end's, `cpu/cpu.h` or `gpu/gpu.h`; an entry point is
//
//   struct Body {                                          // relu_3: Relu "/layer1/Relu"
//     const float* x; float* y;
//     template <int V> AITC_FN void operator()(int64_t i) const {
//       const auto v0 = load<V>(x + i);
//       Vec<float, V> r0;
//       AITC_UNROLL for (int j = 0; j < V; ++j) r0[j] = relu(v0[j]);
//       store<V>(y + i, r0);
//     }
//   };
//   AITC_KERNEL(256) void AITC_ENTRY(relu_3)(const float* x, float* y, int N) { for_each<16>(int64_t(N) * 768, Body{x, y}); }
#pragma once
#include "aitc/math.h"
#include "aitc/platform.h"
#include "aitc/types.h"
