// What the decoding executors of frozen weights share: fragments of w^T against few rows of x. A
// warp owns a strip of 16 outputs; a cluster of `parts` blocks splits the inputs and adds its sums
// in rank order through distributed shared memory.
#pragma once

#include <cstdint>

#include "cuda/core/element.cuh"
#include "cuda/core/mbarrier.cuh"
#include "cuda/core/warpgroup.cuh"
#include "cuda/tile/pruned_args.h"

namespace jaxsparse {

inline constexpr int kStripOutputs = 16, kStripWarps = 8;
inline constexpr int kBlockOutputs = kStripOutputs * kStripWarps;
inline constexpr int kPartPitch = kBlockOutputs + 4;  // floats of a row of sums

namespace fragment {

__device__ __forceinline__ void Copy16(uint32_t shared, const void* source, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(source),
               "r"(valid ? 16 : 0)
               : "memory");
}

__device__ __forceinline__ void Commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int kPending>
__device__ __forceinline__ void Wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

__device__ __forceinline__ uint32_t Load32(uint32_t address) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address));
  return v;
}

__device__ __forceinline__ uint4 Load128(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address));
  return v;
}

// All blocks of the cluster synchronise; before Hopper there are none, and a block synchronises
// with itself.
__device__ __forceinline__ void MeetCluster() {
#if __CUDA_ARCH__ >= 900
  ptx::ClusterSync();
#else
  __syncthreads();
#endif
}

__device__ __forceinline__ float4 LoadPart(uint32_t address, [[maybe_unused]] int rank) {
#if __CUDA_ARCH__ >= 900
  return ptx::LoadRemote(address, rank);
#else
  const uint4 v = Load128(address);
  return {__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w)};
#endif
}

// One float of a block of the cluster.
__device__ __forceinline__ float LoadPartOne(uint32_t address, [[maybe_unused]] uint32_t rank) {
#if __CUDA_ARCH__ >= 900
  float v;
  asm volatile(
      "{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %1, %2;\n"
      "ld.shared::cluster.f32 %0, [remote]; }"
      : "=f"(v)
      : "r"(address), "r"(rank));
  return v;
#else
  return __uint_as_float(Load32(address));
#endif
}

template <typename T>
__device__ __forceinline__ void Mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1);
template <>
__device__ __forceinline__ void Mma<__nv_bfloat16>(float (&d)[4], const uint32_t (&a)[4],
                                                   uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void Mma<__half>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                            uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Leaves a warp's sums in the block's part: row x 128 outputs.
template <int kBatches>
__device__ void PutSums(const float (&sums)[kBatches][4], float* part) {
  const int lane = threadIdx.x % 32;
  const int output = threadIdx.x / 32 * kStripOutputs + lane / 4;
#pragma unroll
  for (int b = 0; b < kBatches; ++b) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      part[(b * 8 + lane % 4 * 2 + i % 2) * kPartPitch + output + i / 2 * 8] = sums[b][i];
    }
  }
}

// Adds the parts of the cluster in rank order and stores this block's share of the outputs.
template <typename U>
__device__ void StoreShare(const PrunedArgs& args, const float* part, int rank, int parts,
                           int64_t first) {
  const int share = kBlockOutputs / parts, quads = share / 4;
  for (int i = threadIdx.x; i < args.m * quads; i += blockDim.x) {
    const int row = i / quads, column = rank * share + i % quads * 4;
    float sum[4] = {};
    const uint32_t at = ptx::SharedAddress(part + row * kPartPitch + column);
    for (int r = 0; r < parts; ++r) {
      const float4 v = LoadPart(at, r);
      const float part_sum[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int c = 0; c < 4; ++c) sum[c] += part_sum[c];
    }
    const int64_t output = first + column;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (output + c >= args.n) break;
      const float bias = args.bias ? __ldg(args.bias + output + c) : 0.0f;
      static_cast<U*>(args.out)[row * args.n + output + c] =
          simt::FromFloat<U>(simt::Activate(args.activation, sum[c] + bias));
    }
  }
}

}  // namespace fragment
}  // namespace jaxsparse
