// Launches of the runs executor: a kernel for 1, 2, 4, 8 or 16 rows of x and each size of a place.
#include "cuda/kernels/pruned_matmul/runs/launch.h"

#include "cuda/kernels/pruned_matmul/limits.h"
#include "cuda/kernels/pruned_matmul/runs/kernel.cuh"
#include "cuda/tile/device_fit.h"

namespace jaxsparse {
namespace {

constexpr int64_t kMostInputs = 65536;  // of a part: 16 bits name a run's base
constexpr int64_t kMostShared = 227 * 1024;

template <int kRows>
int64_t SharedBytes(const RunsLayout& layout, int64_t threads) {
  using P = gather::Plane<kRows>;
  return (int64_t{layout.inputs} + kRunSpan) * P::kBytes * P::kCount +
         4 * kRows * (threads + 1 + layout.outputs);
}

template <typename T, int kRows, int kBits>
cudaError_t PrepareKernel() {
  return AllowShared(PrunedRuns<T, kRows, kBits>, kMostShared);
}

template <typename T, int kRows, int kBits>
cudaError_t LaunchKernel(const PrunedArgs& args, const RunsLayout& layout, int64_t blocks,
                         int64_t threads, cudaStream_t stream) {
  const int64_t bytes = SharedBytes<kRows>(layout, threads);
  if (bytes > kMostShared || threads > kRunsMostThreads<kRows>) return cudaErrorInvalidValue;
  if (!FitsDevice(bytes, layout.parts)) return cudaErrorNotSupported;
  cudaLaunchAttribute attributes[2] = {OverlapAttribute(), {}};
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(layout.parts), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = layout.parts > 1 ? 2 : 1;
  return cudaLaunchKernelEx(&config, PrunedRuns<T, kRows, kBits>, args, layout);
}

template <typename T, int kBits>
cudaError_t PrepareBits() {
  for (const auto prepare :
       {PrepareKernel<T, 1, kBits>, PrepareKernel<T, 2, kBits>, PrepareKernel<T, 4, kBits>,
        PrepareKernel<T, 8, kBits>, PrepareKernel<T, 16, kBits>}) {
    const cudaError_t error = prepare();
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

template <typename T, int kBits>
cudaError_t LaunchBits(const PrunedArgs& args, const RunsLayout& layout, int64_t blocks,
                       int64_t threads, cudaStream_t stream) {
  if (args.m == 1) return LaunchKernel<T, 1, kBits>(args, layout, blocks, threads, stream);
  if (args.m == 2) return LaunchKernel<T, 2, kBits>(args, layout, blocks, threads, stream);
  if (args.m <= 4) return LaunchKernel<T, 4, kBits>(args, layout, blocks, threads, stream);
  if (args.m <= 8) return LaunchKernel<T, 8, kBits>(args, layout, blocks, threads, stream);
  return LaunchKernel<T, 16, kBits>(args, layout, blocks, threads, stream);
}

template <typename T>
cudaError_t LaunchType(const PrunedArgs& args, const RunsLayout& layout, int64_t bits,
                       int64_t blocks, int64_t threads, cudaStream_t stream) {
  if (bits == 8) return LaunchBits<T, 8>(args, layout, blocks, threads, stream);
  return LaunchBits<T, 4>(args, layout, blocks, threads, stream);
}

}  // namespace

cudaError_t PreparePrunedRuns() {
  for (const auto prepare : {PrepareBits<__nv_bfloat16, 8>, PrepareBits<__nv_bfloat16, 4>,
                             PrepareBits<__half, 8>, PrepareBits<__half, 4>}) {
    const cudaError_t error = prepare();
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t LaunchPrunedRuns(const PrunedArgs& args, int64_t warps, int64_t bits, int64_t chunks,
                             int64_t parts, cudaStream_t stream) {
  const bool power = parts == 1 || parts == 2 || parts == 4 || parts == 8;
  if (!power || (bits != 4 && bits != 8) || warps < 1 || warps > 32 || chunks < 1 ||
      chunks > (1 << 20) || args.m < 1 || args.m > kRunsMostRows || args.k % 8 != 0) {
    return cudaErrorInvalidValue;
  }
  const int64_t threads = 32 * warps, blocks = args.num_indices / (chunks * threads);
  const int64_t groups = blocks / parts, inputs = ((args.k + parts - 1) / parts + 7) / 8 * 8;
  if (groups < 1 || blocks > INT32_MAX || inputs > kMostInputs || args.num_rows < groups ||
      args.num_rows % groups != 0 || args.num_rows / groups > kMostShared) {
    return cudaErrorInvalidValue;
  }
  RunsLayout layout = {};
  layout.parts = static_cast<int32_t>(parts);
  layout.inputs = static_cast<int32_t>(inputs);
  layout.outputs = static_cast<int32_t>(args.num_rows / groups);
  layout.chunks = static_cast<int32_t>(chunks);
  const int64_t runs = blocks * chunks * threads;
  if (blocks != groups * parts || args.num_indices != runs || args.entries != runs * kRunEntries ||
      args.num_extra != runs * 2 * bits || args.num_starts != blocks * (layout.outputs + 1)) {
    return cudaErrorInvalidValue;
  }
  if (args.in_type == DType::kBF16) {
    return LaunchType<__nv_bfloat16>(args, layout, bits, blocks, threads, stream);
  }
  if (args.in_type == DType::kF16) {
    return LaunchType<__half>(args, layout, bits, blocks, threads, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace jaxsparse
