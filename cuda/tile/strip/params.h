// What a masked product by strips is to its tiles: sizes, the lists of slabs, the operands.
#pragma once

#include <cstdint>

#include "cuda/bits/block_bits.h"

namespace jaxsparse {

// The tiles of the tensor-core kernels, one less than the handler's variant; kAuto: by what the
// mask is made of, and where that leaves a choice the device compares their cover costs.
enum class StripChoice : int {
  kAuto = 0,
  kWide = 1,
  kTall = 2,
  kPieces = 3,
  kPanels = 6,
  kSorted = 7
};

inline constexpr int kPieceRows = 32;    // rows that are loaded or left out together
inline constexpr int kWideRows = 64;     // rows of a wide tile, 512 columns
inline constexpr int kTallRows = 128;    // rows of a tall tile, 256 columns
inline constexpr int kTilePieces = 16;   // of a tile of pieces: 512 rows, 64 columns
inline constexpr int kPieceCluster = 2;  // such tiles side by side share what they load of `a`
inline constexpr int kPanelPieces = 4;   // of a panel: 128 rows, 256 columns
inline constexpr int kPanelColumns = 256;
inline constexpr int kColumnBlock = 64;  // columns that are loaded or left out together
inline constexpr int kWideBlocks = 8, kTallBlocks = 4;
inline constexpr int kSlabBytes = 128;    // of K, one stage
inline constexpr int kSortWindow = 4096;  // columns of `a` that are sorted together
inline constexpr int kSlabSteps = 4;      // products of a slab, 32 bytes of K each
inline constexpr int kBlockBytes = kPieceRows * kSlabBytes / kSlabSteps;  // a piece's part of one
inline constexpr int kMaxMaskWords = 8192, kMaxDepth = 1 << 19;

// Columns of `a` in the order in which a tile of four pieces multiplies them: those that the same
// pieces keep stand side by side. A slab of them has a bit for each of its four steps (4 * step)
// and each piece in `piece_entries`: only what is set was packed, and is multiplied.
struct SortedIndex {
  int windows;       // of the whole K
  int32_t* columns;  // [lists, piece_tiles, slabs * slab]: pieces that keep it << 20 | column
  int32_t* blocks;   // [lists, piece_tiles, slabs]: packed before each slab
  int32_t* ends;     // [lists, piece_tiles, windows]: slabs up to each window's end
};

inline constexpr int kPiecesShift = 20, kColumnMask = (1 << kPiecesShift) - 1;
static_assert(kMaxDepth <= kColumnMask + 1, "a column and its pieces share a word");

// Which slabs of K each row tile multiplies, and in which order it takes the blocks of columns.
// Where blocks of `a` are whole pieces and slabs (`boxes`) an entry is 16 * slab + live pieces;
// else it is one column of `a` (-1: none), a slab's worth of entries after the other.
struct StripIndex {
  int lists, out_lists;     // 1: the same for every product
  int tall_tiles, pitch;    // tall tiles of one matrix; entries of one tile
  int32_t* slabs[2];        // [lists, tall_tiles], twice that: slabs of each tall, each wide tile
  int32_t* entries[2];      // [lists, tall_tiles, pitch], twice that
  int32_t* live_blocks[2];  // live blocks of columns; nullptr: all
  int32_t* blocks[2];       // blocks of columns, live ones first
  int tile_pieces;          // of a tile of pieces: 16, or 4 of a panel
  int piece_tiles;          // such tiles of one matrix
  int32_t* piece_slabs;     // [lists, piece_tiles]: slabs of each
  int32_t* piece_entries;   // [lists, piece_tiles, slabs]: slab << 16 | live pieces;
                            // of sorted tiles, the live pieces of each of its steps
  SortedIndex sorted;       // tiles of sorted columns, of as many pieces as a panel
};

struct StripParams {
  int lists, rows, depth, columns;
  int slab;           // K of a slab: 128 bytes
  int slabs;          // of the whole K
  int column_blocks;  // ceil(columns / 64)
  int a_lists, b_lists, pack_lists;
  bool boxes, out_f32;
  bool turned;  // `a` is [k, m]: its kept pieces are turned into `packed` first
  StripChoice tile;
  StripIndex index;
  BlockBits a_bits, b_bits, out_bits;
  const void* a;
  const void* b;  // or its masked copy
  void* packed;   // !boxes: the kept entries of `a`, in stages as shared memory holds them; turned:
                  // its kept pieces, each slab's 32 rows side by side
  void* masked_b;  // nullptr: b has no mask
  void* out;
};

}  // namespace jaxsparse
