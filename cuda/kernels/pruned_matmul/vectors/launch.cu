// Launches of the vectors executor: a kernel for each type of x and number of groups of a warp.
#include "cuda/kernels/pruned_matmul/vectors/launch.h"

#include <algorithm>

#include "cuda/core/device.h"
#include "cuda/core/tensor_map.h"
#include "cuda/kernels/pruned_matmul/limits.h"
#include "cuda/kernels/pruned_matmul/vectors/kernel.cuh"
#include "cuda/tile/device_fit.h"

namespace jaxsparse {
namespace {

template <typename T>
constexpr CUtensorMapDataType kMapType = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
template <>
constexpr CUtensorMapDataType kMapType<__nv_bfloat16> = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
template <>
constexpr CUtensorMapDataType kMapType<__half> = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;

template <typename T>
cudaError_t PrepareType() {
  for (const auto kernel : {PrunedVectors<T, 1>, PrunedVectors<T, 2>, PrunedVectors<T, 4>}) {
    const cudaError_t error = AllowShared(kernel, VectorConfig<T>::kSharedBytes);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

template <typename T, int kGroups>
cudaError_t LaunchKernel(const PrunedArgs& args, VectorLayout layout, cudaStream_t stream) {
  constexpr int kSlab = kGroups * kVectorWarps * kVectorOutputs;
  layout.slabs = static_cast<int32_t>((args.n + kSlab - 1) / kSlab);
  const int64_t warps = static_cast<int64_t>(layout.slabs) * kVectorWarps;
  const int64_t tiles = (args.m + kVectorRows - 1) / kVectorRows * layout.slabs;
  if (args.num_starts != warps || args.num_rows != warps * kGroups || tiles > INT32_MAX / 2 ||
      args.num_extra != warps * layout.chunks * 4) {
    return cudaErrorInvalidValue;
  }
  if (!FitsDevice(VectorConfig<T>::kSharedBytes, 1)) return cudaErrorNotSupported;
  layout.tiles = static_cast<int32_t>(tiles);
  int device = 0, processors = 0, capability = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = ComputeCapability(&capability);
  if (error == cudaSuccess && capability < 90) error = cudaErrorNotSupported;  // an empty body
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  }
  CUtensorMap map;
  if (error == cudaSuccess) {
    error = EncodeMatrixMap(&map, kMapType<T>, sizeof(T), args.x, args.m, args.k, kVectorRows,
                            VectorConfig<T>::kChunk / kVectorBoxes);
  }
  if (error != cudaSuccess) return error;
  const unsigned grid = static_cast<unsigned>(std::min<int64_t>(tiles, processors));
  PrunedVectors<T, kGroups>
      <<<grid, kVectorThreads, VectorConfig<T>::kSharedBytes, stream>>>(args, map, layout);
  return cudaGetLastError();
}

template <typename T>
cudaError_t Launch(const PrunedArgs& args, int64_t groups, int64_t window, cudaStream_t stream) {
  using Config = VectorConfig<T>;
  constexpr int kColumns = 4 * Config::kQuads;
  VectorLayout layout = {};
  layout.chunks = static_cast<int32_t>(std::max<int64_t>(1, (args.k - 1) / Config::kChunk + 1));
  layout.window = static_cast<int32_t>(window);
  // A slot is empty window - 1 chunks after its own; warps may be a few chunks apart.
  layout.ahead = std::max(1, Config::kSlots - layout.window - kVectorApart);
  const int64_t steps = args.entries / (kColumns * kVectorOutputs);
  if (args.k % (16 / Config::kBytes) != 0 || args.m > INT32_MAX / 2 || steps < 1 || window < 1 ||
      window >= Config::kSlots || steps > INT32_MAX - kVectorAhead ||
      args.entries % (kColumns * kVectorOutputs) != 0 || args.num_indices != steps * kColumns) {
    return cudaErrorInvalidValue;
  }
  if (groups == 1) return LaunchKernel<T, 1>(args, layout, stream);
  if (groups == 2) return LaunchKernel<T, 2>(args, layout, stream);
  if (groups == 4) return LaunchKernel<T, 4>(args, layout, stream);
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t PreparePrunedVectors() {
  for (const auto prepare : {PrepareType<float>, PrepareType<__nv_bfloat16>, PrepareType<__half>}) {
    const cudaError_t error = prepare();
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t LaunchPrunedVectors(const PrunedArgs& args, int64_t groups, int64_t window,
                                cudaStream_t stream) {
  if (args.in_type == DType::kF32) return Launch<float>(args, groups, window, stream);
  if (args.in_type == DType::kBF16) return Launch<__nv_bfloat16>(args, groups, window, stream);
  if (args.in_type == DType::kF16) return Launch<__half>(args, groups, window, stream);
  return cudaErrorInvalidValue;
}

}  // namespace jaxsparse
