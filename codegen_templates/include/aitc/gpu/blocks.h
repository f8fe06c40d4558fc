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

AITC_END
