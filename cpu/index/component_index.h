// Tiles placed per connected component: each component has its own tile grid, from the corner of
// its bounding box.
#pragma once

#include <cstdint>

#include "cpu/index/tile_index.h"

namespace jaxsparse::cpu {

// Writes (image, y0, x0) of every tile that holds a pixel of its 8-connected component, in the
// raster order of the tile's first pixel of it, then rows of -1, never past origins[3*capacity];
// returns how many tiles there are.
int64_t ListComponentTiles(const TiledMask& mask, int64_t capacity, int32_t* origins);

}  // namespace jaxsparse::cpu
