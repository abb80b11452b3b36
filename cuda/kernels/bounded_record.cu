// Codes of segments from their values, whatever their type: a value is told by its bits (both zeros
// are zero; the bound is positive, so it has one pattern).
//
// Floor: the values once. A warp reads a segment, 32 values a step, and leaves it as soon as it is
// mixed, which in most layers is the first step.
#include "cuda/kernels/bounded_record.h"

#include <algorithm>

#include "cuda/recorder/probe.cuh"

namespace jaxsparse {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1 << 15;

template <typename Bits>
__global__ void __launch_bounds__(kThreads)
    RecordSegments(const __grid_constant__ BoundedRecordArgs args) {
  constexpr uint32_t kMagnitude = sizeof(Bits) == 2 ? 0x7fffu : 0x7fffffffu;
  const int lane = threadIdx.x % 32;
  const int64_t warps = static_cast<int64_t>(gridDim.x) * (kThreads / 32);
  int64_t item = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / 32;
  for (; item < args.rows * args.segments; item += warps) {
    const int64_t first = item % args.segments * args.segment;
    const int64_t last = min(first + args.segment, args.n);
    const Bits* row = static_cast<const Bits*>(args.values) + item / args.segments * args.n;
    bool zero = true, upper = true;
    for (int64_t i = first; i < last && (zero || upper); i += 32) {
      const uint32_t value = i + lane < last ? row[i + lane] : 0;
      zero = __all_sync(~0u, zero && (i + lane >= last || (value & kMagnitude) == 0));
      upper = __all_sync(~0u, upper && (i + lane >= last || value == args.upper));
    }
    if (lane == 0) args.codes[item] = zero ? kZero : upper ? kUpper : kMixed;
  }
}

}  // namespace

cudaError_t LaunchBoundedRecord(const BoundedRecordArgs& args, cudaStream_t stream) {
  const int64_t items = args.rows * args.segments;
  if (items == 0) return cudaSuccess;
  const int64_t blocks = std::min((items * 32 + kThreads - 1) / kThreads, kMostBlocks);
  if (args.bytes == 2) {
    RecordSegments<uint16_t><<<blocks, kThreads, 0, stream>>>(args);
  } else {
    RecordSegments<uint32_t><<<blocks, kThreads, 0, stream>>>(args);
  }
  return cudaGetLastError();
}

}  // namespace jaxsparse
