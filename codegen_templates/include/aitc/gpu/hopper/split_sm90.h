// split_sm90.h: the product of product_sm90.h when its tiles are too few to fill the device. The blocks of a cluster split K, send their partial rows to the block that owns
// them through distributed shared memory, and each adds up, finishes and stores its share. One launch, no workspace, a fixed order of addition.
//
//   SplitTileSm90<BM, BN, stages, split, rows = BM>
//     BM 64 or 128; BN a multiple of 16 up to 256 (of 64 for a transposed B); split 1, 2, 4 or 8 blocks a cluster; rows: of A in a tile that exist (the box of its map, a multiple
//     of 8): the products of the others are never stored. threads = BM / 16 * 32 + 32, smem_bytes = stages * ((BM + BN) * 128 + 16) + BM * BN * 4, cluster = split
//   Source: as in product_sm90.h; Step(source, first) begins at K-block `first`. Store: operator()<V>(batch, row, col, const float (&acc)[V]), and optionally
//     static constexpr bool enters = true; enter(batch, row, across); settle(across)     as in product_sm90.h
//     static constexpr int moments_of = 32; moments(batch, row, col, mean, squares)     called once for 32 neighbouring results, from column `col` on, with their mean and
//     the sum of their squared differences from it. The functor then gives back what it has stored after `acc`, float (&kept)[V]; N is a multiple of 32.
// Blocks: ceil(M / BM) * ceil(N / BN) * batches * split. Weights (a constant B) are fetched before the kernel before this one has ended.
#pragma once
#include "aitc/gpu/hopper/product_sm90.h"

AITC_BEGIN

template <int BM_, int BN_, int Stages, int Split, int Rows = BM_> struct SplitTileSm90 {
  static constexpr int BM = BM_, BN = BN_, stages = Stages, split = Split, rows = Rows;
  static constexpr int warps = BM / 16, threads = 32 * warps + 32;  // math warps, and the producer
  static constexpr int bytes_a = BM * 128, bytes_b = BN * 128, bytes_parts = BM * BN * 4;
  static constexpr int bands = BM / 8 / Split;  // a block finishes this many of the tile's 8-row bands
  static constexpr int smem_bytes = Stages * (bytes_a + bytes_b + 16) + bytes_parts;
  static_assert(BM % 64 == 0 && BN % 16 == 0 && Rows % 8 == 0 && BM / 8 % Split == 0, "SplitTileSm90");
};

template <class Tile, class Shape, class SourceA, class SourceB, class Store, class Blocks>
AITC_FN void split_sm90(const SourceA& source_a, const SourceB& source_b, const Store& store, int M, int N, int k_blocks, const Blocks& blocks) {
  using T = typename SourceA::type;
  constexpr int BM = Tile::BM, BN = Tile::BN, Stages = Tile::stages, Split = Tile::split, Bands = Tile::bands, Warps = Tile::warps;
  constexpr bool exact = static_multiple<Shape, Store::width>, moments = StoreMoments<Store>::of > 0;
  static_assert(!moments || (StoreMoments<Store>::of == 32 && static_multiple<Shape, 32> && BN % 32 == 0), "the moments of 32 columns");
  constexpr int Across = ceil_div(BN, 32), Items = ceil_div(Bands * Across, Warps);  // an item: one row of 8 columns for each lane
  const uint32_t tiles_a = to_shared(shared_memory()), tiles_b = tiles_a + Stages * Tile::bytes_a;
  const uint32_t parts = tiles_b + Stages * Tile::bytes_b;  // [Split][Bands][BN / 8] 8x8 float matrices
  const uint32_t full = parts + Tile::bytes_parts, empty = full + 8 * Stages;
  const int warp = shuffle(thread_index() / 32, 0), lane = lane_index();
  const int rank = Split > 1 ? int(cluster_rank()) : 0;
  const int m_tiles = ceil_div(M, BM), per_batch = m_tiles * ceil_div(N, BN), block = blocks.index() / Split, batch = block / per_batch, tile = block - batch * per_batch;
  const int m = tile % m_tiles * BM, n = tile / m_tiles * BN;
  const int first = k_blocks * rank / Split, count = k_blocks * (rank + 1) / Split - first;
  const int early = SourceB::constant ? min_of(Stages, count) : 0;
  const auto place_b = source_b.place(batch, n);
  const auto load_b = [&](int s, const typename SourceA::Step& step) {
    barrier_expect(full + 8 * s, Tile::rows * 128 + Tile::bytes_b);
    source_b.template load<BN>(tiles_b + s * Tile::bytes_b, place_b, step, full + 8 * s, 0);
  };

  grid_launch_next();
  if (warp == Warps && lane == 0) {  // the producer sets up and begins alone: weights wait for no earlier kernel
    for (int s = 0; s < Stages; ++s) barrier_init(full + 8 * s, 1), barrier_init(empty + 8 * s, Warps);
    fence_barrier_init();
    typename SourceA::Step step(source_a, first);
    for (int k = 0; k < early; ++k, step.next(source_a)) load_b(k, step);
  }
  block_barrier();
  if (Split > 1) cluster_arrive_relaxed();

  const auto place_of = [&](int i, int& band, int& unit) {
    const int item = i * Warps + warp;
    band = item / Across, unit = item % Across * 4 + lane / 8;
    return m + (rank * Bands + band) * 8 + lane % 8;
  };
  float acc[1][BN / 2];
  RowStores<Store, Items> stores{store};
  Ring<Stages> ring;
  if (warp == Warps) {  // ---- producer ----
    if (lane == 0) {
      const auto place_a = source_a.place(batch, m);
      typename SourceA::Step step(source_a, first);
      grid_wait_previous();
      for (int k = 0; k < count; ++k, ring.next(), step.next(source_a)) {
        const int s = ring.stage;
        if (k >= early) barrier_wait(empty + 8 * s, ring.parity ^ 1), load_b(s, step);
        source_a.template load<Tile::rows>(tiles_a + s * Tile::bytes_a, place_a, step, full + 8 * s, 0);
      }
    }
    warp_barrier();
  } else {  // ---- math ----
    if (warp == 0) prefetch_columns(store, n, min_of(n + BN, N));
    grid_wait_previous();
    if constexpr (StoreEnters<Store>::enters) {
      AITC_UNROLL
      for (int i = 0; i < Items; ++i) {
        int band, unit;
        stores.enter(i, batch, min_of(place_of(i, band, unit), M - 1), RowQuad{8});
      }
      stores.settle(RowQuad{8});
    }
    if (count == 0)
      AITC_UNROLL
      for (int i = 0; i < BN / 2; ++i) acc[0][i] = 0;
    for (int k = 0, before = 0; k < count; ++k, before = ring.stage, ring.next()) {
      barrier_wait(full + 8 * ring.stage, ring.parity);
      const uint32_t at_a = tiles_a + ring.stage * Tile::bytes_a + warp / 4 * 8192, at_b = tiles_b + ring.stage * Tile::bytes_b;
      const uint64_t a = SourceA::transposed ? matrix_descriptor_transposed(at_a, 8192) : matrix_descriptor(at_a);
      const uint64_t b = SourceB::transposed ? matrix_descriptor_transposed(at_b, 8192) : matrix_descriptor(at_b);
      const auto multiply = [&](float(&to)[1][BN / 2], int keep) {
        wgmma_fence();
        AITC_UNROLL
        for (int kk = 0; kk < 4; ++kk)
          wgmma<T, BN, SourceA::transposed, SourceB::transposed>(to[0], a + (SourceA::transposed ? 128 : 2) * kk, b + (SourceB::transposed ? 128 : 2) * kk, keep | kk);
        wgmma_commit();
      };
      if constexpr (sums_apart<T>) {
        float part[1][BN / 2];
        multiply(part, 0);
        wgmma_wait_all(part);
        if (lane == 0) barrier_arrive(empty + 8 * ring.stage);
        AITC_UNROLL
        for (int j = 0; j < BN / 2; ++j) acc[0][j] = k == 0 ? part[0][j] : acc[0][j] + part[0][j];
      } else {
        multiply(acc, k);
        wgmma_wait<1>();
        if (k > 0 && lane == 0) barrier_arrive(empty + 8 * before);
      }
    }
    if constexpr (!sums_apart<T>) wgmma_wait_all(acc);
  }

  if (Split > 1) cluster_wait();  // every block of the cluster runs
  if (warp < Warps)
    AITC_UNROLL
    for (int h = 0; h < 2; ++h) {
      const int band = warp * 2 + h;  // rows m + 8 * band ...
      if (m + band * 8 >= M) continue;
      const uint32_t own = parts + uint32_t(((rank * Bands + band % Bands) * (BN / 8) * 32 + lane) * 8);
      if (band / Bands == rank) {  // not over the network of the cluster
        char* const here = shared_memory() + (own - tiles_a);
        AITC_UNROLL
        for (int j = 0; j < BN / 8; ++j) aitc::store<2>(reinterpret_cast<float*>(here + j * 256), Vec<float, 2>{acc[0][4 * j + 2 * h], acc[0][4 * j + 2 * h + 1]});
        continue;
      }
      const uint32_t to = peer_address(own, uint32_t(band / Bands));
      AITC_UNROLL
      for (int j = 0; j < BN / 8; ++j) store_peer(to + j * 256, float2{acc[0][4 * j + 2 * h], acc[0][4 * j + 2 * h + 1]});
    }
  if (Split > 1) cluster_arrive(), cluster_wait();
  else block_barrier();
  if (warp == Warps) return;
  AITC_UNROLL
  for (int i = 0; i < Items; ++i) {
    int band, unit;
    const int row = place_of(i, band, unit), col = n + unit * 8;
    if (band >= Bands || unit >= BN / 8 || (!moments && (row >= M || col >= N))) continue;
    // Rows 4 to 7 of a unit begin with its second half: no bank is asked twice.
    const int turn = lane % 8 / 4;
    float sums[2][4] = {};
    AITC_UNROLL
    for (int s = 0; s < Split; ++s)
      AITC_UNROLL
      for (int e = 0; e < 2; ++e) {
        const float4 v = load_shared_float4(parts + uint32_t((((s * Bands + band) * (BN / 8) + unit) * 32 + lane % 8 * 4 + (e ^ turn) * 2) * 8));
        sums[e][0] += v.x, sums[e][1] += v.y, sums[e][2] += v.z, sums[e][3] += v.w;
      }
    float x[8];
    AITC_UNROLL
    for (int e = 0; e < 8; ++e) x[e] = turn == e / 4 ? sums[0][e % 4] : sums[1][e % 4];
    const Store& own = stores.at(i);
    if constexpr (moments) {  // the four lanes of a row go together, and none of them leaves the warp
      const bool valid = row < M && col < N;
      float kept[8] = {0, 0, 0, 0, 0, 0, 0, 0}, mean = 0, squares = 0;
      if (valid) store_row<exact>(own, batch, row, col, N, x, kept);
      AITC_UNROLL
      for (int e = 0; e < 8; ++e) mean += kept[e];
      mean = RowQuad{8}.sum(mean) / 32;
      AITC_UNROLL
      for (int e = 0; e < 8; ++e) squares += (kept[e] - mean) * (kept[e] - mean);
      squares = RowQuad{8}.sum(squares);
      if (valid && lane < 8) own.moments(batch, row, col, mean, squares);
    } else {
      store_row<exact>(own, batch, row, col, N, x);
    }
  }
}

AITC_END
