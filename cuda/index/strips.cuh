// A mask cut into segments, one block's share of them as words in shared memory, and the active
// tiles of any size in those words: a tile test is an OR of as many words as the tile has rows,
// folded by shifts. No word is read from memory twice.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/bits/pack_bytes.cuh"
#include "cuda/index/portfolio_index.h"

namespace jaxsparse {

// n / divisor for 0 <= n < 2^31, at the price of a multiplication.
struct Division {
  uint32_t divisor, multiplier, shift;

  Division() = default;
  explicit Division(uint32_t d) : divisor(d), shift(0) {
    while ((uint64_t{1} << shift) < d) ++shift;
    multiplier = static_cast<uint32_t>((uint64_t{1} << 32) * ((uint64_t{1} << shift) - d) / d + 1);
  }

  __device__ int32_t Quotient(int32_t n) const {
    const uint32_t u = static_cast<uint32_t>(n);
    return static_cast<int32_t>((__umulhi(u, multiplier) + u) >> shift);
  }
};

// One list as the kernel sees it. Warps [first_warp, first_warp + warps) of every block build it.
struct StripList {
  int32_t th_log2, tw_log2, rows, cols, first_warp, warps;
  uint32_t tile_starts;  // bit p is set when a tile begins at pixel column p of a word
  int64_t capacity;
  int32_t* ids;
};

// What the kernel gets. A segment is `chunk` word columns of a strip of 1 << strip_log2 rows, as
// high as the highest tile; segments follow each other strip by strip. A block owns `per_block` of
// them, `resident` in shared memory where they fit.
struct StripArgs {
  const uint8_t* mask;
  uint32_t* words;
  int64_t lists, images;
  int32_t height, width, row_words, strip_log2, strips, chunk, chunks, segments, per_block;
  int32_t sizes, variants;
  bool resident;
  Division by_chunk, by_chunks, by_strips;
  uint64_t list_of_warp[2];  // 4 bits a warp
  StripList list[kMaxPortfolio];
  const float* costs;
  int32_t* count;
  bool* overflow;
  int32_t* choice;
  int32_t* scratch;
};

// A segment's first pixel row and word column.
struct Segment {
  int32_t image, y, column;
};

// The words of a block's segments.
class StripWords {
 public:
  __device__ StripWords(const StripArgs& args, int64_t list, int32_t rank, uint32_t* shared)
      : args_(args),
        shared_(shared),
        first_row_(list * args.images * args.height),
        first_(rank * args.per_block),
        count_(max(min(args.per_block, args.segments - first_), 0)) {}

  // Segments of this block.
  __device__ int32_t count() const { return count_; }

  __device__ Segment Locate(int32_t index) const {
    const int32_t segment = first_ + index, row = args_.by_chunks.Quotient(segment);
    const int32_t image = args_.by_strips.Quotient(row);
    return {image, (row - image * args_.strips) << args_.strip_log2,
            (segment - row * args_.chunks) * args_.chunk};
  }

  // Every word from bytes to bits, which stay in `words` and here; all threads of the block.
  __device__ void Pack() const {
    const MaskBytes bytes(args_.mask, args_.lists * args_.images * args_.height * args_.width,
                          args_.width);
    const int32_t total = (count_ << args_.strip_log2) * args_.chunk;
    for (int32_t i = threadIdx.x; i < total; i += blockDim.x) {
      const int32_t line = args_.by_chunk.Quotient(i);
      const Segment at = Locate(line >> args_.strip_log2);
      const int32_t y = at.y + (line & ((1 << args_.strip_log2) - 1));
      const int32_t column = at.column + i - line * args_.chunk;
      uint32_t bits = 0;
      if (y < args_.height && column < args_.row_words) {
        const int64_t row = first_row_ + static_cast<int64_t>(at.image) * args_.height + y;
        bits = bytes.Load(row, column);
        args_.words[row * args_.row_words + column] = bits;
      }
      if (args_.resident) shared_[i] = bits;
    }
  }

  // The OR of the `1 << th_log2` words from row `row` of segment `index` on, column `column`.
  __device__ uint32_t OrRows(int32_t index, int32_t row, int32_t column, int32_t th_log2) const {
    const int32_t rows = 1 << th_log2;
    uint32_t bits = 0;
    if (args_.resident) {
      const uint32_t* at = shared_ + ((index << args_.strip_log2) + row) * args_.chunk + column;
#pragma unroll 4
      for (int32_t r = 0; r < rows; ++r) bits |= at[r * args_.chunk];
      return bits;
    }
    const Segment segment = Locate(index);
    column += segment.column;
    row += segment.y;
    if (column >= args_.row_words) return 0;
    const int64_t first = first_row_ + static_cast<int64_t>(segment.image) * args_.height;
    for (int32_t y = row; y < min(row + rows, args_.height); ++y) {
      bits |= args_.words[(first + y) * args_.row_words + column];
    }
    return bits;
  }

 private:
  const StripArgs& args_;
  uint32_t* shared_;
  int64_t first_row_;
  int32_t first_, count_;
};

// The share of one warp in one list: a run of its tile rows' words, 32 at a time.
class WarpShare {
 public:
  __device__ WarpShare(const StripArgs& args, const StripWords& words, const StripList& list)
      : args_(args), words_(words), list_(list) {
    const int32_t part = static_cast<int32_t>(threadIdx.x / 32) - list.first_warp;
    lines_log2_ = args.strip_log2 - list.th_log2;
    const int32_t items = (words.count() << lines_log2_) * args.chunk;
    const int32_t each = (items + 32 * list.warps - 1) / (32 * list.warps) * 32;
    first_ = part * each;
    stop_ = min(first_ + each, items);
  }

  __device__ int32_t first() const { return first_; }
  __device__ int32_t stop() const { return stop_; }

  // Bit p: the tile that begins at pixel column p of this lane's word is active. `id`: of the tile
  // at column 0. Nothing past the end.
  __device__ uint32_t Test(int32_t step, int32_t* id) const {
    const int32_t item = step + static_cast<int32_t>(threadIdx.x % 32);
    if (item >= stop_) return 0;
    const int32_t lines = args_.by_chunk.Quotient(item), segment = lines >> lines_log2_;
    const int32_t line = lines & ((1 << lines_log2_) - 1), column = item - lines * args_.chunk;
    uint32_t bits = words_.OrRows(segment, line << list_.th_log2, column, list_.th_log2);
    for (int s = 0; s < list_.tw_log2; ++s) bits |= bits >> (1 << s);
    if (id != nullptr) {
      const Segment at = words_.Locate(segment);
      const int32_t row = at.image * list_.rows + (at.y >> list_.th_log2) + line;
      *id = row * list_.cols + ((32 * (at.column + column)) >> list_.tw_log2);
    }
    return bits & list_.tile_starts;
  }

 private:
  const StripArgs& args_;
  const StripWords& words_;
  const StripList& list_;
  int32_t lines_log2_, first_, stop_;
};

// Stores a warp's tiles so that neighbouring lanes write neighbouring places.
class StripStore {
 public:
  // `place`: of the lane's first tile, `id`: of its tile at pixel column 0. Every lane must call.
  __device__ static void Store(const StripList& list, int32_t* ids, uint32_t bits, int32_t place,
                               int32_t id) {
    __shared__ int4 entries[32][32];
    const int lane = threadIdx.x % 32;
    int4* mine = entries[threadIdx.x / 32];
    __syncwarp();
    mine[lane] = make_int4(static_cast<int>(bits), place, id, 0);
    __syncwarp();
    const int tile = lane & ((32 >> list.tw_log2) - 1), bit = tile << list.tw_log2;
    for (int q = lane >> (5 - list.tw_log2); q < 32; q += kBatch << list.tw_log2) {
      int4 batch[kBatch];  // all loads before any store, which might alias them
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const int source = q + (k << list.tw_log2);
        batch[k] = source < 32 ? mine[source] : make_int4(0, 0, 0, 0);
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
