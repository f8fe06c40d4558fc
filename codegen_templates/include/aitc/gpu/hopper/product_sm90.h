// product_sm90.h: the matrix product that gemm_sm90.h and conv_sm90.h are made of: D(M,N) = epilogue(A(M,K) B(K,N)) by wgmma, operands of 2 bytes, of 4 (float, as TF32) or
// of 1 (float8), sums in float. A K-block is 128 bytes of a row: block_elems<T> elements; only operands of 2 bytes may be M- or N-major.
//
// A persistent block for each multiprocessor. A producer thread streams K-blocks of A and B through a ring of shared-memory stages; one to three warpgroups multiply them, take
// their registers through the epilogue and store.
//   together    the warpgroups split the rows of one tile
//   ping-pong   two take turns with whole tiles, so that one multiplies while the other is in its epilogue
// The blocks of a cluster take tiles below (cluster_m) or beside (cluster_n) each other and share B or A: each loads a slice and multicasts it.
//
//   TileSm90<BM, BN, stages, cluster_m, cluster_n, ping_pong, staged>
//     BM 64, 128, 192 or 256 (192: three warpgroups together), BN a multiple of 8 from 64 to 256; staged: see Store. threads = 128 * (groups + 1)
//     smem_bytes = stages * ((BM + BN) * 128 + 16) + 16 + groups * 4 * (staged ? WM / 64 * ceil(BN / 64) * 2048 + 8 : 4096), WM = ping_pong ? BM : BM / groups
//   Source (of A, of B)
//     using type; Step (default: the first K-block; next()), Place; place(int batch, int first_row); load<rows>(uint32_t to, Place, Step, uint32_t barrier, uint16_t mask):
//     `rows` rows of the K-block, at 128 bytes each (K-major) or in 64-column blocks of 64 k (M- or N-major); mask 0: no multicast. static constexpr bool transposed: M- or N-major;
//     constant: no kernel writes it
//   Store: either operator()<V>(batch, row, col, const float (&acc)[V]), which stores by itself; or, if the results are one dense matrix of 16-bit elements, a functor with
//     `using result = half_t` and operator()<V>(batch, row, col, const float (&acc)[V], float (&out)[V]): these are rounded and go to memory by the copy engine, through map_d
//          (also: `static constexpr bool enters = true` and enter(batch, row, across): called once for a row on a copy of the functor, before the product,
//          by the four lanes that share the row (RowQuad), to load; then settle(across) on all copies: what they make of it is there when the results are. `static constexpr int moments_of = 32` and
//          moments(batch, row, col, mean, squares): called for 32 neighbouring results, from column `col` on, with their mean, as they are rounded, and the
//          sum of their squared differences from it; BN and N are multiples of 32)
//          Such a functor may have `static constexpr int line`, a multiple of 16: rows are pixels of lines so long, and map_d is (columns, pixels of a line, lines)
//          Such a functor may have `using staged = half_t` and take another matrix of 16-bit elements (a residual) before `out`, const float (&staged)[V]: the copy engine brings it
//          through map_s at a tile's start to where the tile will be staged for its store. The tile has to be `staged`
//          Either may have `static constexpr bool prefetches = true` and prefetch(col): what it reads of constants for 8 columns is to be brought nearer
#pragma once
#include "aitc/gpu/core/blocks.h"
#include "aitc/gpu/hopper/mma_sm90.h"
#include "aitc/operand.h"

AITC_BEGIN

template <int BM_, int BN_, int Stages, int ClusterM = 1, int ClusterN = 1, bool PingPong = false, bool Staged = false> struct TileSm90 {
  static constexpr int BM = BM_, BN = BN_, stages = Stages, cluster_m = ClusterM, cluster_n = ClusterN, cluster = ClusterM * ClusterN;
  static constexpr bool ping_pong = PingPong, staged = Staged;
  static constexpr int groups = PingPong || BM == 256 ? 2 : BM / 64;  // math warpgroups
  static constexpr int WM = PingPong ? BM : BM / groups;              // rows of a tile that one of them computes
  static constexpr int threads = 128 * (groups + 1);
  static constexpr int producer_registers = groups == 3 ? 32 : 40, math_registers = groups == 3 ? 160 : 232;
  static constexpr bool moves_registers = groups > 1;
  static constexpr int slice_a = BM / ClusterN, slice_b = BN / ClusterM;  // rows that one block loads and multicasts
  static constexpr int bytes_a = BM * 128, bytes_b = BN * 128, across = ceil_div(BN, 64), warp_patches = WM / 64 * across;
  static constexpr int patch_bytes = Staged ? warp_patches * 2048 : 4096;  // of a warp
  static constexpr int smem_bytes = Stages * (bytes_a + bytes_b + 16) + 16 + groups * 4 * (patch_bytes + (Staged ? 8 : 0));
  static_assert(WM % 64 == 0 && BN % 8 == 0 && BN >= 64 && BN <= 256 && slice_a % 8 == 0 && slice_b % 8 == 0, "TileSm90");
};

template <class T> constexpr int block_elems = 128 / int(sizeof(T));
// Of float8 the instruction keeps some 14 bits of a sum: each K-block is summed apart, and added to the others in float.
template <class T> constexpr bool sums_apart = sizeof(T) == 1;

// Tiles in bands of 8 tile rows, down each column of a band first: what runs at one time shares rows of A and of B.
struct TileOrder {
  int rows, cols;
  static constexpr int band = 8;
  AITC_FN int count() const { return rows * cols; }
  AITC_FN void at(int i, int& row, int& col) const {
    const int first = i / (band * cols) * band, height = min_of(band, rows - first), r = i - first * cols;
    row = first + r % height, col = r / height;
  }
};

template <class Store, class = void> struct StoreResult {
  static constexpr bool returns = false;
  using type = half_t;
};
template <class Store> struct StoreResult<Store, decltype(void(sizeof(typename Store::result)))> {
  static constexpr bool returns = true;
  using type = typename Store::result;
};

template <class Store, class = void> struct StoreStaged {
  static constexpr bool staged = false;
  using type = half_t;
};
template <class Store> struct StoreStaged<Store, decltype(void(sizeof(typename Store::staged)))> {
  static constexpr bool staged = true;
  using type = typename Store::staged;
};

template <class Store, class = void> struct StoreLine {
  static constexpr int pixels = 0;
};
template <class Store> struct StoreLine<Store, decltype(void(Store::line))> {
  static constexpr int pixels = Store::line;
};

template <class Store, class = void> struct StoreEnters {
  static constexpr bool enters = false;
};
template <class Store> struct StoreEnters<Store, decltype(void(Store::enters))> {
  static constexpr bool enters = true;
};

template <class Store, class = void> struct StoreMoments {
  static constexpr int of = 0;
};
template <class Store> struct StoreMoments<Store, decltype(void(Store::moments_of))> {
  static constexpr int of = Store::moments_of;
};

template <class Store, class = void> struct StorePrefetches {
  static constexpr bool prefetches = false;
};
template <class Store> struct StorePrefetches<Store, decltype(void(Store::prefetches))> {
  static constexpr bool prefetches = true;
};

// One warp brings what the epilogue reads of constants, from column `col` to `end`, into the second-level cache: it waits for no earlier kernel.
template <class Store> AITC_FN void prefetch_columns(const Store& store, int col, int end) {
  if constexpr (StorePrefetches<Store>::prefetches)
    for (int c = col + lane_index() * 8; c < end; c += warp_size * 8) store.prefetch(int64_t(c));
}

// Four lanes of a warp that share a row, `stride` apart.
struct RowQuad {
  int stride;
  static constexpr int count = 4;
  AITC_FN int index() const { return lane_index() / stride % 4; }
  AITC_FN float sum(float v) const {
    v += shuffle_xor(v, stride);
    return v + shuffle_xor(v, 2 * stride);
  }
};

// The functor as each of a lane's `rows` rows sees it: as it is, or a copy that has entered the row.
template <class Store, int rows, bool = StoreEnters<Store>::enters> struct RowStores {
  const Store& store;
  AITC_FN const Store& at(int) const { return store; }
};
template <class Store, int rows> struct RowStores<Store, rows, true> {
  const Store& store;
  Store entered[rows];
  AITC_FN explicit RowStores(const Store& store) : store(store) {}
  AITC_FN void enter(int i, int batch, int64_t row, const RowQuad& across) {
    entered[i] = store;
    entered[i].enter(batch, row, across);
  }
  AITC_FN void settle(const RowQuad& across) {
    AITC_UNROLL
    for (int i = 0; i < rows; ++i) entered[i].settle(across);
  }
  AITC_FN const Store& at(int i) const { return entered[i]; }
};

// V columns of a row through a functor that stores; `kept` gets what it stored where it gives that back.
template <int V, class Store> AITC_FN void store_part(const Store& store, int batch, int64_t row, int64_t col, const float (&x)[V], float* kept) {
  if constexpr (StoreMoments<Store>::of > 0) {
    float stored[V];
    store.template operator()<V>(batch, row, col, x, stored);
    AITC_UNROLL
    for (int e = 0; e < V; ++e) kept[e] = stored[e];
  } else {
    store.template operator()<V>(batch, row, col, x);
  }
}

// 8 columns of a row through a functor that stores; `exact`: N is a multiple of its width.
template <bool exact, class Store>
AITC_FN void store_row(const Store& store, int batch, int64_t row, int64_t col, int64_t col_end, const float (&x)[8], float* kept = nullptr) {
  constexpr int W = min_of(8, Store::width);
  AITC_UNROLL
  for (int j = 0; j < 8; j += W) {
    if (exact ? col + j < col_end : col + j + W <= col_end) {
      float part[W];
      AITC_UNROLL
      for (int e = 0; e < W; ++e) part[e] = x[j + e];
      store_part(store, batch, row, col + j, part, kept ? kept + j : nullptr);
    } else if (!exact) {
      AITC_UNROLL
      for (int e = 0; e < W; ++e)
        if (col + j + e < col_end) {
          const float one[1] = {x[j + e]};
          store_part(store, batch, row, col + j + e, one, kept ? kept + j + e : nullptr);
        }
    }
  }
}

// What becomes of 16 rows and 64 columns of a warp's accumulators where the functor returns results: packed in pairs, packed[2 j] the upper and packed[2 j + 1] the lower row of
// 8 columns j. `inside`: no column lies at or behind N unless all do. The functors of this lane's two rows are `first` and the one after it of `stores`. A residual lies at `patch`.
template <bool inside, class Store, int rows>
AITC_FN void finish_patch(const float* acc, int batch, int row, int col, int M, int N, uint32_t patch, const RowStores<Store, rows>& stores, int first, uint32_t* packed) {
  using R = typename StoreResult<Store>::type;
  using S = typename StoreStaged<Store>::type;
  const int lane = lane_index(), r = lane / 4, t = lane % 4;
  AITC_UNROLL
  for (int j = 0; j < 8; ++j)
    AITC_UNROLL
    for (int h = 0; h < 2; ++h) {  // what is computed for places outside is not stored: any place inside will do
      const int64_t at = min_of(row + r + 8 * h, M - 1);
      const int64_t column = inside ? int64_t(col + t * 2) + 8 * j : int64_t(min_of(col + t * 2 + 8 * j, N - 2));
      const float x[2] = {acc[4 * j + 2 * h], acc[4 * j + 2 * h + 1]};
      const Store& store = stores.at(first + h);
      float y[2];
      if constexpr (StoreStaged<Store>::staged) {  // in place of the results: row r + 8 h, unit j, words t
        const uint32_t word = load_shared_u32(patch + uint32_t((r + 8 * h) * 128 + (j ^ r) * 16 + t * 4));
        const float z[2] = {convert<float>(S{uint16_t(word)}), convert<float>(S{uint16_t(word >> 16)})};
        store.template operator()<2>(batch, at, column, x, z, y);
      } else {
        store.template operator()<2>(batch, at, column, x, y);
      }
      packed[2 * j + h] = pack<R>(y[0], y[1]);
    }
  if constexpr (StoreMoments<Store>::of > 0)  // of 32 columns, which lie inside or outside; four lanes share a row
    AITC_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int h = i % 2, half = i / 2, at = row + r + 8 * h, column = col + half * 32;
      float kept[8], mean = 0, squares = 0;
      AITC_UNROLL
      for (int e = 0; e < 8; ++e) kept[e] = convert<float>(R{uint16_t(packed[2 * (half * 4 + e / 2) + h] >> e % 2 * 16)}), mean += kept[e];
      mean = RowQuad{1}.sum(mean) / 32;
      AITC_UNROLL
      for (int e = 0; e < 8; ++e) squares += (kept[e] - mean) * (kept[e] - mean);
      squares = RowQuad{1}.sum(squares);
      if (t == 0 && at < M && column < N) stores.at(first + h).moments(batch, at, column, mean, squares);
    }
}

// Packed results to a patch of shared memory, for the copy engine.
AITC_FN void stage_patch(uint32_t patch, const uint32_t* packed) {
  const int target = lane_index() % 16, unit = lane_index() / 16;  // the row this lane addresses, and which of two 16-byte units
  AITC_UNROLL
  for (int j = 0; j < 8; j += 2)
    stmatrix(patch + uint32_t(target * 128 + ((j + unit) ^ (target % 8)) * 16), packed[2 * j], packed[2 * j + 1], packed[2 * j + 2], packed[2 * j + 3]);
  fence_async_proxy();
}

// 16 rows and 64 columns of a warp's accumulators to memory; see finish_patch.
template <bool inside, bool exact, class Store, int rows>
AITC_FN void store_patch(const float* acc, int batch, int row, int col, int M, int N, uint32_t patch, char* patch_pointer, const RowStores<Store, rows>& stores, int first,
                         const CUtensorMap& map_d) {
  const int lane = lane_index();
  if constexpr (StoreResult<Store>::returns) {
    uint32_t packed[16];
    finish_patch<inside>(acc, batch, row, col, M, N, patch, stores, first, packed);
    if (!StoreStaged<Store>::staged && lane == 0) bulk_wait_read<1>();  // the store before the last has read this half of the patch
    warp_barrier();
    stage_patch(patch, packed);
    warp_barrier();
    constexpr int line = StoreLine<Store>::pixels;
    if (lane == 0) {
      if constexpr (line > 0) tma_store(map_d, col, row % line, row / line, patch);
      else tma_store(map_d, col, row, batch, patch);
      bulk_commit();
    }
  } else {
    static_assert(!StoreEnters<Store>::enters && StoreMoments<Store>::of == 0, "lanes store rows of other lanes, and parts of them");
    const int r = lane / 4, t = lane % 4;
    // (16,64) floats: 16-byte unit u of row r lies at (u % 2 * 8 + u / 2) ^ (r % 8), so that neither side meets a bank twice.
    float* floats = reinterpret_cast<float*>(patch_pointer);
    const auto place = [](int row, int unit) { return row * 64 + ((unit % 2 * 8 + unit / 2) ^ (row % 8)) * 4; };
    warp_barrier();
    AITC_UNROLL
    for (int j = 0; j < 8; ++j)
      AITC_UNROLL
      for (int h = 0; h < 2; ++h) {
        const Vec<float, 2> pair{acc[4 * j + 2 * h], acc[4 * j + 2 * h + 1]};
        aitc::store<2>(floats + place(r + 8 * h, 2 * j + t / 2) + t % 2 * 2, pair);
      }
    warp_barrier();
    AITC_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int target = i * 4 + lane / 8, unit = lane % 8 * 2, column = col + lane % 8 * 8;
      const auto low = load<4>(floats + place(target, unit)), high = load<4>(floats + place(target, unit + 1));
      const float x[8] = {low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]};
      if (row + target < M && column < N) store_row<exact>(stores.store, batch, row + target, column, N, x);
    }
  }
}

// Blocks: the smaller of the tiles (rounded up to whole clusters) and what the device holds.
template <class Tile, class Shape, class SourceA, class SourceB, class Store, class Blocks>
AITC_FN void product_sm90(const SourceA& source_a, const SourceB& source_b, const Store& store, const CUtensorMap& map_d, const CUtensorMap& map_s, int batches, int M, int N, int k_blocks,
                          const Blocks& blocks) {
  using T = typename SourceA::type;
  constexpr int BM = Tile::BM, BN = Tile::BN, Stages = Tile::stages, Groups = Tile::groups;
  constexpr int Cluster = Tile::cluster, ClusterM = Tile::cluster_m, ClusterN = Tile::cluster_n;
  constexpr bool returns = StoreResult<Store>::returns, staged = StoreStaged<Store>::staged;
  static_assert(staged == Tile::staged, "a staged operand needs a staged tile");
  static_assert(StoreMoments<Store>::of == 0 || (returns && StoreMoments<Store>::of == 32 && BN % 32 == 0 && static_multiple<Shape, 32>), "the moments of 32 columns");
  constexpr bool inside = static_multiple<Shape, 64> && BN % 64 == 0, exact = static_multiple<Shape, Store::width>;
  const uint32_t tiles_a = to_shared(shared_memory());        // [Stages][BM][64], swizzled
  const uint32_t tiles_b = tiles_a + Stages * Tile::bytes_a;  // [Stages][BN][64]
  const uint32_t patches = tiles_b + Stages * Tile::bytes_b;  // [warps][4096]
  const uint32_t full = patches + Groups * 4 * Tile::patch_bytes, empty = full + 8 * Stages, turns = empty + 8 * Stages, arrived = turns + 16;
  const int group = shuffle(thread_index() / 128, 0), warp = shuffle(thread_index() / 32 % 4, 0), lane = lane_index();
  const int rank = Cluster > 1 ? int(cluster_rank()) : 0, rank_m = rank % ClusterM, rank_n = rank / ClusterM;

  if (thread_index() == 0) {
    for (int s = 0; s < Stages; ++s) {
      barrier_init(full + 8 * s, 1);  // the producer; and the bytes it expects
      barrier_init(empty + 8 * s, Cluster * 4 * (Tile::ping_pong ? 1 : Groups));  // every warp that reads the stage
    }
    barrier_init(turns, 4), barrier_init(turns + 8, 4);
    if (staged) for (int w = 0; w < Groups * 4; ++w) barrier_init(arrived + 8 * w, 1);
    fence_barrier_init();
    source_a.prefetch(), source_b.prefetch();
    if (returns) tma_prefetch(map_d);
    if (staged) tma_prefetch(map_s);
  }
  block_barrier();
  if (Cluster > 1) cluster_arrive_relaxed(), cluster_wait();
  grid_launch_next();

  const TileOrder tiles{ceil_div(M, BM * ClusterM), ceil_div(N, BN * ClusterN)};
  const int per_batch = tiles.count(), count = per_batch * batches;
  const int first = blocks.index() / Cluster, stride = blocks.count() / Cluster;
  const auto locate = [&](int t, int& batch, int& m, int& n) {
    int i, j;
    batch = t / per_batch;
    tiles.at(t - batch * per_batch, i, j);
    m = (i * ClusterM + rank_m) * BM, n = (j * ClusterN + rank_n) * BN;
  };
  Ring<Stages> ring;

  if (group == Groups) {  // ---- producer ----
    if constexpr (Tile::moves_registers) registers_give<Tile::producer_registers>();
    if (warp == 0 && lane == 0) {
      uint16_t row_mask = 0, column_mask = 0;
      if (ClusterN > 1) for (int i = 0; i < ClusterN; ++i) row_mask = uint16_t(row_mask | 1 << (rank_m + i * ClusterM));
      if (ClusterM > 1) for (int i = 0; i < ClusterM; ++i) column_mask = uint16_t(column_mask | 1 << (i + rank_n * ClusterM));
      const auto load_b = [&](int s, const auto& place, const typename SourceA::Step& step) {
        barrier_expect(full + 8 * s, Tile::bytes_a + Tile::bytes_b);
        source_b.template load<Tile::slice_b>(tiles_b + s * Tile::bytes_b + rank_m * Tile::slice_b * 128, place, step, full + 8 * s, column_mask);
      };
      const int early = SourceB::constant && first < count ? min_of(Stages, k_blocks) : 0;  // K-blocks of weights, which wait for no earlier kernel
      if (early > 0) {
        int batch, m, n;
        locate(first, batch, m, n);
        const auto place_b = source_b.place(batch, n + rank_m * Tile::slice_b);
        typename SourceA::Step step(source_a);
        for (int k = 0; k < early; ++k, step.next(source_a)) load_b(k, place_b, step);
      }
      grid_wait_previous();
      for (int t = first; t < count; t += stride) {
        int batch, m, n;
        locate(t, batch, m, n);
        const auto place_a = source_a.place(batch, m + rank_n * Tile::slice_a);
        const auto place_b = source_b.place(batch, n + rank_m * Tile::slice_b);
        typename SourceA::Step step(source_a);
        for (int k = 0; k < k_blocks; ++k, ring.next(), step.next(source_a)) {
          const int s = ring.stage;
          if (t != first || k >= early) barrier_wait(empty + 8 * s, ring.parity ^ 1), load_b(s, place_b, step);
          source_a.template load<Tile::slice_a>(tiles_a + s * Tile::bytes_a + rank_n * Tile::slice_a * 128, place_a, step, full + 8 * s, row_mask);
        }
      }
    }
    warp_barrier();
  } else {  // ---- math ----
    if constexpr (Tile::moves_registers) registers_take<Tile::math_registers>();
    if (group == 0 && warp == 0 && first < count) {
      int batch, m, n;
      locate(first, batch, m, n);
      prefetch_columns(store, n, min_of(n + BN, N));
    }
    grid_wait_previous();
    const uint32_t patch = patches + uint32_t((group * 4 + warp) * Tile::patch_bytes);
    char* patch_pointer = shared_memory() + Stages * (Tile::bytes_a + Tile::bytes_b) + (group * 4 + warp) * Tile::patch_bytes;
    const int group_row = Tile::ping_pong ? 0 : group * Tile::WM;
    const auto release = [&](int stage) {  // this warp has read the stage: tell every producer that writes it
      if (Cluster == 1 && lane == 0) barrier_arrive(empty + 8 * stage);
      if (Cluster > 1 && lane < Cluster) barrier_arrive(empty + 8 * stage, uint32_t(lane));
    };
    // Patches of 64 columns; the last begins at BN - 64. Stores by the copy engine may write a few columns twice.
    constexpr int Across = Tile::across, Patches = Tile::warp_patches;
    const auto patch_column = [](int p) { return p % Across == Across - 1 ? BN - 64 : p % Across * 64; };
    const uint32_t loaded = arrived + 8 * uint32_t(group * 4 + warp);
    uint32_t loaded_parity = 0;
    static_assert(BN % 64 == 0 || returns, "a width that 64 does not divide writes some columns twice");
    int turn = 0, slot = 0;
    for (int t = first; t < count; t += stride, ++turn) {
      if (Tile::ping_pong && turn % 2 != group) {
        ring.skip(k_blocks);
        continue;
      }
      int batch, m, n;
      locate(t, batch, m, n);
      m += group_row + warp * 16;
      if (staged && lane == 0) {
        bulk_wait_read<0>();
        barrier_expect(loaded, Patches * 2048);
        AITC_UNROLL
        for (int p = 0; p < Patches; ++p) tma_load(patch + uint32_t(p * 2048), map_s, n + patch_column(p), m + p / Across * 64, batch, loaded);
      }
      RowStores<Store, Tile::WM / 32> stores{store};
      if constexpr (StoreEnters<Store>::enters) {
        AITC_UNROLL
        for (int i = 0; i < Tile::WM / 32; ++i) stores.enter(i, batch, min_of(m + i / 2 * 64 + i % 2 * 8 + lane / 4, M - 1), RowQuad{1});
        stores.settle(RowQuad{1});
      }
      // A wait tells a phase only from the one before it: nobody may wait for stages a whole ring ahead, so the groups take turns, each beginning when the other has seen its
      // last stage.
      if (Tile::ping_pong) barrier_wait(turns + 8 * group, uint32_t(turn / 2 + group + 1) & 1);
      float acc[Tile::WM / 64][BN / 2];
      for (int k = 0, before = 0; k < k_blocks; ++k, before = ring.stage, ring.next()) {
        barrier_wait(full + 8 * ring.stage, ring.parity);
        const uint32_t at_a = tiles_a + ring.stage * Tile::bytes_a + group_row * 128, at_b = tiles_b + ring.stage * Tile::bytes_b;
        const uint64_t a = SourceA::transposed ? matrix_descriptor_transposed(at_a, 8192) : matrix_descriptor(at_a);
        const uint64_t b = SourceB::transposed ? matrix_descriptor_transposed(at_b, 8192) : matrix_descriptor(at_b);
        const auto multiply = [&](float(&to)[Tile::WM / 64][BN / 2], int keep) {
          wgmma_fence();
          AITC_UNROLL
          for (int kk = 0; kk < 4; ++kk)
            AITC_UNROLL
            for (int i = 0; i < Tile::WM / 64; ++i)
              wgmma<T, BN, SourceA::transposed, SourceB::transposed>(to[i], a + (SourceA::transposed ? 128 : 2) * kk + 512 * i, b + (SourceB::transposed ? 128 : 2) * kk, keep | kk);
          wgmma_commit();
        };
        if constexpr (sums_apart<T>) {
          float part[Tile::WM / 64][BN / 2];
          multiply(part, 0);
          wgmma_wait_all(part);
          release(ring.stage);
          AITC_UNROLL
          for (int i = 0; i < Tile::WM / 64; ++i)
            AITC_UNROLL
            for (int j = 0; j < BN / 2; ++j) acc[i][j] = k == 0 ? part[i][j] : acc[i][j] + part[i][j];
        } else {
          multiply(acc, k);
          wgmma_wait<1>();  // the products of the stage before are done
          if (k > 0) release(before);
        }
      }
      if (Tile::ping_pong && lane == 0) barrier_arrive(turns + 8 * (group ^ 1));
      if constexpr (!sums_apart<T>) {
        wgmma_wait_all(acc);
        release(ring.stage == 0 ? Stages - 1 : ring.stage - 1);
      }
      if (staged) barrier_wait(loaded, loaded_parity), loaded_parity ^= 1;
      AITC_UNROLL
      for (int p = 0; p < Patches; ++p) {
        const int row = m + p / Across * 64, column = patch_column(p);
        if (n + column < N && row < M) {
          store_patch<inside, exact>(acc[p / Across] + column / 2, batch, row, n + column, M, N, staged ? patch + uint32_t(p * 2048) : returns ? patch + uint32_t(slot * 2048) : patch, patch_pointer, stores, p / Across * 2, map_d);
          slot ^= 1;
        }
      }
    }
    if (returns && lane == 0) bulk_wait_read<0>();
    warp_barrier();
  }
  if (Cluster > 1) cluster_arrive_relaxed(), cluster_wait();  // no block leaves while its peers still signal its barriers
}

AITC_END
