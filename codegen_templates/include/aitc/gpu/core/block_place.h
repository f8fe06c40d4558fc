// block_place.h: the order in which blocks take the tiles of a matrix product. Blocks: tiles_m * tiles_n * batch in x.
#pragma once
#include "aitc/platform.h"

AITC_BEGIN

// Which tile of which batch this block computes: bands of eight tiles along M, so that blocks that run together share
// operands in L2.
struct BlockPlace {
  int batch, tile_m, tile_n;
};
AITC_FN BlockPlace block_place(int64_t tiles_m, int64_t tiles_n, int64_t block) {
  const int64_t tiles = tiles_m * tiles_n, batch = block / tiles, i = block - batch * tiles;
  constexpr int band = 8;
  const int64_t first = i / (band * tiles_n) * band, height = tiles_m - first < band ? tiles_m - first : band,
                j = i - first * tiles_n;
  return {int(batch), int(first + j % height), int(j / height)};
}
AITC_FN BlockPlace block_place(int64_t tiles_m, int64_t tiles_n) { return block_place(tiles_m, tiles_n, blockIdx.x); }

AITC_END
