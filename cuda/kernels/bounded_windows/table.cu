// The table of windows: entry by entry, what an output is that sees decided pixels only.
//
// Bit t of an entry says that tap t is at the bound, and then it adds the bound times the kernel's
// sum over channels. Floor: the kernel and the table once, both in the second-level cache: a
// launch, which begins as early as the device can, and lets the next one begin. A block has a few
// neighbouring outputs, a warp of it the sum of one tap; then every thread has some of the entries.
#include "cuda/kernels/bounded_windows/table.h"

#include "cuda/core/element.cuh"
#include "cuda/core/overlap.cuh"
#include "cuda/kernels/bounded_windows/windows.h"

namespace jaxsparse {
namespace {

constexpr int kThreads = 32 * kMostWindowTaps;

// The sums over channels of one tap's `kOutputs` outputs from `first` on, in every lane.
template <typename T, int kOutputs>
__device__ void SumTap(const BoundedTableArgs& args, int tap, int64_t first,
                       float (&sum)[kOutputs]) {
  const T* const kernel = static_cast<const T*>(args.kernel) + tap * args.channels * args.outputs;
#pragma unroll
  for (int i = 0; i < kOutputs; ++i) sum[i] = 0.0f;
#pragma unroll 8
  for (int64_t c = threadIdx.x % 32; c < args.channels; c += 32) {
    float part[kOutputs];
    simt::LoadFloats(kernel + c * args.outputs + first, part);
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) sum[i] += part[i];
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) sum[i] += __shfl_xor_sync(~0u, sum[i], step);
  }
}

template <typename T, typename U, int kOutputs>
__global__ void __launch_bounds__(kThreads)
    WindowTable(const __grid_constant__ BoundedTableArgs args) {
  __shared__ float sums[kMostWindowTaps][kOutputs];
  WaitForPrevious();
  LetNextStart();  // what this one's own predecessors wrote is there
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kOutputs;
  const int warp = threadIdx.x / 32, taps = static_cast<int>(args.taps);
  float bias[kOutputs];
#pragma unroll
  for (int i = 0; i < kOutputs; ++i) {
    bias[i] = args.bias == nullptr ? 0.0f : __ldg(args.bias + first + i);
  }
  float sum[kOutputs] = {};
  if (warp < taps) SumTap<T>(args, warp, first, sum);
#pragma unroll
  for (int i = 0; i < kOutputs; ++i) sums[warp][i] = args.upper * sum[i];
  __syncthreads();
  for (int entry = threadIdx.x; entry < 1 << taps; entry += kThreads) {
    float y[kOutputs] = {};
#pragma unroll
    for (int t = 0; t < kMostWindowTaps; ++t) {
#pragma unroll
      for (int i = 0; i < kOutputs; ++i) y[i] += entry >> t & 1 ? sums[t][i] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) y[i] = simt::Activate(args.activation, y[i] + bias[i]);
    simt::StoreRounded(static_cast<U*>(args.table) + entry * args.outputs + first, y);
  }
}

template <typename T, typename U>
cudaError_t Launch(const BoundedTableArgs& args, cudaStream_t stream) {
  constexpr int kOutputs = 4;
  const auto at =
      reinterpret_cast<uintptr_t>(args.kernel) | reinterpret_cast<uintptr_t>(args.table);
  const bool wide = args.outputs % kOutputs == 0 && at % 16 == 0;
  return LaunchEarly(wide ? &WindowTable<T, U, kOutputs> : &WindowTable<T, U, 1>,
                     dim3(static_cast<unsigned>(args.outputs / (wide ? kOutputs : 1))), kThreads,
                     stream, args);
}

}  // namespace

cudaError_t LaunchBoundedTable(const BoundedTableArgs& args, cudaStream_t stream) {
  if (args.outputs == 0) return cudaSuccess;
  const bool same = args.in == args.out;
  if (args.in == DType::kF32) return Launch<float, float>(args, stream);
  if (args.in == DType::kBF16) {
    return same ? Launch<__nv_bfloat16, __nv_bfloat16>(args, stream)
                : Launch<__nv_bfloat16, float>(args, stream);
  }
  return same ? Launch<__half, __half>(args, stream) : Launch<__half, float>(args, stream);
}

}  // namespace jaxsparse
