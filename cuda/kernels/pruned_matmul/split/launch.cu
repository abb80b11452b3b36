// Launches of the split executor: a kernel for each tile of x.
#include "cuda/kernels/pruned_matmul/split/launch.h"

#include "cuda/kernels/pruned_matmul/limits.h"
#include "cuda/kernels/pruned_matmul/split/kernel.cuh"
#include "cuda/tile/device_fit.h"

namespace jaxsparse {
namespace {

constexpr int64_t kMostShared = 227 * 1024, kMostParts = 8, kMostRounds = 1024;

template <class Config>
cudaError_t PrepareKernel() {
  return AllowShared(PrunedSplit<Config>, kMostShared);
}

template <class Config>
cudaError_t LaunchConfig(const PrunedArgs& args, SplitLayout layout, cudaStream_t stream) {
  layout.share = (Config::kTile + layout.parts - 1) / layout.parts;
  const int64_t bytes = Config::SharedBytes(layout);
  const int64_t tiles = (args.m + Config::kTile - 1) / Config::kTile;
  const int64_t grid = tiles * layout.groups * layout.parts;
  if (bytes > kMostShared || grid > INT32_MAX) return cudaErrorInvalidValue;
  if (!FitsDevice(bytes, layout.parts)) return cudaErrorNotSupported;
  cudaLaunchAttribute attributes[2] = {OverlapAttribute(), {}};
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(layout.parts), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(grid));
  config.blockDim = dim3(kSplitThreads);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = layout.parts > 1 ? 2 : 1;
  return cudaLaunchKernelEx(&config, PrunedSplit<Config>, args, layout);
}

template <int kInputs>
cudaError_t LaunchRows(const PrunedArgs& args, int64_t rows, const SplitLayout& layout,
                       cudaStream_t stream) {
  if (rows == 1) return LaunchConfig<SplitConfig<1, kInputs>>(args, layout, stream);
  if (rows == 2) return LaunchConfig<SplitConfig<2, kInputs>>(args, layout, stream);
  if (rows == 4) return LaunchConfig<SplitConfig<4, kInputs>>(args, layout, stream);
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t PreparePrunedSplit() {
  for (const auto prepare :
       {PrepareKernel<SplitConfig<1, 128>>, PrepareKernel<SplitConfig<2, 128>>,
        PrepareKernel<SplitConfig<4, 128>>, PrepareKernel<SplitConfig<1, 256>>,
        PrepareKernel<SplitConfig<2, 256>>, PrepareKernel<SplitConfig<4, 256>>}) {
    const cudaError_t error = prepare();
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t LaunchPrunedSplit(const PrunedArgs& args, int64_t rows, int64_t inputs, int64_t outputs,
                              int64_t rounds, int64_t parts, cudaStream_t stream) {
  const bool power = outputs >= 16 && outputs <= 128 && (outputs & (outputs - 1)) == 0;
  if (!power || rounds < 1 || rounds > kMostRounds || parts < 1 || parts > kMostParts ||
      args.m < 1 || args.k > parts * inputs || args.k % 4 != 0 || args.in_type != DType::kF32 ||
      args.out_type != DType::kF32) {
    return cudaErrorInvalidValue;
  }
  const int64_t groups = (args.n + outputs * rounds - 1) / (outputs * rounds);
  const int64_t streams = groups * parts * kSplitWarps, quads = args.num_indices / 4;
  if (quads < 2 || quads % 2 != 0 || quads > (int64_t{1} << 30) || args.num_indices != quads * 4 ||
      args.entries != quads * 4 || args.num_starts != streams ||
      args.num_extra != streams * rounds * 2) {
    return cudaErrorInvalidValue;
  }
  SplitLayout layout = {};
  layout.parts = static_cast<int32_t>(parts);
  layout.groups = static_cast<int32_t>(groups);
  layout.outputs = static_cast<int32_t>(outputs);
  layout.rounds = static_cast<int32_t>(rounds);
  layout.quads = static_cast<uint32_t>(quads);
  if (inputs == 128) return LaunchRows<128>(args, rows, layout, stream);
  if (inputs == 256) return LaunchRows<256>(args, rows, layout, stream);
  return cudaErrorInvalidValue;
}

}  // namespace jaxsparse
