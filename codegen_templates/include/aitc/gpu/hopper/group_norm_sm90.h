// group_norm_sm90.h: group and instance norms of images stored channels-last, where a group is a few neighbouring channels of every pixel. The blocks of a cluster share
// the pixels of an image, and exchange sums through distributed shared memory: one launch, one read (or two) and one write, whole sectors of memory.
//
//   group_norm_sm90<GroupTileSm90<V, across, down, packs, cluster>>(op, shape, load, store)
//     A block takes `across` vectors of V neighbouring channels: whole groups, C a multiple of them. Its threads, across * down (a multiple of 32, down >= V), hold `packs`
//     vectors each: packs * down * cluster >= space. packs = 0: the image is read again to be stored.
//     Blocks   images * C / (across * V) * cluster
//     Shared   threads * (V + 1) * 8 + cluster * (groups of a block) * 8
//   op       LayerNorm{e} or RMSNorm{e} of normalize.h
//   Shape    int images; static constexpr int space (pixels of an image), C, width (channels of a group)
//   Load     using type = float; operator()<W>(int64_t row, int64_t k, float (&x)[W]): channels k ... of pixel row, images * space pixels in all; Store likewise, with y
//
// Sums are those of differences from the group's first element: no cancellation, and partial sums of any threads add up.
#pragma once
#include "aitc/gpu/hopper/mma_sm90.h"
#include "aitc/gpu/rows/normalize.h"

AITC_BEGIN

template <int V_, int Across, int Down, int Packs, int Cluster> struct GroupTileSm90 {
  static constexpr int V = V_, across = Across, down = Down, packs = Packs, cluster = Cluster;
  static constexpr int threads = Across * Down, channels = Across * V_, slices = threads / channels;
  static_assert(threads % 32 == 0 && slices >= 1, "GroupTileSm90");
};

template <class Tile, class Op, class Shape, class Load, class Store>
AITC_FN void group_norm_sm90(const Op& op, const Shape& shape, const Load& load, const Store& store) {
  constexpr int V = Tile::V, packs = Tile::packs, U = Tile::channels, cluster = Tile::cluster, slices = Tile::slices;
  constexpr int C = Shape::C, width = Shape::width, space = Shape::space, groups = U / width, units = C / U;
  constexpr bool alike = width % V == 0;  // the channels of a vector are of one group
  static_assert(U % width == 0 && C % U == 0, "whole groups");
  constexpr int share = ceil_div(space, cluster);
  static_assert(packs == 0 || packs * Tile::down >= share, "every pixel has a place");
  const int rank = cluster > 1 ? int(cluster_rank()) : 0, block = int(blockIdx.x) / cluster;
  const int x_index = thread_index() % Tile::across, y_index = thread_index() / Tile::across;
  const int channel = x_index * V, k = block % units * U + channel;
  const int64_t image = int64_t(block / units) * space;
  const int begin = rank * share + y_index, end = min_of(space, (rank + 1) * share);
  float2* const parts = reinterpret_cast<float2*>(shared_memory());  // (down, U)
  float2* const fewer = parts + Tile::threads * V;                   // (slices, U)
  float2* const totals = fewer + Tile::threads;                      // (cluster, groups)
  if (cluster > 1) cluster_arrive_relaxed();
  grid_dependency_wait();

  float pivot[V], sum[V], square[V];
  AITC_UNROLL
  for (int j = 0; j < V; ++j) {
    float first[1] = {0.0f};
    if (Op::centred && (!alike || j == 0)) load_pack<1>(load, image, (k + j) / width * width, first);
    pivot[j] = alike && j > 0 ? pivot[0] : first[0];
    sum[j] = square[j] = 0.0f;
  }
  // Several loads of a thread are under way before the first of them is used, or anything is stored.
  constexpr int batch = packs ? packs : alike ? 8 : 4;
  float held[batch][V];
  const auto bring = [&](int from) {
    AITC_UNROLL
    for (int p = 0; p < batch; ++p)
      if (from + p * Tile::down < end) load_pack<V>(load, image + from + p * Tile::down, k, held[p]);
  };
  const auto each = [&](int from, auto&& f) {
    AITC_UNROLL
    for (int p = 0; p < batch; ++p)
      if (from + p * Tile::down < end) f(from + p * Tile::down, held[p]);
  };
  const auto add = [&](int, const float (&x)[V]) {
    AITC_UNROLL
    for (int j = 0; j < V; ++j) {
      const float d = x[j] - pivot[j];
      sum[j] += d;
      square[j] = m_fma(d, d, square[j]);
    }
  };
  if constexpr (packs > 0) {
    bring(begin);
    grid_dependency_launch();
    each(begin, add);
  } else {
    AITC_NO_UNROLL
    for (int from = begin; from < end; from += batch * Tile::down) bring(from), each(from, add);
  }

  // Over the pixels of the block, channel by channel; over the channels of a group, a warp each; over the cluster.
  AITC_UNROLL
  for (int j = 0; j < V; ++j) parts[y_index * U + channel + j] = float2{sum[j], square[j]};
  block_barrier();
  if (thread_index() < slices * U) {
    float2 all{0.0f, 0.0f};
    AITC_NO_UNROLL
    for (int i = thread_index(); i < Tile::down * U; i += slices * U) all.x += parts[i].x, all.y += parts[i].y;
    fewer[thread_index()] = all;
  }
  if (cluster > 1) cluster_wait();  // every block of the cluster runs
  block_barrier();
  AITC_NO_UNROLL
  for (int g = warp_index(); g < groups; g += Tile::threads / warp_size) {
    float2 all{0.0f, 0.0f};
    AITC_NO_UNROLL
    for (int i = lane_index(); i < slices * width; i += warp_size) {
      const float2 one = fewer[i / width * U + g * width + i % width];
      all.x += one.x, all.y += one.y;
    }
    const auto plus = [](float a, float b) { return a + b; };
    all.x = warp_reduce(all.x, plus), all.y = warp_reduce(all.y, plus);
    if constexpr (cluster == 1) {
      if (lane_index() == 0) totals[g] = all;
    } else if (lane_index() < cluster) {
      store_peer(peer_address(to_shared(reinterpret_cast<char*>(totals + rank * groups + g)), uint32_t(lane_index())), all);
    }
  }
  if (cluster > 1) cluster_arrive(), cluster_wait();
  else block_barrier();

  float shift[V], factor[V];
  AITC_UNROLL
  for (int j = 0; j < V; ++j) {
    if (alike && j > 0) {
      shift[j] = shift[0], factor[j] = factor[0];
      continue;
    }
    float2 all{0.0f, 0.0f};
    AITC_UNROLL
    for (int r = 0; r < cluster; ++r) {
      const float2 one = totals[r * groups + (channel + j) / width];
      all.x += one.x, all.y += one.y;
    }
    constexpr float part = 1.0f / (float(space) * float(width));
    const float mean = Op::centred ? all.x * part : 0.0f;
    shift[j] = pivot[j] + mean;
    factor[j] = 1.0f / m_sqrt(m_max(all.y * part - mean * mean, 0.0f) + op.epsilon);
  }
  const auto put = [&](int pixel, const float (&x)[V]) {
    float y[V];
    AITC_UNROLL
    for (int j = 0; j < V; ++j) y[j] = (x[j] - shift[j]) * factor[j];
    store_pack<V>(store, image + pixel, k, y);
  };
  if constexpr (packs > 0) {
    each(begin, put);
  } else {
    AITC_NO_UNROLL
    for (int from = begin; from < end; from += batch * Tile::down) bring(from), each(from, put);
    grid_dependency_launch();
  }
}

AITC_END
