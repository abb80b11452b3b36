// A mask cut into blocks' shares: what the index kernels get, planned on the host.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/index/portfolio_index.h"

namespace jaxsparse {

constexpr int kMaxIndexWarps = 16;  // of a block; their registers hold all of a list

// n / divisor for 0 <= n < 2^31, at the price of a multiplication.
struct Division {
  uint32_t divisor, multiplier, shift;

  Division() = default;
  explicit Division(uint32_t d) : divisor(d), shift(0) {
    while ((uint64_t{1} << shift) < d) ++shift;
    multiplier = static_cast<uint32_t>((uint64_t{1} << 32) * ((uint64_t{1} << shift) - d) / d + 1);
  }

#ifdef __CUDACC__
  __device__ int32_t Quotient(int32_t n) const {
    const uint32_t u = static_cast<uint32_t>(n);
    return static_cast<int32_t>((__umulhi(u, multiplier) + u) >> shift);
  }
#endif
};

// One list as the kernel sees it. Warps [first_warp, first_warp + warps) of every block build it,
// each `each` words of its tile rows.
struct StripList {
  int32_t th_log2, tw_log2, rows, cols, first_warp, warps, each;
  uint32_t tile_starts;  // bit p is set when a tile begins at pixel column p of a word
  uint32_t capacity;
  int32_t* ids;
  int32_t* count;
  bool* overflow;
};

// What the kernels get. A strip is 1 << strip_log2 rows of an image, as high as the highest tile.
// A block of a mask owns `per_block` strips over their whole width, or, where that leaves blocks
// without work, `chunk` word columns of one strip.
struct StripArgs {
  const uint8_t* mask;
  uint32_t* words;
  int64_t mask_bytes, lists, rows;  // rows of one mask
  int32_t height, width, row_words, strip_log2, strips, all_strips, per_block, chunk, chunks;
  int32_t sizes, blocks;
  bool wide, linear, resident;  // rows of whole 16 bytes; a block's words follow each other
  Division by_chunk, by_chunks, by_strips, by_blocks;
  uint64_t list_of_warp[2];  // 4 bits a warp
  StripList list[kMaxPortfolio];
  const float* costs;
  int32_t variants;
  ReachSource reach;
  int64_t images;
  Division by_height;
  int32_t* choice;
  int32_t* scratch;

  // The words of a block, in bytes.
  int64_t block_bytes() const { return (int64_t{per_block} << strip_log2) * chunk * 4; }
};

// The shares of `blocks` blocks of `warps` warps a mask; the words of one are resident where they
// take at most `room` bytes.
StripArgs PlanStrips(const PortfolioArgs& args, int32_t blocks, int32_t warps, int64_t room);

}  // namespace jaxsparse
