// conv_sum_sm90.h: two convolutions whose results add up, as one product: the K-blocks of the second follow those of the first, into the same sums. (A residual network's shortcut
// beside the last convolution of its block: neither is stored to be added.)
//
//   conv_sum_sm90<TileSm90<...>>(shape, pixels, filters, store, map_d, map_s)    conv_sum_split_sm90<SplitTileSm90<...>>(shape, pixels, filters, store)
//     pixels, filters    SumSm90<First, Second, first_blocks, second_blocks>{first, second}: of PixelsSm90 and FilterSm90 (conv_sm90.h) or, of one tap, stride 1 and no border,
//     MatrixSm90 (gemm_sm90.h), which have so many K-blocks. Both convolutions have the same M pixels and N filters. The rest is as in conv_sm90.h
#pragma once
#include "aitc/gpu/hopper/conv_sm90.h"
#include "aitc/gpu/hopper/gemm_sm90.h"

AITC_BEGIN

template <class First, class Second, int FirstBlocks, int SecondBlocks> struct SumSm90 {
  using type = typename First::type;
  static constexpr bool transposed = First::transposed, constant = First::constant;
  static constexpr int blocks = FirstBlocks + SecondBlocks;
  static_assert(!First::transposed && !Second::transposed && First::constant == Second::constant, "SumSm90");
  First first;
  Second second;

  struct Place {
    decltype(static_cast<const First*>(nullptr)->place(0, 0)) first;
    decltype(static_cast<const Second*>(nullptr)->place(0, 0)) second;
  };
  AITC_FN void prefetch() const { first.prefetch(), second.prefetch(); }
  AITC_FN Place place(int batch, int row) const { return {first.place(batch, row), second.place(batch, row)}; }
  template <int Rows, class S> AITC_FN void load(uint32_t to, const Place& place, const S& step, uint32_t barrier, uint16_t mask) const {
    if (step.block < FirstBlocks) first.template load<Rows>(to, place.first, step.first, barrier, mask);
    else second.template load<Rows>(to, place.second, step.second, barrier, mask);
  }
};

// The pixels say where the next K-block is, on both sides.
template <class First, class Second, int FirstBlocks, int SecondBlocks> struct SumPixelsSm90 : SumSm90<First, Second, FirstBlocks, SecondBlocks> {
  struct Step {
    int block;
    typename First::Step first;
    typename Second::Step second;
    template <class Source> AITC_FN explicit Step(const Source& source, int begin = 0)
        : block(begin), first(source.first, min_of(begin, FirstBlocks)), second(source.second, begin > FirstBlocks ? begin - FirstBlocks : 0) {}
    template <class Source> AITC_FN void next(const Source& source) {
      if (block++ < FirstBlocks) first.next(source.first);
      else second.next(source.second);
    }
  };
};

template <class Tile, class Shape, class Pixels, class Filters, class Store, class Blocks = AllBlocks>
AITC_FN void conv_sum_sm90(const Shape& shape, const Pixels& pixels, const Filters& filters, const Store& store, const CUtensorMap& map_d, const CUtensorMap& map_s,
                           const Blocks& blocks = {}) {
  product_sm90<Tile, Shape>(pixels, filters, store, map_d, map_s, 1, int(shape.M), int(shape.N), Pixels::blocks, blocks);
}
template <class Tile, class Shape, class Pixels, class Filters, class Store, class Blocks = AllBlocks>
AITC_FN void conv_sum_split_sm90(const Shape& shape, const Pixels& pixels, const Filters& filters, const Store& store, const Blocks& blocks = {}) {
  split_sm90<Tile, Shape>(pixels, filters, store, int(shape.M), int(shape.N), Pixels::blocks, blocks);
}

AITC_END
