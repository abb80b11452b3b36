// One row of variants/pruned_rows.toml in one element type: its kernels, prepared and launched.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

#include "cuda/kernels/pruned_matmul/rows/kernel.cuh"
#include "cuda/kernels/pruned_matmul/rows/variant.h"

namespace jaxsparse {

template <class Config>
int64_t RowsSharedBytes(int warps) {
  return std::max<int64_t>(Config::kTileBytes + Config::kTableBytes,
                           32 * (warps * Config::kOutputs + 1) * 4);
}

template <class Config>
cudaError_t PrepareRows() {
  return cudaFuncSetAttribute(PrunedRows<Config>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(RowsSharedBytes<Config>(kRowsMostWarps)));
}

// Whether four neighbouring inputs are one aligned piece: of a row, or of a pixel's channels.
inline bool RowsArePieces(const PrunedArgs& args, int element_bytes) {
  const int64_t run = args.image ? args.geometry.in_c : args.k;
  return run % 4 == 0 && reinterpret_cast<uintptr_t>(args.x) % (4 * element_bytes) == 0;
}

template <class Config>
cudaError_t LaunchRows(const PrunedArgs& args, int warps, cudaStream_t stream) {
  const int64_t width = warps * Config::kOutputs;
  RowsLayout layout = {};
  layout.chunks = static_cast<int32_t>(std::max<int64_t>(1, (args.k - 1) / Config::kChunk + 1));
  layout.slabs = static_cast<int32_t>((args.n + width - 1) / width);
  layout.wide = RowsArePieces(args, sizeof(typename Config::Element));
  const int64_t blocks = (args.m + Config::kTile - 1) / Config::kTile * layout.slabs;
  const int64_t slots = layout.slabs * width;
  if (args.num_starts != layout.slabs * static_cast<int64_t>(warps) || args.num_rows != slots ||
      args.num_extra != slots * layout.chunks || args.entries < 4 || args.entries % 4 != 0 ||
      args.num_indices != args.entries || args.entries > INT32_MAX || blocks > INT32_MAX) {
    return cudaErrorInvalidValue;
  }
  const int64_t bytes = RowsSharedBytes<Config>(warps);
  PrunedRows<Config><<<blocks, warps * 32, bytes, stream>>>(args, layout);
  return cudaGetLastError();
}

template <typename T, int Rows, int Chunk, int Outputs>
cudaError_t PrunedRowsVariant<T, Rows, Chunk, Outputs>::Prepare() {
  const cudaError_t error = PrepareRows<RowsConfig<T, Rows, Chunk, Outputs, false>>();
  return error != cudaSuccess ? error : PrepareRows<RowsConfig<T, Rows, Chunk, Outputs, true>>();
}

template <typename T, int Rows, int Chunk, int Outputs>
cudaError_t PrunedRowsVariant<T, Rows, Chunk, Outputs>::Launch(const PrunedArgs& args, int warps,
                                                               cudaStream_t stream) {
  if (args.image) return LaunchRows<RowsConfig<T, Rows, Chunk, Outputs, true>>(args, warps, stream);
  return LaunchRows<RowsConfig<T, Rows, Chunk, Outputs, false>>(args, warps, stream);
}

}  // namespace jaxsparse
