// The list of a mask's active tiles, from its bits.
#pragma once

#include <cstdint>

namespace jaxsparse::cpu {

// One packed mask: words uint32[images, height, ceil(width/32)], cut into tiles of tile_h x tile_w
// pixels.
struct TiledMask {
  const uint32_t* words;
  int64_t images, height, width, tile_h, tile_w;

  int64_t words_per_row() const { return (width + 31) / 32; }
  int64_t tile_rows() const { return (height + tile_h - 1) / tile_h; }
  int64_t tile_cols() const { return (width + tile_w - 1) / tile_w; }
  bool empty() const { return images == 0 || height == 0 || width == 0; }
};

// Word `w` of a row with the bits past `width` cleared.
inline uint32_t ClipWord(uint32_t word, int64_t w, int64_t width) {
  const int64_t valid = width - 32 * w;
  return valid >= 32 ? word : word & ((1u << valid) - 1u);
}

// Writes the ids of the active tiles in ascending order, -1 after the last, never past
// ids[capacity]; returns how many tiles are active.
int64_t ListTiles(const TiledMask& mask, int64_t capacity, int32_t* ids);

}  // namespace jaxsparse::cpu
