// Launches of the lanes executor: a kernel for 1, 2, 4, 8 or 16 rows of x.
#include "cuda/kernels/pruned_matmul/lanes/launch.h"

#include <algorithm>

#include "cuda/kernels/pruned_matmul/lanes/kernel.cuh"
#include "cuda/kernels/pruned_matmul/limits.h"
#include "cuda/tile/device_fit.h"

namespace jaxsparse {
namespace {

constexpr int64_t kMostInputs = 65536;  // of a part: 16 bits name them
constexpr int64_t kMostShared = 227 * 1024;

template <int kRows>
int64_t SharedBytes(const LanesLayout& layout) {
  using P = gather::Plane<kRows>;
  const int64_t sums = int64_t{kLanesWarps / layout.strips} * kRows * (32 * layout.strips + 4) * 4;
  return std::max<int64_t>(int64_t{layout.inputs} * P::kBytes * P::kCount, sums);
}

template <typename T, int kRows>
cudaError_t PrepareKernel() {
  const cudaError_t error = AllowShared(PrunedLanes<T, kRows>, kMostShared);
  return error != cudaSuccess ? error : PreferShared(PrunedLanes<T, kRows>);
}

template <typename T, int kRows>
cudaError_t LaunchKernel(const PrunedArgs& args, const LanesLayout& layout, int64_t blocks,
                         cudaStream_t stream) {
  const int64_t bytes = SharedBytes<kRows>(layout);
  if (bytes > kMostShared) return cudaErrorInvalidValue;
  if (!FitsDevice(bytes, layout.parts)) return cudaErrorNotSupported;
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(layout.parts), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(kLanesWarps * 32);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = layout.parts > 1 ? 1 : 0;
  return cudaLaunchKernelEx(&config, PrunedLanes<T, kRows>, args, layout);
}

template <typename T>
cudaError_t PrepareType() {
  for (const auto prepare : {PrepareKernel<T, 1>, PrepareKernel<T, 2>, PrepareKernel<T, 4>,
                             PrepareKernel<T, 8>, PrepareKernel<T, 16>}) {
    const cudaError_t error = prepare();
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

template <typename T>
cudaError_t LaunchType(const PrunedArgs& args, const LanesLayout& layout, int64_t blocks,
                       cudaStream_t stream) {
  if (args.m == 1) return LaunchKernel<T, 1>(args, layout, blocks, stream);
  if (args.m == 2) return LaunchKernel<T, 2>(args, layout, blocks, stream);
  if (args.m <= 4) return LaunchKernel<T, 4>(args, layout, blocks, stream);
  if (args.m <= 8) return LaunchKernel<T, 8>(args, layout, blocks, stream);
  return LaunchKernel<T, 16>(args, layout, blocks, stream);
}

}  // namespace

cudaError_t PreparePrunedLanes() {
  const cudaError_t error = PrepareType<__nv_bfloat16>();
  return error != cudaSuccess ? error : PrepareType<__half>();
}

cudaError_t LaunchPrunedLanes(const PrunedArgs& args, int64_t strips, int64_t parts,
                              cudaStream_t stream) {
  const auto power = [](int64_t v) { return v == 1 || v == 2 || v == 4 || v == 8; };
  if (!power(parts) || !power(strips)) return cudaErrorInvalidValue;
  LanesLayout layout = {};
  layout.parts = static_cast<int32_t>(parts);
  layout.strips = static_cast<int32_t>(strips);
  const int64_t inputs = (args.k + parts - 1) / parts, outputs = 32 * strips;
  layout.inputs = static_cast<int32_t>(std::min<int64_t>((inputs + 7) / 8 * 8, kMostInputs + 1));
  const int64_t groups = (args.n + outputs - 1) / outputs, blocks = groups * parts;
  if (args.m < 1 || args.m > kLanesMostRows || args.k % 8 != 0 || layout.inputs > kMostInputs ||
      blocks > INT32_MAX || args.entries % (128 * (kLanesWarps / strips)) != 0 ||
      args.num_indices != args.entries || args.num_starts != blocks * strips + 1 ||
      args.num_rows != (groups + blocks) * outputs) {
    return cudaErrorInvalidValue;
  }
  if (args.in_type == DType::kBF16) return LaunchType<__nv_bfloat16>(args, layout, blocks, stream);
  if (args.in_type == DType::kF16) return LaunchType<__half>(args, layout, blocks, stream);
  return cudaErrorInvalidValue;
}

}  // namespace jaxsparse
