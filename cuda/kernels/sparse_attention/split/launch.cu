// Which split kernel of attention runs, and what adds up the splits of a list.
#include "cuda/kernels/sparse_attention/split/launch.h"

#include <algorithm>

#include "cuda/core/element.cuh"
#include "cuda/core/launch.h"
#include "cuda/kernels/sparse_attention/mma/kernels.h"
#include "cuda/kernels/sparse_attention/split/config.h"
#include "cuda/kernels/sparse_attention/split/list.cuh"

namespace jaxsparse {
namespace {

constexpr int kMostQueries = 16, kMostDepth = 256;
constexpr int kSumWarps = 8, kSumThreads = 32 * kSumWarps;
constexpr int kLaneColumns = kMostDepth / 32;

// A CTA for each row of the result. A warp takes every eighth split, and a lane two columns of 64:
// sums in a fixed order.
template <class Element>
__global__ void __launch_bounds__(kSumThreads)
    AttentionSumSplits(const __grid_constant__ SplitArgs args) {
  __shared__ float shared[kSumWarps][kMostDepth];
  const AttentionArgs& a = args.attention;
  const int64_t line = blockIdx.x, lines = static_cast<int64_t>(a.batch) * a.heads * a.q_len;
  const int query = static_cast<int>(line % a.q_len);
  const int head = static_cast<int>(line / a.q_len % a.heads);
  const int batch = static_cast<int>(line / a.q_len / a.heads);
  const int splits = KeyStrips(args, batch, head / args.pack * args.pack).splits();
  if (splits == 1) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  PartWeights weights;
  for (int s = lane; s < splits; s += 32) weights.Raise(args.partial_lse[s * lines + line]);
  for (int step = 16; step > 0; step /= 2) {
    weights.Raise(__shfl_xor_sync(~0u, weights.top, step));
  }
  for (int s = lane; s < splits; s += 32) {
    weights.Add(weights.Weight(args.partial_lse[s * lines + line]));
  }
  for (int step = 16; step > 0; step /= 2) {
    weights.Add(__shfl_xor_sync(~0u, weights.total, step));
  }
  float sums[kLaneColumns] = {};
#pragma unroll 4
  for (int s = warp; s < splits; s += kSumWarps) {
    const float weight = weights.Weight(args.partial_lse[s * lines + line]);
    const float* from = args.partial + (s * lines + line) * a.v_depth;
#pragma unroll
    for (int c = 0; c < kLaneColumns; c += 2) {
      const int column = 32 * c + 2 * lane;
      if (column >= a.v_depth) continue;
      const float2 v = *reinterpret_cast<const float2*>(from + column);
      sums[c] += weight * v.x;
      sums[c + 1] += weight * v.y;
    }
  }
#pragma unroll
  for (int c = 0; c < kLaneColumns; ++c) {
    shared[warp][32 * (c / 2 * 2) + 2 * lane + c % 2] = sums[c];
  }
  __syncthreads();
  const int64_t row = (static_cast<int64_t>(batch) * a.q_len + query) * a.heads + head;
  for (int column = 2 * threadIdx.x; column < a.v_depth; column += 2 * kSumThreads) {
    float pair[2] = {};
#pragma unroll
    for (int w = 0; w < kSumWarps; ++w) {
#pragma unroll
      for (int e = 0; e < 2; ++e) pair[e] += shared[w][column + e];
    }
#pragma unroll
    for (float& v : pair) v *= weights.Inverse();
    simt::StoreRounded(static_cast<Element*>(a.out) + row * a.v_depth + column, pair);
  }
  if (threadIdx.x == 0 && a.lse != nullptr) a.lse[line] = weights.Lse();
}

SplitKernels KernelsOf(DType dtype) {
  return dtype == DType::kBF16 ? SplitKernelsBF16() : SplitKernelsF16();
}

// The first that holds the depths, with one tile for all rows where there is such.
const SplitKernel* FindKernel(const AttentionArgs& a, DType dtype, int rows) {
  const SplitKernel* found = nullptr;
  for (const SplitKernel& kernel : KernelsOf(dtype)) {
    if (std::max(a.depth, a.v_depth) > kernel.columns) continue;
    if (found != nullptr && kernel.columns != found->columns) break;
    found = &kernel;
    if (kernel.rows >= rows) break;
  }
  return found;
}

int64_t Lines(const AttentionArgs& a) { return int64_t{a.batch} * a.heads * a.q_len; }

int64_t SplitBytes(const AttentionArgs& a) {
  return Lines(a) * (a.v_depth + 1) * static_cast<int64_t>(sizeof(float));
}

}  // namespace

const char* AttentionSplitReason(const AttentionArgs& a, DType dtype) {
  if (dtype == DType::kF32) return "operands are float32";
  if (a.q_len > kMostQueries) return "there are more than 16 queries";
  const auto fits = [](int depth) { return depth > 0 && depth <= kMostDepth && depth % 8 == 0; };
  if (!fits(a.depth) || !fits(a.v_depth)) {
    return "the head dimensions must be multiples of 8, from 8 to 256";
  }
  if (Lines(a) > INT32_MAX) return "batch * heads * length must be below 2^31";
  return nullptr;
}

cudaError_t PrepareAttentionSplit() {
  cudaError_t status = PrepareKernel(AttentionSumSplits<__nv_bfloat16>, 0);
  if (status == cudaSuccess) status = PrepareKernel(AttentionSumSplits<__half>, 0);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const SplitKernel& kernel : KernelsOf(dtype)) {
      if (status == cudaSuccess) status = PrepareKernel(kernel.entry, kAttentionSharedBytes);
    }
  }
  return status;
}

cudaError_t LaunchAttentionSplit(const AttentionArgs& a, DType dtype, void* scratch,
                                 int64_t scratch_bytes, cudaStream_t stream) {
  if (AttentionSplitReason(a, dtype) != nullptr) return cudaErrorInvalidValue;
  if (Lines(a) == 0) return cudaSuccess;
  SplitArgs args = {};
  args.attention = a;
  args.pack = a.mask.heads == 1 ? a.heads / a.kv_heads : 1;
  args.lists = a.heads / args.pack;
  const SplitKernel* kernel = FindKernel(a, dtype, args.pack * a.q_len);
  if (kernel == nullptr) return cudaErrorInvalidValue;
  args.tiles = static_cast<int>(CeilDiv(args.pack * a.q_len, kernel->rows));
  const int64_t once = int64_t{a.batch} * args.lists * args.tiles;
  args.splits =
      static_cast<int>(std::clamp<int64_t>(scratch_bytes / SplitBytes(a), 1, INT32_MAX / once));
  if (args.splits > 1) {
    args.partial = static_cast<float*>(scratch);
    args.partial_lse = args.partial + args.splits * Lines(a) * a.v_depth;
  }
  kernel->entry<<<static_cast<unsigned>(once * args.splits), kernel->threads,
                  kernel->shared_bytes(a.depth, a.v_depth), stream>>>(args);
  cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess || args.splits == 1) return status;
  const auto sum =
      dtype == DType::kBF16 ? AttentionSumSplits<__nv_bfloat16> : AttentionSumSplits<__half>;
  sum<<<static_cast<unsigned>(Lines(a)), kSumThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace jaxsparse
