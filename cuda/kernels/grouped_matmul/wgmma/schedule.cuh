// Which tiles a persistent CTA takes, from group sizes that only the device knows: looked up in the
// plan, or, where there are few groups and no plan was made, in the sizes themselves.
#pragma once

#include "cuda/kernels/grouped_matmul/params.cuh"

namespace jaxsparse {

// A tile as the loading warps tell it to the multiplying ones. group -1: zeros, nothing is loaded;
// no rows: there are no more tiles.
struct alignas(16) ColumnTile {
  int group, first;
  int16_t rows, halves;  // of the columns: 2, or 1 where two CTAs share them
  int n_half;            // half column tiles before this one
};

// What the loading warps told. Lane 0 reads it and passes it on: the same lane releases the stage,
// so that the record is not read after it may be overwritten.
__device__ __forceinline__ ColumnTile Told(const ColumnTile& tile) {
  int4 words = {};
  if (threadIdx.x % 32 == 0) words = *reinterpret_cast<const int4*>(&tile);
  words.x = __shfl_sync(0xFFFFFFFFu, words.x, 0);
  words.y = __shfl_sync(0xFFFFFFFFu, words.y, 0);
  words.z = __shfl_sync(0xFFFFFFFFu, words.z, 0);
  words.w = __shfl_sync(0xFFFFFFFFu, words.w, 0);
  return *reinterpret_cast<const ColumnTile*>(&words);
}

// Brings nearer what the rows of a tile are looked up in, so that the look-up does not stop the
// copies.
__device__ __forceinline__ void FetchIndex(const SortedRows& rows, const ColumnTile& tile,
                                           int thread) {
  if (thread >= tile.rows) return;
  for (const int32_t* index : {rows.index, rows.partner}) {
    if (index == nullptr) continue;
    asm volatile("prefetch.global.L1 [%0];" ::"l"(index + tile.first + thread));
  }
}

// Stages that a tile passes through.
__device__ __forceinline__ int StepsOf(const GroupedParams& p, const ColumnTile& tile) {
  return tile.group >= 0 ? p.k_steps : 1;
}

// The row tiles of up to kMostSummedGroups groups, found by one warp: a lane keeps where its
// groups' rows and tiles begin. Every call is made by all lanes together.
class SummedGroups {
 public:
  __device__ void Init(const GroupedParams& p, int tile_m) {
    const int lane = threadIdx.x % 32;
    long long rows = 0;
    for (int j = 0; j < kPerLane; ++j) rows += Size(p, lane * kPerLane + j);
    const long long end = Scan(rows);
    first_row_ = static_cast<int>(min(end - rows, static_cast<long long>(p.sorted_rows)));
    int tiles = 0, row = first_row_;
    for (int j = 0; j < kPerLane; ++j) {
      const int own = Rows(p, lane * kPerLane + j, row);
      tiles += (own + tile_m - 1) / tile_m;
      row += own;
    }
    const int tile_end = static_cast<int>(Scan(tiles));
    first_tile_ = tile_end - tiles;
    owned_tiles_ = __shfl_sync(0xFFFFFFFFu, tile_end, 31);
    owned_rows_ = __shfl_sync(0xFFFFFFFFu, row, 31);
  }

  __device__ int owned_tiles() const { return owned_tiles_; }
  __device__ int owned_rows() const { return owned_rows_; }

  // Row tile `tile`; those past the owned ones are of rows that no group owns.
  __device__ RowTile Find(const GroupedParams& p, int tile, int tile_m) const {
    RowTile found = {-1, owned_rows_, 0, 0, 0, 1};
    int begin = owned_tiles_, rows = p.sorted_rows - owned_rows_;
    if (tile < owned_tiles_) {
      const int owner = 31 - __clz(__ballot_sync(0xFFFFFFFFu, first_tile_ <= tile));
      int row = __shfl_sync(0xFFFFFFFFu, first_row_, owner);
      int at = __shfl_sync(0xFFFFFFFFu, first_tile_, owner);
#pragma unroll
      for (int j = 0; j < kPerLane; ++j) {
        const int own = Rows(p, owner * kPerLane + j, row), tiles = (own + tile_m - 1) / tile_m;
        if (at <= tile && tile < at + tiles) {
          found.group = owner * kPerLane + j;
          found.first = row;
          begin = at;
          rows = own;
        }
        row += own;
        at += tiles;
      }
    }
    const int i = tile - begin, tiles = (rows + tile_m - 1) / tile_m;
    const int width = BandWidth(tiles), place = i % width;
    found.first += i * tile_m;
    found.rows = static_cast<int16_t>(min(tile_m, rows - i * tile_m));
    found.place = static_cast<int16_t>(place);
    found.width = static_cast<int16_t>(min(width, tiles - (i - place)));
    return found;
  }

 private:
  static constexpr int kPerLane = kMostSummedGroups / 32;

  __device__ static int Size(const GroupedParams& p, int group) {
    return group < p.groups ? max(__ldg(p.sizes + group), 0) : 0;
  }
  // Of a group whose rows start at `row`.
  __device__ static int Rows(const GroupedParams& p, int group, int row) {
    return min(Size(p, group), p.sorted_rows - row);
  }
  __device__ static long long Scan(long long v) {
    for (int d = 1; d < 32; d *= 2) {
      const long long below = __shfl_up_sync(0xFFFFFFFFu, v, d);
      if (static_cast<int>(threadIdx.x % 32) >= d) v += below;
    }
    return v;
  }

  int first_row_, first_tile_, owned_tiles_, owned_rows_;
};

// Column tiles run slowest within a band of row tiles. Where groups have several row tiles a band
// is of one group: CTAs at work at the same time share its weights, and the band's rows stay in L2
// from one column tile to the next. Where weights are read once, bands run across groups.
//
// A last round in which at most half of the CTAs would have a tile hands out half tiles, where
// `Splits`.
template <int TileM, bool Splits>
class GroupedSchedule {
 public:
  // By all lanes of a warp together, and so is Next.
  __device__ explicit GroupedSchedule(const GroupedParams& p) : p_(p), at_(blockIdx.x) {
    if (p.plan.header != nullptr) {
      m_tiles_ = __ldg(p.plan.header);
    } else {
      summed_.Init(p, TileM);
      const bool zeros = p.combine.scatter == nullptr;  // else they are never read
      const int unowned = zeros ? p.sorted_rows - summed_.owned_rows() : 0;
      m_tiles_ = summed_.owned_tiles() + (unowned + TileM - 1) / TileM;
    }
    whole_ = end_ = static_cast<int64_t>(m_tiles_) * p.n_tiles;
    const int64_t last = whole_ % gridDim.x;
    if (Splits && whole_ > last && 2 * last <= gridDim.x) {
      whole_ -= last;
      end_ = whole_ + 2 * last;
    }
  }

  // The next tile of this CTA, or, once, one without rows. `tile` holds the one before, or one of a
  // row.
  __device__ bool Next(ColumnTile* tile) {
    if (tile->rows == 0) return false;
    *tile = {-1, 0, 0, 2, 0};
    if (at_ >= end_) return true;
    const int64_t half = at_ - whole_;
    RowTile rows;
    int n_tile = 0;
    Find(half < 0 ? at_ : whole_ + half / 2, &rows, &n_tile);
    *tile = {rows.group, rows.first, rows.rows, 2, 2 * n_tile};
    if (half >= 0) {
      tile->halves = 1;
      tile->n_half += static_cast<int>(half % 2);
    }
    at_ += gridDim.x;
    return true;
  }

 private:
  // Tile number `at`.
  __device__ void Find(int64_t at, RowTile* rows, int* n_tile) const {
    const int m = static_cast<int>(at / p_.n_tiles);
    int first = m / kBandTiles * kBandTiles, width = min(kBandTiles, m_tiles_ - first);
    if (!p_.read_once) {
      const RowTile any = Load(m);  // of the same band
      first = m - any.place;
      width = any.width;
    }
    const int inside = static_cast<int>(at - static_cast<int64_t>(first) * p_.n_tiles);
    *n_tile = inside / width;
    *rows = Load(first + inside - *n_tile * width);
  }

  __device__ RowTile Load(int tile) const {
    if (p_.plan.header == nullptr) return summed_.Find(p_, tile, TileM);
    const int4 v = __ldg(reinterpret_cast<const int4*>(p_.plan.tiles + tile));
    return {v.x,
            v.y,
            static_cast<int16_t>(v.z),
            0,
            static_cast<int16_t>(v.w),
            static_cast<int16_t>(v.w >> 16)};
  }

  const GroupedParams& p_;
  SummedGroups summed_;
  int m_tiles_;
  int64_t at_, whole_, end_;  // tiles handed out whole, and all of them with halves counted
};

}  // namespace jaxsparse
