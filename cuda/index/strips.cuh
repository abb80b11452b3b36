// A mask cut into strips of words, a lane per word: the lanes of a strip are OR-ed by shuffles, the
// bits of a word folded by shifts, so that one load of a word tests the tiles of every size.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/bits/pack_bytes.cuh"
#include "cuda/index/portfolio_index.h"

namespace jaxsparse {

// One list as the kernel sees it. Lists come sorted by tile height.
struct StripList {
  int32_t th_log2, tw_log2, rows, cols, slot;
  uint32_t tile_starts;  // bit p is set when a tile begins at pixel column p of a word
  int64_t capacity;
  int32_t* ids;
};

// What the kernel gets. An item is a word column of a strip of 1 << strip_log2 rows; a warp holds
// 32 >> strip_log2 items at a time, `steps` times, a block `warps` such ranges one after another.
struct StripArgs {
  const uint8_t* mask;
  uint32_t* words;
  int64_t lists, images;
  int32_t height, width, row_words, strip_log2, strips, items, steps, warps, sizes, variants;
  StripList list[kMaxPortfolio];
  const float* costs;
  int32_t* count;
  bool* overflow;
  int32_t* choice;
  int32_t* scratch;
};

// Where a lane's word lies.
struct LaneWord {
  int32_t image, y, w;
  bool exists;
};

class StripWords {
 public:
  __device__ StripWords(const StripArgs& args, int64_t list)
      : args_(args),
        first_row_(list * args.images * args.height),
        bytes_(args.mask, args.lists * args.images * args.height * args.width, args.width) {}

  __device__ LaneWord Locate(int32_t first_item) const {
    const int32_t lane = threadIdx.x % 32, item = first_item + (lane >> args_.strip_log2);
    const int32_t row = item / args_.row_words, image = row / args_.strips;
    const int32_t y =
        ((row - image * args_.strips) << args_.strip_log2) + (lane & ((1 << args_.strip_log2) - 1));
    return {image, y, item - row * args_.row_words, item < args_.items && y < args_.height};
  }

  // From bytes to bits, which stay in `words`.
  __device__ uint32_t Pack(const LaneWord& at) const {
    if (!at.exists) return 0;
    const int64_t row = Row(at);
    const uint32_t bits = bytes_.Load(row, at.w);
    args_.words[row * args_.row_words + at.w] = bits;
    return bits;
  }

  // Bits that this lane has packed before.
  __device__ uint32_t Reload(const LaneWord& at) const {
    return at.exists ? args_.words[Row(at) * args_.row_words + at.w] : 0;
  }

 private:
  __device__ int64_t Row(const LaneWord& at) const {
    return first_row_ + static_cast<int64_t>(at.image) * args_.height + at.y;
  }

  const StripArgs& args_;
  int64_t first_row_;
  MaskBytes bytes_;
};

// The active tiles of a lane's word for one list after another. Every lane of the warp must call.
class StripTiles {
 public:
  __device__ explicit StripTiles(uint32_t word) : rows_(word) {}

  // Bit p: the tile that begins at pixel column p is active. Zero but in a tile's first row.
  __device__ uint32_t Test(const StripList& list) {
    for (; height_log2_ < list.th_log2; ++height_log2_) {
      rows_ |= __shfl_xor_sync(~0u, rows_, 1 << height_log2_);
    }
    uint32_t bits = rows_;
    for (int s = 0; s < list.tw_log2; ++s) bits |= bits >> (1 << s);
    const bool leads = (threadIdx.x & ((1u << list.th_log2) - 1u)) == 0;
    return leads ? bits & list.tile_starts : 0u;
  }

 private:
  uint32_t rows_;
  int height_log2_ = 0;
};

// Stores a warp's tiles so that neighbouring lanes write neighbouring places.
class StripStore {
 public:
  // `place`: of the lane's first tile. Returns nothing; every lane must call.
  __device__ static void Store(const StripList& list, int64_t mask_list, uint32_t bits,
                               int32_t place, const LaneWord& at) {
    __shared__ int4 entries[32][32];
    const int lane = threadIdx.x % 32;
    int4* mine = entries[threadIdx.x / 32];
    const int32_t row = at.image * list.rows + (at.y >> list.th_log2);
    const int32_t id = row * list.cols + ((32 * at.w) >> list.tw_log2);
    __syncwarp();
    mine[lane] = make_int4(static_cast<int>(bits), place, id, 0);
    __syncwarp();
    int32_t* ids = list.ids + mask_list * list.capacity;
    const int tile = lane & ((32 >> list.tw_log2) - 1), bit = tile << list.tw_log2;
    const int first = lane >> (5 - list.tw_log2), words = 32 >> list.th_log2;
    for (int q = first; q < words; q += kBatch << list.tw_log2) {
      int4 batch[kBatch];  // all loads before any store, which might alias them
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const int source = q + (k << list.tw_log2);
        batch[k] = source < words ? mine[source << list.th_log2] : make_int4(0, 0, 0, 0);
      }
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const uint32_t active = static_cast<uint32_t>(batch[k].x);
        const int32_t to = batch[k].y + __popc(active & ((1u << bit) - 1u));
        if ((active >> bit & 1u) && to < list.capacity) ids[to] = batch[k].z + tile;
      }
    }
  }

 private:
  static constexpr int kBatch = 4;
};

}  // namespace jaxsparse
