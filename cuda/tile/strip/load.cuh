// StripLoad: stages of a masked product, slab by slab of what a tile of rows needs of K. A stage
// holds the rows of `a` with 128 bytes of K each, and those rows of `b` in boxes 128 bytes wide.
//
// Where blocks of `a` are whole pieces, TMA loads both in place, and a piece that is masked
// arrives as zeros from outside of the matrix: the phantom read. Otherwise `a` comes packed in one
// bulk copy, and the listed rows of `b` are gathered by cp.async, or by TMA where they follow each
// other.
#pragma once

#include "cuda/core/bulk_load.cuh"
#include "cuda/tile/load/stack.cuh"
#include "cuda/tile/strip/tiles.cuh"

namespace jaxsparse {

inline constexpr int kStripLoaders = 128;

template <typename T>
class StripLoad {
 public:
  __device__ StripLoad(const StripParams& p, const StripShape& shape, const CUtensorMap* a,
                       const CUtensorMap* b, int thread)
      : p_(p), shape_(shape), a_map_(a), b_map_(b), thread_(thread), lane_(thread % 32) {}

  // Lane i of a warp answers for box i of `b`'s columns.
  __device__ void Begin(const StripTiles& tiles, const StripTile& tile) {
    row_ = tile.row;
    a_list_ = p_.a_lists == 1 ? 0 : tile.list;
    b_list_ = tile.b_list;
    column_ = tiles.Column(tile, lane_, kBoxColumns);
    boxes_ = __popc(__ballot_sync(~0u, column_ >= 0));
  }

  // One warp: the boxes of slab `slab`. `live` says which pieces of `a` are kept.
  __device__ void LoadBoxes(uint32_t stage, int slab, unsigned live, uint32_t full) const {
    const unsigned loaded =
        shape_.wide ? 3u : ((live & 3) != 0 ? 3u : 0u) | ((live & 12) != 0 ? 12u : 0u);
    if (lane_ == 0) {
      const int bytes = __popc(loaded) * kPieceRows * kSlabBytes + boxes_ * kBoxBytes;
      ptx::BarrierArriveExpect(full, bytes);
    }
    __syncwarp();
    if (lane_ < 4 && ((loaded >> lane_) & 1)) {
      const int row = (live >> lane_) & 1 ? row_ + lane_ * kPieceRows : p_.rows;
      ptx::LoadStackBox(stage + lane_ * kPieceRows * kSlabBytes, a_map_, slab * kSlab, row, a_list_,
                        full, kNormal);
    }
    LoadRows(stage + shape_.bytes_a, slab * kSlab, full);
  }

  // What a thread copies of the rows of `b` that a slab lists.
  struct Listed {
    int first, last;  // of the whole slab
    int k[kSlabBytes / DTypeTraits<T>::kBytes * 8 / kStripLoaders];
  };

  // Reads the list ahead of time: its latency passes while a stage is waited for.
  __device__ Listed Read(const int32_t* columns) const {
    Listed listed;
    listed.first = __ldg(columns);
    listed.last = __ldg(columns + kSlab - 1);
#pragma unroll
    for (int i = 0; i < kRows; ++i) listed.k[i] = __ldg(columns + thread_ / 8 + i * kRowStep);
    return listed;
  }

  // All loading threads: a packed slab of `a`, and the listed rows of `b`.
  __device__ void LoadListed(uint32_t stage, const void* packed, const Listed& listed,
                             uint32_t full) const {
    const bool run = listed.first >= 0 && listed.last - listed.first == kSlab - 1;
    if (thread_ < 32) {
      if (lane_ == 0) {
        ptx::BarrierArriveExpect(full, shape_.bytes_a + (run ? boxes_ * kBoxBytes : 0));
        ptx::LoadBulk(stage, packed, shape_.bytes_a, full);
      }
      __syncwarp();
      if (run) LoadRows(stage + shape_.bytes_a, listed.first, full);
    }
    if (!run) GatherRows(stage + shape_.bytes_a, listed);
    ptx::BarrierArriveAfterCopies(full);
  }

 private:
  static constexpr int kElementBytes = DTypeTraits<T>::kBytes;
  static constexpr int kSlab = kSlabBytes / kElementBytes;
  static constexpr int kBoxColumns = kSlabBytes / kElementBytes;
  static constexpr int kBoxBytes = kSlab * kSlabBytes;
  static constexpr int kRowStep = kStripLoaders / 8, kRows = kSlab / kRowStep;
  static constexpr uint64_t kNormal = 0x1000000000000000ull;  // how L2 keeps what is loaded

  __device__ void LoadRows(uint32_t shared, int k, uint32_t full) const {
    if (column_ >= 0) {
      ptx::LoadStackBox(shared + lane_ * kBoxBytes, b_map_, column_, k, b_list_, full, kNormal);
    }
  }

  // Eight threads copy the 128 bytes of one row in one box.
  __device__ void GatherRows(uint32_t shared, const Listed& listed) const {
    const int unit = thread_ % 8, first_row = thread_ / 8;
    const char* b =
        static_cast<const char*>(p_.b) + int64_t{b_list_} * p_.depth * p_.columns * kElementBytes;
    const char* source[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int k = listed.k[i];
      source[i] = k < 0 ? nullptr : b + int64_t{k} * p_.columns * kElementBytes;
    }
    const uint32_t target = shared + first_row * kSlabBytes + ((unit ^ (first_row % 8)) * 16);
    const int boxes = shape_.blocks * kColumnBlock / kBoxColumns;
    for (int box = 0; box < boxes; ++box) {
      const int first = __shfl_sync(~0u, column_, box);
      const int column = first + unit * (16 / kElementBytes);
      const bool inside = first >= 0 && column < p_.columns;
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const bool copies = inside && source[i] != nullptr;
        ptx::CopyOrZero16(target + box * kBoxBytes + i * kRowStep * kSlabBytes,
                          copies ? source[i] + int64_t{column} * kElementBytes : p_.b,
                          copies ? 16 : 0);
      }
    }
  }

  const StripParams& p_;
  const StripShape& shape_;
  const CUtensorMap* a_map_;
  const CUtensorMap* b_map_;
  int thread_, lane_, row_ = 0, a_list_ = 0, b_list_ = 0, column_ = -1, boxes_ = 0;
};

}  // namespace jaxsparse
