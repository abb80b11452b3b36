// The tiles of a masked product: which rows, which blocks of columns, which slabs of K.
#pragma once

#include "cuda/tile/strip/params.h"

namespace jaxsparse {

// Wide: 64 x 512 in three stages; tall: 128 x 256 in four. Two warpgroups have 64 x 256 each.
struct StripShape {
  bool wide;
  int rows, blocks, stages;  // of 64 columns; of the ring
  int bytes_a, stage_bytes;

  __device__ explicit StripShape(bool is_wide)
      : wide(is_wide),
        rows(is_wide ? kWideRows : kTallRows),
        blocks(is_wide ? kWideBlocks : kTallBlocks),
        stages(is_wide ? 3 : 4),
        bytes_a(rows * kSlabBytes),
        stage_bytes(bytes_a + blocks * kColumnBlock * kSlabBytes) {}

  // Where a warpgroup's share of a stage begins.
  __device__ int OffsetA(int group) const { return wide ? 0 : group * 64 * kSlabBytes; }
  __device__ int OffsetB(int group) const {
    return bytes_a + (wide ? group * 256 * kSlabBytes : 0);
  }
  // The pieces of `a` in the share.
  __device__ unsigned Pieces(int group) const { return wide ? 3u : 3u << (2 * group); }
};

inline constexpr int kStripStages = 4;
inline constexpr int kStripRingBytes = 3 * (kWideRows + kWideBlocks * kColumnBlock) * kSlabBytes;
static_assert(kStripRingBytes >= 4 * (kTallRows + kTallBlocks * kColumnBlock) * kSlabBytes,
              "the ring holds the stages of either tile");

struct StripTile {
  int list, b_list, row;
  int group;        // of column blocks
  int steps;        // slabs; 0: nothing to multiply, the result is zero
  int64_t place;    // of the tile among the packed ones
  int live_blocks;  // wanted blocks of columns; they come first in `blocks`
  const int32_t* entries;
  const int32_t* blocks;  // nullptr: in order
};

// Neighbours in time have the same columns, so that a part of `b` stays in L2 while all rows pass.
class StripTiles {
 public:
  __device__ StripTiles(const StripParams& p, const StripShape& shape)
      : p_(p), shape_(shape), row_tiles_((p.rows + shape.rows - 1) / shape.rows) {}

  __device__ int64_t count() const {
    const int groups = (p_.column_blocks + shape_.blocks - 1) / shape_.blocks;
    return static_cast<int64_t>(p_.lists) * row_tiles_ * groups;
  }

  __device__ StripTile Find(int64_t item) const {
    const int wide = shape_.wide;
    const int64_t line = item / row_tiles_;
    const int r = static_cast<int>(item - line * row_tiles_);
    StripTile tile;
    tile.group = static_cast<int>(line / p_.lists);
    tile.list = static_cast<int>(line - static_cast<int64_t>(tile.group) * p_.lists);
    tile.b_list = p_.b_lists == 1 ? 0 : tile.list;
    tile.row = r * shape_.rows;
    const int64_t tiles = p_.index.tall_tiles << wide;
    const int64_t listed = (p_.index.lists == 1 ? 0 : tile.list) * tiles + r;
    tile.entries = p_.index.entries[wide] + listed * p_.index.pitch;
    tile.steps = p_.index.slabs[wide][listed];
    tile.place = (p_.pack_lists == 1 ? 0 : tile.list) * tiles + r;
    tile.blocks = nullptr;
    tile.live_blocks = p_.column_blocks;
    if (p_.index.live_blocks[wide] != nullptr) {
      const int64_t at = (p_.index.out_lists == 1 ? 0 : tile.list) * tiles + r;
      tile.live_blocks = p_.index.live_blocks[wide][at];
      tile.blocks = p_.index.blocks[wide] + at * p_.column_blocks;
      if (tile.group * shape_.blocks >= tile.live_blocks) tile.steps = 0;
    }
    return tile;
  }

  // The block of columns in slot `slot` of the tile, or -1.
  __device__ int Block(const StripTile& tile, int slot) const {
    const int at = tile.group * shape_.blocks + slot;
    if (at >= p_.column_blocks) return -1;
    return tile.blocks == nullptr ? at : tile.blocks[at];
  }

  // The first of the `columns` columns in box `box`, 128 bytes wide, of the tile; -1 where there is
  // nothing to load.
  __device__ int Column(const StripTile& tile, int box, int columns) const {
    const int slot = box * columns / kColumnBlock;
    if (slot >= shape_.blocks || tile.group * shape_.blocks + slot >= tile.live_blocks) return -1;
    const int column = Block(tile, slot) * kColumnBlock + box * columns % kColumnBlock;
    return column < p_.columns ? column : -1;
  }

 private:
  const StripParams& p_;
  const StripShape& shape_;
  int row_tiles_;
};

}  // namespace jaxsparse
