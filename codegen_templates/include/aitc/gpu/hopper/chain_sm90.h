// chain_sm90.h: a product and the one behind it in one launch: D(M,N) = epilogue(A(M,K) B(K,N)), E(M,N2) = epilogue(D C(N,N2)), by wgmma, operands of 16 bits, sums in float.
//
// A block computes whole rows of D, BN columns at a time. What it has made of them, rounded as it would be stored, is an operand of the second product where it is, in registers; so
// D is not read again, and written only where others read it. All columns of E are sums of one block: N2 is at most 256.
//
//   chain_sm90<ChainTileSm90<BM, BN, BE, stages, slots, stored, staged>>(shape, shape2, a, b, c, store, store2, map_d, map_s, map_e, k_blocks)
//     BM 64, 128 or 192, a warpgroup for each 64 rows; BN 64 or 128, which divides N; BE: N2 rounded up to 64, 128, 192 or 256. slots (2 or more): parts of BN columns that a warp
//     has on their way to or from memory. stored: D goes to memory, through map_d. staged: its functor takes another matrix of its size (a residual), which comes through map_s
//     threads = 128 * (BM / 64 + 1), smem_bytes = stages * (max(BM + BN, BE) * 128 + 16) + BM / 16 * slots * (BN * 32 + 8)
//   shape    M, N; shape2: N, the columns of E
//   a, b     as in product_sm90.h; b is constant, K contiguous
//   c        C as it lies, columns contiguous: MatrixSm90<T, true, false, true>, its map in boxes of (64, 64)
//   store    as one of product_sm90.h that returns results, of T, which is A's type too; store2 likewise; neither enters rows nor stores moments. map_e: of E, as map_d
// Blocks: ceil(M / BM), or what the device holds.
#pragma once
#include "aitc/gpu/hopper/gemm_sm90.h"

AITC_BEGIN

template <int BM_, int BN_, int BE_, int Stages, int Slots, bool Stored, bool Staged> struct ChainTileSm90 {
  static constexpr int BM = BM_, BN = BN_, BE = BE_, stages = Stages, slots = Slots;
  static constexpr bool stored = Stored, staged = Staged;
  static constexpr int groups = BM / 64, threads = 128 * (groups + 1);
  static constexpr int producer_registers = groups == 3 ? 32 : 40, math_registers = groups == 3 ? 160 : 232;
  static constexpr bool moves_registers = groups > 1;
  static constexpr int bytes_a = BM * 128, bytes_b = BN * 128, bytes_c = BE * 128, bytes_stage = bytes_a + bytes_b > bytes_c ? bytes_a + bytes_b : bytes_c;
  static constexpr int patches = BN / 64, slot_bytes = patches * 2048;  // of a warp
  static constexpr int smem_bytes = Stages * (bytes_stage + 16) + groups * 4 * Slots * (slot_bytes + 8);
  static_assert(Stages > patches && BM % 64 == 0 && BM <= 192 && (BN == 64 || BN == 128) && BE % 64 == 0 && BE <= 256 && Slots >= 2, "ChainTileSm90");
};

template <class Tile, class Shape, class Shape2, class SourceA, class SourceB, class SourceC, class Store, class Store2, class Blocks = AllBlocks>
AITC_FN void chain_sm90(const Shape& shape, const Shape2& shape2, const SourceA& source_a, const SourceB& source_b, const SourceC& source_c, const Store& store, const Store2& store2,
                        const CUtensorMap& map_d, const CUtensorMap& map_s, const CUtensorMap& map_e, int k_blocks, const Blocks& blocks = {}) {
  using T = typename SourceA::type;
  constexpr int BM = Tile::BM, BN = Tile::BN, BE = Tile::BE, Stages = Tile::stages, Slots = Tile::slots, Groups = Tile::groups, Patches = Tile::patches;
  constexpr bool stored = Tile::stored, staged = Tile::staged;
  static_assert(is_same<typename StoreResult<Store>::type, T> && StoreResult<Store>::returns && StoreResult<Store2>::returns, "functors that return results");
  static_assert(StoreStaged<Store>::staged == staged && !StoreStaged<Store2>::staged, "a staged operand needs a staged tile");
  static_assert(!StoreEnters<Store>::enters && !StoreEnters<Store2>::enters && StoreMoments<Store>::of == 0 && StoreMoments<Store2>::of == 0, "rows are not entered");
  static_assert(static_multiple<Shape, BN> && SourceB::constant && SourceC::constant, "whole parts of D, of weights");
  const int M = int(shape.M), N = int(shape.N), N2 = int(shape2.N), chunks = N / BN;
  const uint32_t tiles = to_shared(shared_memory());  // [Stages]: (BM + BN, 64), swizzled, or (BE / 64, 64, 64)
  const uint32_t slots = tiles + Stages * Tile::bytes_stage;  // [warps][Slots][Patches][16][64]
  const uint32_t full = slots + Groups * 4 * Slots * Tile::slot_bytes, empty = full + 8 * Stages, arrived = empty + 8 * Stages;
  const int group = shuffle(thread_index() / 128, 0), warp = shuffle(thread_index() / 32 % 4, 0), lane = lane_index();

  if (thread_index() == 0) {
    for (int s = 0; s < Stages; ++s) barrier_init(full + 8 * s, 1), barrier_init(empty + 8 * s, Groups * 4);
    if (staged) for (int w = 0; w < Groups * 4 * Slots; ++w) barrier_init(arrived + 8 * w, 1);
    fence_barrier_init();
    source_a.prefetch(), source_b.prefetch(), source_c.prefetch(), tma_prefetch(map_e);
    if (stored) tma_prefetch(map_d);
    if (staged) tma_prefetch(map_s);
  }
  block_barrier();
  grid_launch_next();

  const int count = ceil_div(M, BM), first = blocks.index(), stride = blocks.count();
  Ring<Stages> ring;

  if (group == Groups) {  // ---- producer ----
    if constexpr (Tile::moves_registers) registers_give<Tile::producer_registers>();
    if (warp == 0 && lane == 0) {
      const auto load_b = [&](int s, int chunk, const typename SourceA::Step& step) {
        barrier_expect(full + 8 * s, Tile::bytes_a + Tile::bytes_b);
        source_b.template load<BN>(tiles + s * Tile::bytes_stage + Tile::bytes_a, source_b.place(0, chunk * BN), step, full + 8 * s, 0);
      };
      const int early = first < count ? min_of(Stages, k_blocks) : 0;  // K-blocks of weights, which wait for no earlier kernel
      typename SourceA::Step ahead(source_a);
      for (int k = 0; k < early; ++k, ahead.next(source_a)) load_b(k, 0, ahead);
      grid_wait_previous();
      for (int t = first; t < count; t += stride) {
        const auto place_a = source_a.place(0, t * BM);
        for (int chunk = 0; chunk < chunks; ++chunk) {
          typename SourceA::Step step(source_a);
          for (int k = 0; k < k_blocks; ++k, ring.next(), step.next(source_a)) {
            const int s = ring.stage;
            if (t != first || chunk > 0 || k >= early) barrier_wait(empty + 8 * s, ring.parity ^ 1), load_b(s, chunk, step);
            source_a.template load<BM>(tiles + s * Tile::bytes_stage, place_a, step, full + 8 * s, 0);
          }
          typename SourceC::Step depth(source_c, chunk * Patches);
          for (int p = 0; p < Patches; ++p, ring.next(), depth.next(source_c)) {
            const int s = ring.stage;
            barrier_wait(empty + 8 * s, ring.parity ^ 1);
            barrier_expect(full + 8 * s, Tile::bytes_c);
            source_c.template load<BE>(tiles + s * Tile::bytes_stage, source_c.place(0, 0), depth, full + 8 * s, 0);
          }
        }
      }
    }
    warp_barrier();
  } else {  // ---- math ----
    if constexpr (Tile::moves_registers) registers_take<Tile::math_registers>();
    if (group == 0 && warp == 0 && first < count) prefetch_columns(store, 0, N), prefetch_columns(store2, 0, N2);
    grid_wait_previous();
    const int own = group * 4 + warp;
    const uint32_t own_slots = slots + uint32_t(own * Slots * Tile::slot_bytes), own_arrived = arrived + uint32_t(8 * own * Slots);
    const auto release = [&](int stage) {
      if (lane == 0) barrier_arrive(empty + 8 * stage);
    };
    const auto release_last = [&](int count) {
      for (int i = 1; i <= count; ++i) release((ring.stage + Stages - i) % Stages);
    };
    // A warp uses its slots in turn: for each part of D that comes from or goes to memory, then for the parts of E. Residuals are on their way Slots - 1 uses ahead.
    constexpr int parts_e = ceil_div(BE / 64, Patches);
    const int uses = (stored || staged ? chunks : 0) + parts_e;
    Ring<Slots> slot, next_slot;
    int next_tile = first, next_use = 0;
    uint32_t parities = 0;
    const auto bring = [&] {
      if (staged && lane == 0 && next_tile < count && next_use < chunks) {
        const uint32_t barrier = own_arrived + 8 * uint32_t(next_slot.stage), to = own_slots + uint32_t(next_slot.stage * Tile::slot_bytes);
        barrier_expect(barrier, Tile::slot_bytes);
        AITC_UNROLL
        for (int p = 0; p < Patches; ++p) tma_load(to + uint32_t(p * 2048), map_s, next_use * BN + p * 64, next_tile * BM + own * 16, 0, barrier);
      }
      next_slot.next();
      if (++next_use == uses) next_use = 0, next_tile += stride;
    };
    const auto used = [&] {  // the store before this one has read its slot
      if (lane == 0) bulk_commit(), bulk_wait_read<1>();
      slot.next();
      if (staged) bring();
    };
    if (staged)
      for (int i = 0; i < Slots - 1; ++i) bring();

    const RowStores<Store, 2> stores{store};
    const RowStores<Store2, 2> stores2{store2};
    for (int t = first; t < count; t += stride) {
      const int row = t * BM + own * 16;
      float sums[BE / 2];
      for (int chunk = 0; chunk < chunks; ++chunk) {
        float acc[1][BN / 2];
        for (int k = 0, before = 0; k < k_blocks; ++k, before = ring.stage, ring.next()) {
          barrier_wait(full + 8 * ring.stage, ring.parity);
          const uint32_t stage = tiles + ring.stage * Tile::bytes_stage;
          const uint64_t a = matrix_descriptor(stage + group * 8192), b = matrix_descriptor(stage + Tile::bytes_a);
          wgmma_fence();
          AITC_UNROLL
          for (int kk = 0; kk < 4; ++kk) wgmma<T, BN>(acc[0], a + 2 * kk, b + 2 * kk, k | kk);
          wgmma_commit();
          wgmma_wait<1>();  // the products before are done: those of the stage before, or of E
          if (k > 0) release(before);
          else if (chunk > 0) release_last(Patches);
        }
        wgmma_wait_all(acc);
        release(ring.stage == 0 ? Stages - 1 : ring.stage - 1);
        uint32_t packed[BN / 4];
        const uint32_t patch = own_slots + uint32_t(slot.stage * Tile::slot_bytes);
        if (staged) barrier_wait(own_arrived + 8 * uint32_t(slot.stage), parities >> slot.stage & 1), parities ^= 1u << slot.stage;
        AITC_UNROLL
        for (int p = 0; p < Patches; ++p) finish_patch<true>(acc[0] + p * 32, 0, row, chunk * BN + p * 64, M, N, patch + uint32_t(p * 2048), stores, 0, packed + p * 16);
        if (stored) {
          warp_barrier();
          AITC_UNROLL
          for (int p = 0; p < Patches; ++p) stage_patch(patch + uint32_t(p * 2048), packed + p * 16);
          warp_barrier();
          if (lane == 0 && row < M)
            AITC_UNROLL
            for (int p = 0; p < Patches; ++p) tma_store(map_d, chunk * BN + p * 64, row, 0, patch + uint32_t(p * 2048));
        } else if (staged) {
          fence_async_proxy();  // the residual has been read before the next comes
          warp_barrier();
        }
        if (stored || staged) used();
        AITC_UNROLL
        for (int p = 0; p < Patches; ++p, ring.next()) {
          barrier_wait(full + 8 * ring.stage, ring.parity);
          const uint64_t c = matrix_descriptor_transposed(tiles + ring.stage * Tile::bytes_stage, 8192);
          wgmma_fence();
          AITC_UNROLL
          for (int kk = 0; kk < 4; ++kk) wgmma_transposed<T, BE>(sums, packed + p * 16 + kk * 4, c + 128 * kk, chunk | p | kk);
          wgmma_commit();
        }
      }
      wgmma_wait<0>(sums);
      release_last(Patches);
      AITC_UNROLL
      for (int part = 0; part < parts_e; ++part) {
        const uint32_t patch = own_slots + uint32_t(slot.stage * Tile::slot_bytes);
        AITC_UNROLL
        for (int p = 0; p < Patches; ++p) {
          const int column = (part * Patches + p) * 64;
          if (column >= BE || column >= N2) continue;
          uint32_t packed[16];
          finish_patch<static_multiple<Shape2, 64>>(sums + column / 2, 0, row, column, M, N2, 0, stores2, 0, packed);
          warp_barrier();
          stage_patch(patch + uint32_t(p * 2048), packed);
          warp_barrier();
          if (lane == 0 && row < M) tma_store(map_e, column, row, 0, patch + uint32_t(p * 2048));
        }
        used();
      }
    }
    if (lane == 0) bulk_wait_read<0>();
    warp_barrier();
  }
}

AITC_END
