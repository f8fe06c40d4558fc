// blocks.h: the blocks that work on a problem: all of a launch, or (one launch for several problems) some of them.
//
//   if (const SomeBlocks blocks{0, 24}; blocks.mine()) f(..., blocks);
//   if (const SomeBlocks blocks{24, 16}; blocks.mine()) g(..., blocks);
// Every block does exactly one of them. Where blocks form clusters, `first` and `blocks` are multiples of the cluster.
#pragma once
#include "aitc/types.h"

AITC_BEGIN

struct AllBlocks {
  AITC_FN int index() const { return int(blockIdx.x); }
  AITC_FN int count() const { return int(gridDim.x); }
};
struct SomeBlocks {
  int first, blocks;
  AITC_FN int index() const { return int(blockIdx.x) - first; }
  AITC_FN int count() const { return blocks; }
  AITC_FN bool mine() const { return index() >= 0 && index() < blocks; }
};

// for_each of gpu.h by some of the blocks.
template <int V, class Body> AITC_FN void for_each(int64_t count, const Body& body, const SomeBlocks& blocks) {
  grid_dependency_wait();
  const int64_t step = int64_t(blocks.count()) * blockDim.x, first = int64_t(blocks.index()) * blockDim.x + threadIdx.x,
                whole = count / V;
  for (int64_t i = first; i < whole; i += step) body.template operator()<V>(i * V);
  if constexpr (V > 1)
    for (int64_t i = whole * V + first; i < count; i += step) body.template operator()<1>(i);
  grid_dependency_launch();
}

AITC_END
