// statistics.h: what a norm of groups of neighbouring channels multiplies each channel of an image stored channels-last by, and then adds, from the mean and the deviation of all
// pixels. Many blocks share an image; each reads whole rows of memory, and the one that comes last adds up what all found, in a fixed order.
//
//   statistics<StatisticsTile<V, across, down, parts>>(op, shape, load, scale, bias, factors, sums, tickets)
//     A block takes `across` vectors of V neighbouring channels (whole groups; C a multiple of them) of one of `parts` parts of an image's pixels. Threads across * down, a multiple
//     of the warp size.
//     Blocks   images * C / (across * V) * parts
//     Shared   threads * V * 8
//   op       LayerNorm{e} or RMSNorm{e} (mean 0) of normalize.h
//   Shape    int images; static constexpr int space (pixels of an image), C, width (channels of a group)
//   Load     using type = float; operator()<W>(int64_t row, int64_t k, float (&x)[W]): channels k ... of pixel row, images * space pixels in all
//   scale, bias    float[C]
//   factors  float[2 * images * C]: scale / sqrt(variance + e) of each channel of each image, then bias - mean of its group * that
//   sums     float[images * (C / width) * parts * 2], nullptr if parts is 1
//   tickets  int[min(images * C / (across * V), statistics_units)], 0 before and after, likewise. With more units than that none is divided: they fill the device
//
// Sums are those of differences from the group's first element: no cancellation, and partial sums of any threads add up.
#pragma once
#include "aitc/gpu/core/functor.h"
#include "aitc/gpu/rows/normalize.h"

AITC_BEGIN

constexpr int statistics_units = 1024;

template <int V_, int Across, int Down, int Parts> struct StatisticsTile {
  static constexpr int V = V_, across = Across, down = Down, parts = Parts, threads = Across * Down, channels = Across * V_;
  static_assert(threads % warp_size == 0, "StatisticsTile");
};

template <class Tile, class Op, class Shape, class Load>
AITC_FN void statistics(const Op& op, const Shape& shape, const Load& load, const float* scale, const float* bias, float* factors, float* sums, int* tickets) {
  constexpr int V = Tile::V, U = Tile::channels, parts = Tile::parts;
  constexpr int C = Shape::C, width = Shape::width, space = Shape::space, groups = U / width, units = C / U, warps = Tile::threads / warp_size;
  // A thread adds up the channels of a vector that are surely of one group: all, those of a part of the vector, or each alone.
  constexpr int slots = width % V == 0 ? 1 : V % width == 0 ? V / width : V, per_group = max_of(1, width * slots / V);
  // Of wide groups that begin within a vector, it leaves two sums: those of the group of its first channel, and those of the next.
  constexpr bool straddles = slots == V && V > 1 && width > V;
  constexpr int across = Tile::across * (straddles ? 2 : slots), span = (width - 2) / V + 2;  // span: vectors that may hold channels of a group
  constexpr int batch = 4;  // loads of a thread that are under way before the first of them is used
  static_assert(U % width == 0 && C % U == 0, "whole groups");
  const bool divided = parts > 1 && int64_t(shape.images) * units <= statistics_units;
  const int part = int(blockIdx.x) % parts, unit = int(blockIdx.x) / parts;  // unit: image and channels
  if (!divided && part > 0) return;
  const int share = divided ? ceil_div(space, parts) : space;
  const int x_index = thread_index() % Tile::across, y_index = thread_index() / Tile::across;
  const int k = unit % units * U + x_index * V, begin = part * share + y_index, end = min_of(space, (part + 1) * share);
  const int64_t image = int64_t(unit / units) * space;
  using Pair = Vec<float, 2>;                                    // sum, and sum of squares
  Pair* const found = reinterpret_cast<Pair*>(shared_memory());  // (down, across)
  grid_dependency_wait();

  float pivot[slots], sum[slots], square[slots];
  AITC_UNROLL
  for (int j = 0; j < slots; ++j) {
    float first[1] = {0.0f};
    if (Op::centred) load_pack<1>(load, image, (k + j * (V / slots)) / width * width, first);
    pivot[j] = first[0], sum[j] = square[j] = 0.0f;
  }
  AITC_NO_UNROLL
  for (int from = begin; from < end; from += batch * Tile::down) {
    float x[batch][V];
    AITC_UNROLL
    for (int p = 0; p < batch; ++p)
      if (from + p * Tile::down < end) load_pack<V>(load, image + from + p * Tile::down, k, x[p]);
    AITC_UNROLL
    for (int p = 0; p < batch; ++p)
      if (from + p * Tile::down < end) {
        AITC_UNROLL
        for (int j = 0; j < V; ++j) {
          const int at = j * slots / V;
          const float d = x[p][j] - pivot[at];
          sum[at] += d;
          square[at] = m_fma(d, d, square[at]);
        }
      }
  }
  grid_dependency_launch();

  if constexpr (straddles) {
    const int own = width - x_index * V % width;  // channels of the group of the first
    Pair first{0.0f, 0.0f}, next{0.0f, 0.0f};
    AITC_UNROLL
    for (int j = 0; j < V; ++j) {
      const bool mine = j < own;
      first[0] += mine ? sum[j] : 0.0f, first[1] += mine ? square[j] : 0.0f;
      next[0] += mine ? 0.0f : sum[j], next[1] += mine ? 0.0f : square[j];
    }
    found[y_index * across + x_index * 2] = first, found[y_index * across + x_index * 2 + 1] = next;
  } else {
    AITC_UNROLL
    for (int j = 0; j < slots; ++j) found[y_index * across + x_index * slots + j] = Pair{sum[j], square[j]};
  }
  block_barrier();
  const auto plus = [](float a, float b) { return a + b; };
  const auto finish = [&](int g, const Pair& all) {  // a warp
    constexpr float share_of_one = 1.0f / (float(space) * float(width));
    const int channel = unit % units * U + g * width;
    float first[1] = {0.0f};
    if (Op::centred) load_pack<1>(load, image, channel, first);
    const float mean = Op::centred ? all[0] * share_of_one : 0.0f;
    const float inverse = 1.0f / m_sqrt(m_max(all[1] * share_of_one - mean * mean, 0.0f) + op.epsilon);
    float* const to = factors + int64_t(unit / units) * C;
    for (int c = channel + lane_index(); c < channel + width; c += warp_size) {
      const float factor = inverse * scale[c];
      to[c] = factor;
      to[int64_t(shape.images) * C + c] = bias[c] - (first[0] + mean) * factor;
    }
  };
  AITC_NO_UNROLL
  for (int g = warp_index(); g < groups; g += warps) {
    Pair all{0.0f, 0.0f};
    AITC_NO_UNROLL
    for (int i = lane_index(); i < Tile::down * (straddles ? span : per_group); i += warp_size) {
      int at = i / per_group * across + g * per_group + i % per_group;
      if constexpr (straddles) {
        const int x = g * width / V + i % span;
        if (x * V >= (g + 1) * width) continue;
        at = i / span * across + x * 2 + (x * V / width < g);
      }
      const Pair one = found[at];
      all[0] += one[0], all[1] += one[1];
    }
    all[0] = warp_reduce(all[0], plus), all[1] = warp_reduce(all[1], plus);
    if (!divided) finish(g, all);
    else if (lane_index() == 0) aitc::store<2>(sums + ((int64_t(unit) * groups + g) * parts + part) * 2, all);
  }
  if (!divided) return;
  int* const last = reinterpret_cast<int*>(found);
  memory_fence();
  block_barrier();
  if (thread_index() == 0) {
    *last = atomic_add(tickets + unit, 1) == parts - 1;
    if (*last) tickets[unit] = 0;
  }
  block_barrier();
  if (!*last) return;
  memory_fence();
  AITC_NO_UNROLL
  for (int g = warp_index(); g < groups; g += warps) {
    Pair all{0.0f, 0.0f};
    AITC_NO_UNROLL
    for (int p = lane_index(); p < parts; p += warp_size) {
      const auto one = aitc::load<2>(sums + ((int64_t(unit) * groups + g) * parts + p) * 2);
      all[0] += one[0], all[1] += one[1];
    }
    all[0] = warp_reduce(all[0], plus), all[1] = warp_reduce(all[1], plus);
    finish(g, all);
  }
}

AITC_END
