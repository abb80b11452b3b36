// Host helpers that the launchers of the grouped products share.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <limits>

#include "cuda/core/device.h"
#include "cuda/core/dtype.h"
#include "cuda/kernels/grouped_matmul/args.h"
#include "cuda/tile/load/row_gather.cuh"

namespace jaxsparse {

// Why the shape passes what the tensor-core kernels count in, or nullptr.
inline const char* GroupedShapeReason(const GroupedShape& s, DType type) {
  const int64_t kMax = std::numeric_limits<int32_t>::max();
  const int64_t vector = 16 / ElementBytes(type);
  if (s.sorted_rows < 1 || s.groups < 1 || s.depth < 1 || s.lhs_rows < 1) return "nothing to sum";
  if (s.depth % vector != 0) return "a row of lhs is not a multiple of 16 bytes";
  if (s.outputs % vector != 0) return "a row of the result is not a multiple of 16 bytes";
  for (const int64_t size : {s.lhs_rows, s.depth, s.outputs, s.groups, s.sorted_rows, s.out_rows,
                             s.groups * s.depth, s.groups * s.outputs}) {
    if (size > kMax) return "a size passes 2^31";
  }
  // A tile's end, and steps past it, are counted in 32 bits.
  if (s.sorted_rows > kMax - 1023) return "sorted_rows passes 2^31 - 1024";
  const int64_t widest = s.depth > s.outputs ? s.depth : s.outputs;
  const int64_t most = s.lhs_rows > s.out_rows ? s.lhs_rows : s.out_rows;
  if (most * (widest / vector) > kMax) return "an operand passes 32 GiB";
  return nullptr;
}

inline bool IsAligned16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// The sorted rows as they read `data`, a matrix of `columns`, and the rows of the other matrix that
// must exist.
inline SortedRows ReadsOf(const void* data, int64_t rows, int64_t columns, DType type,
                          const int32_t* index, const int32_t* partner, int64_t partner_rows) {
  return {data,
          index,
          partner,
          static_cast<int>(rows),
          static_cast<int>(partner_rows),
          static_cast<int>(columns * ElementBytes(type) / kRowUnitBytes)};
}

}  // namespace jaxsparse
