// The lists of active tiles of packed masks, on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace jaxsparse {

// `lists` independent masks, words uint32[lists, images, height, ceil(width/32)], and where their
// lists go.
struct TileIndexArgs {
  const uint32_t* words;
  int64_t lists, images, height, width, tile_h, tile_w, capacity;
  bool ordered;
  int32_t* ids;  // [lists, capacity], or [lists, capacity, 3] = (image, y0, x0) of components
  int32_t* count;
  bool* overflow;
  int32_t* scratch;
};

// Workspace, in integers.
int64_t TileIndexScratch(const TileIndexArgs& args);
int64_t ComponentIndexScratch(const TileIndexArgs& args);

// Two launches. ids: image*rows*cols + i*cols + j of each active tile, then -1.
cudaError_t TileIndex(const TileIndexArgs& args, cudaStream_t stream);

// Six launches. ids: the origin of each tile of each 8-connected component, then -1.
cudaError_t ComponentIndex(const TileIndexArgs& args, cudaStream_t stream);

}  // namespace jaxsparse
