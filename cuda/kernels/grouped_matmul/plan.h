// The plan of a grouped product, made on the device from the group sizes: the row tiles of all
// groups in one list, and where each group's rows start.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace jaxsparse {

// Up to tile_m sorted rows of one group; group -1: rows that no group owns. The tiles of a group
// come in bands of neighbours: this one is number `place` of `width`.
struct RowTile {
  int32_t group, first;
  int16_t rows, unused;
  int16_t place, width;
};

inline constexpr int kBandTiles = 16;  // of a band, at most

// Of the bands of a group of `tiles` row tiles: as equal as they come.
inline __host__ __device__ int BandWidth(int tiles) {
  const int bands = (tiles + kBandTiles - 1) / kBandTiles;
  return (tiles + bands - 1) / bands;
}

// Up to this many groups a product needs no plan: its CTAs sum up the sizes.
inline constexpr int kMostSummedGroups = 256;

struct GroupedPlan {
  int32_t* header;  // number of row tiles, number of owned rows
  int32_t* starts;  // [groups + 1]
  RowTile* tiles;   // [MaxRowTiles], 16-byte aligned
};

inline constexpr int kPlanHeader = 4;

inline int64_t MaxRowTiles(int64_t sorted_rows, int64_t groups, int tile_m) {
  return (sorted_rows + tile_m - 1) / tile_m + (groups < sorted_rows ? groups : sorted_rows) + 1;
}

struct PlanRequest {
  const int32_t* sizes;
  int64_t groups, sorted_rows;
  int tile_m;
  bool unowned;     // also list the rows that no group owns
  int32_t* counts;  // [count_words], cleared; nullptr: none
  int64_t count_words;
};

// counts[0, words) = 0. One launch.
cudaError_t LaunchClearCounts(int32_t* counts, int64_t words, cudaStream_t stream);

// One launch.
cudaError_t LaunchGroupedPlan(const PlanRequest& request, const GroupedPlan& plan,
                              cudaStream_t stream);

}  // namespace jaxsparse
