// One block's share of a mask as words in shared memory, and the active tiles of any size in those
// words: a tile test is an OR of as many words as the tile has rows, folded by shifts.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/bits/pack_bytes.cuh"
#include "cuda/index/strips.h"

namespace jaxsparse {

// The words of a block: rows that follow each other in memory, `chunk` columns of each.
class StripWords {
 public:
  __device__ StripWords(const StripArgs& args, int64_t mask, int32_t rank, uint32_t* shared)
      : args_(args), shared_(shared) {
    const int32_t column = args.linear ? 0 : rank - args.by_chunks.Quotient(rank) * args.chunks;
    first_column_ = column * args.chunk;
    first_strip_ = (args.linear ? rank : args.by_chunks.Quotient(rank)) * args.per_block;
    strips_ = max(min(args.per_block, args.all_strips - first_strip_), 0);
    first_row_ = RowOf(first_strip_);
    count_ = (RowOf(first_strip_ + strips_) - first_row_) * args.chunk;
    begin_ = (mask * args.rows + first_row_) * args.row_words + first_column_;
    first_of_mask_ = mask * args.rows;
  }

  __device__ int32_t strips() const { return strips_; }

  // Every word, `load(row, word of the row)`, stays in `words` and here; all threads of the block
  // call, each with `kBatch` words in flight.
  template <int kBatch, class Load>
  __device__ void Pack(const Load& load) const {
    PackFrom<kBatch>(threadIdx.x, [&](int32_t i) {
      const int32_t row = args_.by_chunk.Quotient(i);
      const int32_t w = min(first_column_ + i - row * args_.chunk, args_.row_words - 1);
      return load(first_row_ + row, w);
    });
  }

  // The same from bytes to bits.
  __device__ void PackBytes() const {
    const MaskBytes bytes(args_.mask, args_.mask_bytes, args_.width);
    if (!args_.wide) {
      Pack<1>([&](int32_t row, int32_t w) { return bytes.LoadAny(first_of_mask_ + row, w); });
    } else if (args_.linear && args_.width % 32 == 0) {
      const uint4* from = reinterpret_cast<const uint4*>(args_.mask) + 2 * begin_;
      PackFrom<4>(threadIdx.x, [&](int32_t i) {
        return PackWord(__ldg(from + 2 * i), __ldg(from + 2 * i + 1));
      });
    } else {
      Pack<2>([&](int32_t row, int32_t w) { return bytes.LoadWide(first_of_mask_ + row, w); });
    }
  }

  // The tiles of word column `column` in tile row `line` of this block: bit p is the tile that
  // begins at pixel column p, `id` that of pixel column 0.
  struct Tiles {
    uint32_t bits;
    int32_t id;
  };
  __device__ Tiles Test(const StripList& list, int32_t line, int32_t column) const {
    const int32_t lines_log2 = args_.strip_log2 - list.th_log2;
    const int32_t strip = first_strip_ + (line >> lines_log2);
    const int32_t image = args_.by_strips.Quotient(strip);
    const int32_t y = ((strip - image * args_.strips) << args_.strip_log2) +
                      ((line & ((1 << lines_log2) - 1)) << list.th_log2);
    const int32_t rows = min(1 << list.th_log2, args_.height - y);
    const int32_t row = image * args_.height + y - first_row_;
    uint32_t bits = 0;
    if (args_.resident) {
      bits = OrResident(row * args_.chunk + column, rows, list.th_log2);
    } else if (first_column_ + column < args_.row_words) {
      const uint32_t* at = args_.words + begin_ + int64_t{row} * args_.row_words + column;
#pragma unroll 1
      for (int32_t r = 0; r < rows; ++r, at += args_.row_words) bits |= *at;
    }
#pragma unroll
    for (int s = 0; s < 5; ++s) {
      if (s < list.tw_log2) bits |= bits >> (1 << s);
    }
    const int32_t tile_row = image * list.rows + (y >> list.th_log2);
    return {bits & list.tile_starts,
            tile_row * list.cols + ((32 * (first_column_ + column)) >> list.tw_log2)};
  }

 private:
  // The first row of a strip among those of its mask.
  __device__ int32_t RowOf(int32_t strip) const {
    const int32_t image = args_.by_strips.Quotient(strip);
    return image * args_.height + ((strip - image * args_.strips) << args_.strip_log2);
  }

  // The OR of `rows` words, at most 1 << th_log2, from word `i` of the block on, a row apart. A row
  // taken twice does no harm, so four loads are in flight without a branch.
  __device__ uint32_t OrResident(int32_t i, int32_t rows, int32_t th_log2) const {
    if (rows <= 0) return 0;
    const auto word = [&](int32_t r) { return shared_[i + min(r, rows - 1) * args_.chunk]; };
    if (th_log2 < 2) return word(0) | word(1);
    uint32_t bits = 0;
#pragma unroll 1
    for (int32_t r = 0; r < rows; r += 4) bits |= word(r) | word(r + 1) | word(r + 2) | word(r + 3);
    return bits;
  }

  // `load(i)` for every word, `kBatch` in flight while there are so many, then fewer.
  template <int kBatch, class Load>
  __device__ void PackFrom(int32_t i, const Load& load) const {
    const int32_t step = static_cast<int32_t>(blockDim.x);
#pragma unroll 1
    for (; i + (kBatch - 1) * step < count_; i += kBatch * step) {
      uint32_t bits[kBatch];
#pragma unroll
      for (int k = 0; k < kBatch; ++k) bits[k] = load(i + k * step);
#pragma unroll
      for (int k = 0; k < kBatch; ++k) Keep(i + k * step, bits[k]);
    }
    if constexpr (kBatch > 1) PackFrom<kBatch / 2>(i, load);
  }

  __device__ void Keep(int32_t i, uint32_t bits) const {
    if (args_.linear) {
      args_.words[begin_ + i] = bits;
    } else {
      const int32_t row = args_.by_chunk.Quotient(i), column = i - row * args_.chunk;
      const bool exists = first_column_ + column < args_.row_words;
      if (exists) args_.words[begin_ + int64_t{row} * args_.row_words + column] = bits;
      if (!exists) bits = 0;
    }
    if (args_.resident) shared_[i] = bits;
  }

  const StripArgs& args_;
  uint32_t* shared_;
  int64_t begin_, first_of_mask_;
  int32_t first_strip_, strips_, first_row_, first_column_, count_;
};

using StripTiles = StripWords::Tiles;

// The share of one warp in one list: a run of its tile rows' words, 32 at a time.
class WarpShare {
 public:
  __device__ WarpShare(const StripArgs& args, const StripWords& words, const StripList& list)
      : args_(args), words_(words), list_(list) {
    const int32_t part = static_cast<int32_t>(threadIdx.x / 32) - list.first_warp;
    const int32_t all = (words.strips() << (args.strip_log2 - list.th_log2)) * args.chunk;
    first_ = part * list.each;
    stop_ = min(first_ + list.each, all);
  }

  __device__ int32_t first() const { return first_; }
  __device__ int32_t stop() const { return stop_; }

  // The tiles of this lane's word of the 32 from `word` on, none past the end.
  __device__ StripTiles Test(int32_t word) const {
    const int32_t item = word + static_cast<int32_t>(threadIdx.x % 32);
    if (item >= stop_) return {0, 0};
    const int32_t line = args_.by_chunk.Quotient(item);
    return words_.Test(list_, line, item - line * args_.chunk);
  }

 private:
  const StripArgs& args_;
  const StripWords& words_;
  const StripList& list_;
  int32_t first_, stop_;
};

// Of 32 words, those of lanes 16 * half to 16 * half + 15, half a word a lane.
__device__ inline StripTiles HalfWords(StripTiles tiles, int half) {
  const int lane = threadIdx.x % 32, source = 16 * half + lane / 2, first = 16 * (lane % 2);
  const uint32_t bits = __shfl_sync(~0u, tiles.bits, source);
  return {bits >> first & 0xffffu, __shfl_sync(~0u, tiles.id, source) + first};
}

// Stores a warp's tiles: each lane puts its own where they follow those of the lanes before it, in
// shared memory; then the lanes write all of them, neighbours to neighbouring places.
class StripStore {
 public:
  static constexpr int kMostTiles = 16;  // of a lane
  // Shared memory for a warp.
  static constexpr int kEntries = kMostTiles * 32 + kMostTiles * 2;

  __device__ explicit StripStore(int32_t* entries)
      : entries_(static_cast<uint32_t>(__cvta_generic_to_shared(entries))) {}

  // `before`: tiles of the lanes before, `all`: of the step, `place`: of its first one. Every lane
  // must call.
  __device__ void Store(const StripList& list, int32_t* ids, StripTiles tiles, int32_t before,
                        int32_t all, uint32_t place) const {
    const int lane = threadIdx.x % 32, tw = 1 << list.tw_log2,
              span = min(32 >> list.tw_log2, kMostTiles);
    __syncwarp();
    int32_t to = before, id = tiles.id;
    uint32_t bits = tiles.bits;
#pragma unroll 1
    for (int k = 0; k < span; k += 4) {  // bits past the last tile are zero
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        Put(bits & 1u, to, id + j);
        to += bits & 1u;
        bits = __funnelshift_rc(bits, 0u, tw);
      }
      id += 4;
    }
    __syncwarp();
    if (place >= list.capacity) return;
    const int32_t listed = min(static_cast<uint32_t>(all), list.capacity - place);
    int32_t* out = ids + place;
    int32_t i = lane;
#pragma unroll 1
    for (; i + 96 < listed; i += 128) {
      int32_t batch[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) batch[j] = Get(i + 32 * j);
#pragma unroll
      for (int j = 0; j < 4; ++j) out[i + 32 * j] = batch[j];
    }
#pragma unroll 1
    for (; i < listed; i += 32) out[i] = Get(i);
  }

 private:
  // A bank is skipped every 16 entries: full lanes would all write to the same two.
  __device__ uint32_t Address(int32_t i) const { return entries_ + 4 * (i + (i >> 4)); }

  // A store without a branch, to an address that the compiler need not find again.
  __device__ void Put(uint32_t active, int32_t i, int32_t id) const {
    asm volatile(
        "{.reg .pred p;\n"
        "setp.ne.u32 p, %0, 0;\n"
        "@p st.shared.s32 [%1], %2;}" ::"r"(active),
        "r"(Address(i)), "r"(id)
        : "memory");
  }
  __device__ int32_t Get(int32_t i) const {
    int32_t id;
    asm volatile("ld.shared.s32 %0, [%1];" : "=r"(id) : "r"(Address(i)) : "memory");
    return id;
  }

  uint32_t entries_;
};

}  // namespace jaxsparse
