// Launches of the bitmap executor: a kernel for 8, 16, 32 or 64 rows, with as many stages as tiles
// of this size allow.
#include "cuda/kernels/pruned_matmul/bitmap/launch.h"

#include <algorithm>

#include "cuda/kernels/pruned_matmul/bitmap/kernel.cuh"
#include "cuda/kernels/pruned_matmul/limits.h"
#include "cuda/tile/device_fit.h"

namespace jaxsparse {
namespace {

constexpr int kLargestTile = 128 + 2 * kStripOutputs * kBitmapInputs;  // bytes

template <int kBatches>
int64_t SharedBytes(int stages, int stage_bytes) {
  // A run that a wrong bitmap makes too long still ends inside.
  return 2 * 8 * kBatches * kBitmapPitch + kStripWarps * stages * stage_bytes + kLargestTile;
}

template <typename T, typename U, int kBatches, int kStages>
cudaError_t PrepareKernel() {
  return AllowShared(PrunedBitmap<T, U, kBatches, kStages>,
                     SharedBytes<kBatches>(kStages, kLargestTile));
}

template <typename T, typename U, int kBatches, int kStages>
cudaError_t LaunchKernel(const PrunedArgs& args, const BitmapLayout& layout, cudaStream_t stream) {
  const int64_t groups = (args.n + kBlockOutputs - 1) / kBlockOutputs;
  if (groups * layout.parts > INT32_MAX) return cudaErrorInvalidConfiguration;
  const int64_t bytes = SharedBytes<kBatches>(kStages, layout.stage_bytes);
  if (!FitsDevice(bytes, layout.parts)) return cudaErrorNotSupported;
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(layout.parts), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(groups * layout.parts));
  config.blockDim = dim3(kStripWarps * 32);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = layout.parts > 1 ? 1 : 0;
  return cudaLaunchKernelEx(&config, PrunedBitmap<T, U, kBatches, kStages>, args, layout);
}

// Every kernel of a pair of types.
template <typename T, typename U>
cudaError_t PrepareTypes() {
  cudaError_t error = cudaSuccess;
  const auto also = [&](cudaError_t next) { error = error == cudaSuccess ? next : error; };
  also(PrepareKernel<T, U, 1, 8>());
  also(PrepareKernel<T, U, 2, 8>());
  also(PrepareKernel<T, U, 4, 8>());
  also(PrepareKernel<T, U, 8, 4>());
  return error;
}

template <typename T, typename U>
cudaError_t LaunchTypes(const PrunedArgs& args, const BitmapLayout& layout, cudaStream_t stream) {
  if (args.m <= 8) return LaunchKernel<T, U, 1, 8>(args, layout, stream);
  if (args.m <= 16) return LaunchKernel<T, U, 2, 8>(args, layout, stream);
  if (args.m <= 32) return LaunchKernel<T, U, 4, 8>(args, layout, stream);
  return LaunchKernel<T, U, 8, 4>(args, layout, stream);
}

}  // namespace

cudaError_t PreparePrunedBitmap() {
  cudaError_t error = cudaSuccess;
  for (const auto prepare :
       {PrepareTypes<__nv_bfloat16, __nv_bfloat16>, PrepareTypes<__nv_bfloat16, float>,
        PrepareTypes<__half, __half>, PrepareTypes<__half, float>}) {
    if (error == cudaSuccess) error = prepare();
  }
  return error;
}

cudaError_t LaunchPrunedBitmap(const PrunedArgs& args, int64_t parts, int64_t pieces,
                               cudaStream_t stream) {
  constexpr int kTiles = kBitmapChunk / kBitmapInputs;
  const int64_t strips = (args.n + kStripOutputs - 1) / kStripOutputs;
  if (parts != 1 && parts != 2 && parts != 4 && parts != 8) return cudaErrorInvalidValue;
  BitmapLayout layout = {};
  layout.tiles = static_cast<int32_t>(std::max<int64_t>(1, (args.k - 1) / kBitmapInputs + 1));
  layout.parts = PartsHere(parts);
  const int64_t part = (layout.tiles + layout.parts - 1) / layout.parts;
  layout.part_tiles = static_cast<int32_t>((part + kTiles - 1) / kTiles * kTiles);
  layout.stage_bytes = static_cast<int32_t>(128 + 16 * pieces);
  if (args.m < 1 || args.m > kBitmapMostRows || args.k % 8 != 0 || args.entries % 8 != 0 ||
      args.num_starts != strips * layout.tiles + 1 ||
      args.num_indices != strips * layout.tiles * 32 || 128 + 16 * pieces > kLargestTile) {
    return cudaErrorInvalidValue;
  }
  const bool wide = args.out_type == DType::kF32;
  if (args.in_type == DType::kBF16) {
    return wide ? LaunchTypes<__nv_bfloat16, float>(args, layout, stream)
                : LaunchTypes<__nv_bfloat16, __nv_bfloat16>(args, layout, stream);
  }
  if (args.in_type == DType::kF16) {
    return wide ? LaunchTypes<__half, float>(args, layout, stream)
                : LaunchTypes<__half, __half>(args, layout, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace jaxsparse
