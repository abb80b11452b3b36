// MaskWalk: what the rows of a compute tile attend to, as units of 16 columns, condensed: the units
// of every block that any of the tile's rows lists, one after the other, whatever the sizes of
// blocks and tiles. A unit lies in one block, because blocks are multiples of 16.
//
// The lists are read a window of columns at a time, all threads at once, into a table of slots
// (rows of blocks by columns of blocks) in shared memory; one warp compacts its columns.
#pragma once

#include <cstdint>

#include "cuda/kernels/sparse_attention/args.h"

namespace jaxsparse {

inline constexpr int kMaskUnit = 16;
inline constexpr int kNoColumn = 1 << 30;  // a unit that does not exist: behind every array
inline constexpr int kUnlisted = -2, kFullBlock = -1;  // slots

// Of at most `Lists` rows of blocks, each with `Window` columns.
template <int Lists, int Window>
struct MaskTable {
  static constexpr int kLists = Lists, kMost = Lists * Window;
  static_assert(Window >= 32 && (Window & (Window - 1)) == 0 && (Lists & (Lists - 1)) == 0);
  static_assert(kMost <= 1 << 15, "a column and a flag are 16 bits");
  int slots[kMost];
  uint16_t found[kMost];  // columns that any row lists; kMixed: some row not, or not all of it
  int found_count;
  int next[Lists];    // of each list, the entry that the window begins with
  int beyond[Lists];  // the first entry of a later window
};

struct MaskUnit {
  int start;   // first of its columns, or kNoColumn
  int column;  // its block, in the window
};

// `Transposed`: the rows are keys.
template <class Table, int Threads, bool Transposed>
class MaskWalk {
 public:
  // For `rows` rows from `first` on; `row_length` and `length` are the sizes of both axes.
  __device__ MaskWalk(const AttentionMask& mask, Table& table, int batch, int head, int first,
                      int rows, int row_length, int length)
      : mask_(mask), table_(table), length_(length) {
    const int block = Transposed ? mask.block_kv : mask.block_q;
    first_block_ = first / block;
    lists_ = (min(first + rows, row_length) - 1) / block - first_block_ + 1;
    const int64_t heads = static_cast<int64_t>(mask.batch > 1 ? batch : 0) * mask.heads;
    row_ = (heads + (mask.heads > 1 ? head : 0)) * mask.rows + first_block_;
    size_ = Table::kMost;
    for (int lists = 1; lists < lists_; lists *= 2) size_ /= 2;
    units_of_block_ = (Transposed ? mask.block_q : mask.block_kv) / kMaskUnit;
    inverse_ = 0xFFFFFFFFu / units_of_block_ + 1;
    start_ = -size_;
    __syncthreads();  // the table may be in use
    if (threadIdx.x < lists_) table_.next[threadIdx.x] = 0;
  }

  // Goes to the next window. All threads.
  __device__ bool Next() {
    start_ += size_;
    if (start_ >= mask_.columns) return false;
    width_ = min(size_, mask_.columns - start_);
    __syncthreads();
    for (int i = threadIdx.x; i < Table::kMost; i += Threads) table_.slots[i] = kUnlisted;
    if (threadIdx.x < Table::kLists) table_.beyond[threadIdx.x] = mask_.columns;
    __syncthreads();
    for (int list = 0; list < lists_; ++list) Read(list);
    __syncthreads();
    if (threadIdx.x < lists_) table_.next[threadIdx.x] = table_.beyond[threadIdx.x];
    if (threadIdx.x < 32) Compact();
    __syncthreads();
    units_ = table_.found_count * units_of_block_;
    const int last = table_.found_count - 1;
    if (last >= 0 && start_ + (table_.found[last] & ~kMixed) == mask_.columns - 1) {
      units_ -= mask_.columns * units_of_block_ - (length_ + kMaskUnit - 1) / kMaskUnit;
    }
    return true;
  }

  // Units of the window, and one of them.
  __device__ int units() const { return units_; }
  __device__ __forceinline__ MaskUnit Unit(int unit) const {
    if (unit >= units_) return {kNoColumn, 0};
    const int i = Index(unit);
    const int column = table_.found[i] & ~kMixed;
    const int within = unit - i * units_of_block_;
    return {((start_ + column) * units_of_block_ + within) * kMaskUnit, column};
  }
  // Whether some row of the tile leaves out a part of the unit's block.
  __device__ __forceinline__ bool Mixed(int unit) const {
    return unit < units_ && (table_.found[Index(unit)] & kMixed) != 0;
  }
  // Which of the tile's lists is that of row `row`; -1 behind the last row.
  __device__ __forceinline__ int List(int row) const {
    const int list = row / (Transposed ? mask_.block_kv : mask_.block_q) - first_block_;
    return list < lists_ ? list : -1;
  }
  // The slot of a unit's block in a list.
  __device__ __forceinline__ int Slot(MaskUnit unit, int list) const {
    return unit.start == kNoColumn || list < 0 ? kUnlisted
                                               : table_.slots[list * size_ + unit.column];
  }
  __device__ const AttentionMask& mask() const { return mask_; }
  __device__ int length() const { return length_; }

 private:
  static constexpr int kMixed = 1 << 15;

  __device__ __forceinline__ int Index(int unit) const {
    return units_of_block_ == 1 ? unit : __umulhi(unit, inverse_);
  }

  __device__ void Read(int list) {
    const int64_t row = row_ + list;
    const int count = min(__ldg(mask_.counts + row), mask_.columns);
    for (int i = table_.next[list] + threadIdx.x; i < count; i += Threads) {
      const int block = __ldg(mask_.blocks + row * mask_.columns + i);
      if (block < start_ || block >= mask_.columns) continue;
      if (block >= start_ + width_) {
        atomicMin(&table_.beyond[list], i);
        break;
      }
      const int slot = __ldg(mask_.slots + row * mask_.columns + i);
      if (slot < kFullBlock || slot >= mask_.word_rows) continue;
      table_.slots[list * size_ + block - start_] = slot;
    }
  }

  __device__ void Compact() {
    int found = 0;
    for (int first = 0; first < width_; first += 32) {
      const int column = first + threadIdx.x;
      bool listed = false, full = true;
      for (int list = 0; column < width_ && list < lists_; ++list) {
        const int slot = table_.slots[list * size_ + column];
        listed |= slot != kUnlisted;
        full &= slot == kFullBlock;
      }
      const uint32_t all = __ballot_sync(0xFFFFFFFFu, listed);
      const int before = __popc(all & ((1u << threadIdx.x) - 1));
      if (listed)
        table_.found[found + before] = static_cast<uint16_t>(column | (full ? 0 : kMixed));
      found += __popc(all);
    }
    if (threadIdx.x == 0) table_.found_count = found;
  }

  const AttentionMask& mask_;
  Table& table_;
  int length_, first_block_, lists_, size_, units_of_block_, start_;
  int width_ = 0, units_ = 0;
  uint32_t inverse_;
  int64_t row_;
};

}  // namespace jaxsparse
