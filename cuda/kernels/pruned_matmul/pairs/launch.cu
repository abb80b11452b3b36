// Launches of the pairs executor: a kernel for 8, 16, 32 or 64 rows and each size of an item.
#include "cuda/kernels/pruned_matmul/pairs/launch.h"

#include <algorithm>

#include "cuda/kernels/pruned_matmul/limits.h"
#include "cuda/kernels/pruned_matmul/pairs/kernel.cuh"
#include "cuda/tile/device_fit.h"

namespace jaxsparse {
namespace {

constexpr int kStages = 2;
constexpr int kTailBytes = 128;  // a run that a wrong bitmap makes too long still ends inside

template <int kBatches, int kTiles>
int64_t SharedBytes(int64_t item_bytes) {
  const int64_t x = 8 * kBatches * (kTiles * kPairTileInputs * 2 + 16);
  return std::max<int64_t>(kStages * (x + kStripWarps * item_bytes), 8 * kBatches * kPartPitch * 4);
}

int64_t MostItemBytes(int64_t tiles) { return tiles * (128 + 4096); }

template <typename T, int kBatches, int kTiles>
cudaError_t PrepareKernel() {
  const int64_t bytes = SharedBytes<kBatches, kTiles>(MostItemBytes(kTiles)) + kTailBytes;
  const cudaError_t error = AllowShared(PrunedPairs<T, kBatches, kTiles, kStages>, bytes);
  return error != cudaSuccess ? error : PreferShared(PrunedPairs<T, kBatches, kTiles, kStages>);
}

template <typename T, int kBatches, int kTiles>
cudaError_t LaunchKernel(const PrunedArgs& args, const PairsLayout& layout, cudaStream_t stream) {
  const int64_t groups = (args.n + kBlockOutputs - 1) / kBlockOutputs;
  if (groups * layout.parts > INT32_MAX) return cudaErrorInvalidConfiguration;
  const int64_t bytes = SharedBytes<kBatches, kTiles>(layout.item_bytes) + kTailBytes;
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
  return cudaLaunchKernelEx(&config, PrunedPairs<T, kBatches, kTiles, kStages>, args, layout);
}

template <typename T, int kTiles>
cudaError_t LaunchTiles(const PrunedArgs& args, const PairsLayout& layout, cudaStream_t stream) {
  if (args.m <= 8) return LaunchKernel<T, 1, kTiles>(args, layout, stream);
  if (args.m <= 16) return LaunchKernel<T, 2, kTiles>(args, layout, stream);
  if (args.m <= 32) return LaunchKernel<T, 4, kTiles>(args, layout, stream);
  return LaunchKernel<T, 8, kTiles>(args, layout, stream);
}

template <typename T>
cudaError_t LaunchType(const PrunedArgs& args, const PairsLayout& layout, int64_t tiles,
                       cudaStream_t stream) {
  if (tiles == 1) return LaunchTiles<T, 1>(args, layout, stream);
  if (tiles == 2) return LaunchTiles<T, 2>(args, layout, stream);
  return LaunchTiles<T, 4>(args, layout, stream);
}

template <typename T>
cudaError_t PrepareType() {
  for (const auto prepare :
       {PrepareKernel<T, 1, 1>, PrepareKernel<T, 2, 1>, PrepareKernel<T, 4, 1>,
        PrepareKernel<T, 8, 1>, PrepareKernel<T, 1, 2>, PrepareKernel<T, 2, 2>,
        PrepareKernel<T, 4, 2>, PrepareKernel<T, 8, 2>, PrepareKernel<T, 1, 4>,
        PrepareKernel<T, 2, 4>, PrepareKernel<T, 4, 4>, PrepareKernel<T, 8, 4>}) {
    const cudaError_t error = prepare();
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t PreparePrunedPairs() {
  const cudaError_t error = PrepareType<__nv_bfloat16>();
  return error != cudaSuccess ? error : PrepareType<__half>();
}

cudaError_t LaunchPrunedPairs(const PrunedArgs& args, int64_t tiles, int64_t parts, int64_t pieces,
                              cudaStream_t stream) {
  const auto power = [](int64_t v, int64_t most) {
    return v >= 1 && v <= most && (v & (v - 1)) == 0;
  };
  if (!power(tiles, 4) || !power(parts, 8) || pieces < 0 || pieces > tiles * 256 || args.m < 1 ||
      args.m > kPairsMostRows || args.k % 8 != 0 || args.entries % 8 != 0) {
    return cudaErrorInvalidValue;
  }
  const int64_t strips = (args.n + kStripOutputs - 1) / kStripOutputs;
  const int64_t inputs = tiles * kPairTileInputs;
  PairsLayout layout = {};
  layout.items = static_cast<int32_t>(std::max<int64_t>(1, (args.k - 1) / inputs + 1));
  layout.parts = PartsHere(parts);
  layout.part_items = (layout.items + layout.parts - 1) / layout.parts;
  layout.item_bytes = static_cast<int32_t>(tiles * 128 + 16 * pieces);
  if (args.num_starts != strips * layout.items + 1 ||
      args.num_indices != strips * layout.items * tiles * 32) {
    return cudaErrorInvalidValue;
  }
  if (args.in_type == DType::kBF16) return LaunchType<__nv_bfloat16>(args, layout, tiles, stream);
  if (args.in_type == DType::kF16) return LaunchType<__half>(args, layout, tiles, stream);
  return cudaErrorInvalidValue;
}

}  // namespace jaxsparse
