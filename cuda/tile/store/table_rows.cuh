// Rows of a table written to chosen rows of a result, by a warp that has 32 of them: a lane knows
// what one row gets. Four rows at a time, so that four loads of the table, which is in the caches,
// are on their way together.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace jaxsparse {

constexpr int32_t kLeftAlone = -1, kZeroRow = -2;

// The rows [first, first + 32), of which this lane's gets table row `mine`, zeros, or is left
// alone; a row has `chunks` Chunks.
template <typename Chunk>
__device__ void WriteRows(const Chunk* table, Chunk* out, int64_t first, int64_t chunks,
                          int32_t mine) {
  constexpr int kTogether = 4;
  if (!__any_sync(~0u, mine != kLeftAlone)) return;
  for (int row = 0; row < 32; row += kTogether) {
    int32_t entry[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) entry[i] = __shfl_sync(~0u, mine, row + i);
    for (int64_t chunk = threadIdx.x % 32; chunk < chunks; chunk += 32) {
      Chunk value[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        value[i] = Chunk{};
        if (entry[i] >= 0) value[i] = table[entry[i] * chunks + chunk];
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (entry[i] != kLeftAlone) out[(first + row + i) * chunks + chunk] = value[i];
      }
    }
  }
}

// Calls launch(Chunk{}) with the widest Chunk that rows of `bytes` each divide into, at addresses
// that all of `table` and `out` have.
template <typename Launch>
void WithChunk(const void* table, const void* out, int64_t bytes, const Launch& launch) {
  const auto at = reinterpret_cast<uintptr_t>(table) | reinterpret_cast<uintptr_t>(out) |
                  static_cast<uintptr_t>(bytes);
  if (at % 16 == 0) {
    launch(uint4{});
  } else if (at % 4 == 0) {
    launch(uint32_t{});
  } else {
    launch(uint16_t{});
  }
}

}  // namespace jaxsparse
