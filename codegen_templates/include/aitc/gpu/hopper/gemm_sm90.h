// gemm_sm90.h: matrix products on Hopper: operands of half_t, bfloat16_t, float (as TF32) or float8 brought by the copy engine (TMA), multiplied by wgmma,
// summed in float.
//
//   gemm_sm90<TileSm90<...>>(shape, a, b, store, map_d, map_s)      see product_sm90.h for tiles, stores, their maps and the grid
//
//   Shape    batch, M, N, K as static constexpr or members; struct Operand a, b: MatrixSm90<T, transposed, batched, constant>{&map}
//   Maps     (innermost first) of A: (K, M, batch), box (64, slice_a, 1); transposed (M contiguous): (M, K, batch), box (64, 64, 1). Of B, K contiguous: (K, N, batch), box
//            (64, slice_b, 1); transposed (N contiguous): (N, K, batch), box (64, 64, 1). All with the 128-byte swizzle; elements of 4 bytes: 32 in place of the first 64, and of
//            type AITC_TF32, so that they are rounded on their way; of 1 byte: 128; neither may be transposed. Of D: (N, M, batch), box (64, 16, 1), likewise
//   gemm_split_sm90<SplitTileSm90<...>>(shape, a, b, store)      few tiles: K is split among the blocks of a cluster; see split_sm90.h
//
//   AITC_KERNEL(384, 1) void AITC_ENTRY(gemm_4)(const half_t* bias, const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap d) {
//     gemm_sm90<TileSm90<128, 256, 4, 2>>(Shape{}, MatrixSm90<half_t, false, false, false>{&a}, MatrixSm90<half_t, false, false, true>{&b}, Store{bias}, d, d);
//   }
// Several products in one launch (same tile type, cluster and threads; conv_sm90.h may be among them): blocks.h, given last.
#pragma once
#include "aitc/gpu/hopper/product_sm90.h"
#include "aitc/gpu/hopper/split_sm90.h"

AITC_BEGIN

// A or B. `batched`: the third dimension of the map is the batch, otherwise every batch reads the same.
template <class T, bool Transposed, bool Batched, bool Constant> struct MatrixSm90 {
  using type = T;
  static constexpr int depth = block_elems<T>;
  static constexpr bool transposed = Transposed, constant = Constant;
  static_assert(sizeof(T) == 2 || !Transposed, "only elements of 2 bytes are M- or N-major");
  const CUtensorMap* map;

  struct Place {
    int batch, row;
  };
  struct Step {
    int k = 0;
    template <class Source> AITC_FN explicit Step(const Source&, int first = 0) : k(first * depth) {}
    template <class Source> AITC_FN void next(const Source&) { k += depth; }
  };
  AITC_FN void prefetch() const { tma_prefetch(*map); }
  AITC_FN Place place(int batch, int row) const { return {Batched ? batch : 0, row}; }
  template <int Rows, class S> AITC_FN void load(uint32_t to, Place place, const S& step, uint32_t barrier, uint16_t mask) const {
    if constexpr (Transposed) {
      static_assert(Rows % 64 == 0, "blocks of 64 columns");
      AITC_UNROLL
      for (int i = 0; i < Rows / 64; ++i) {
        if (mask) tma_load_multicast(to + i * 8192, *map, place.row + i * 64, step.k, place.batch, barrier, mask);
        else tma_load(to + i * 8192, *map, place.row + i * 64, step.k, place.batch, barrier);
      }
    } else {
      if (mask) tma_load_multicast(to, *map, step.k, place.row, place.batch, barrier, mask);
      else tma_load(to, *map, step.k, place.row, place.batch, barrier);
    }
  }
};

template <class Tile, class Shape, class A, class B, class Store, class Blocks = AllBlocks>
AITC_FN void gemm_sm90(const Shape& shape, const A& a, const B& b, const Store& store, const CUtensorMap& map_d, const CUtensorMap& map_s, const Blocks& blocks = {}) {
  product_sm90<Tile, Shape>(a, b, store, map_d, map_s, int(shape.batch), int(shape.M), int(shape.N), ceil_div(int(shape.K), block_elems<typename A::type>), blocks);
}

template <class Tile, class Shape, class A, class B, class Store, class Blocks = AllBlocks>
AITC_FN void gemm_split_sm90(const Shape& shape, const A& a, const B& b, const Store& store, const Blocks& blocks = {}) {
  split_sm90<Tile, Shape>(a, b, store, int(shape.M), int(shape.N), ceil_div(int(shape.K), block_elems<typename A::type>), blocks);
}

AITC_END
