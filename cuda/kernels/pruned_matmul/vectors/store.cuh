// The end of a tile of the vectors executor: bias, activation, rounding.
#pragma once

#include "cuda/core/activation.cuh"
#include "cuda/kernels/pruned_matmul/fragments.cuh"
#include "cuda/kernels/pruned_matmul/vectors/ring.cuh"
#include "cuda/tile/pruned_args.h"

namespace jaxsparse {

// Stores the sums of a warp: a lane holds two neighbouring outputs of each of eight rows and group.
template <typename T, int kGroups>
class VectorStore {
 public:
  using Sums = float[kGroups][kVectorRows / 16][4];

  // `groups`: whose sums they are, -1: of none; `stage`: the warp's memory for eight rows.
  __device__ VectorStore(const PrunedArgs& args, const int32_t* groups, uint32_t stage)
      : args_(args), stage_(stage) {
    lines_ = kGroups > 1 && args.out_type == DType::kF32 && args.n % 4 == 0;
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      group_[j] = __ldg(groups + j);
      lines_ = lines_ && (group_[j] == group_[0] + j || group_[j] < 0);
      bias_[j][0] = Bias(j, 0);
      bias_[j][1] = Bias(j, 1);
    }
  }

  __device__ __forceinline__ void Store(int64_t first_row, const Sums& sums) const {
    const SumActivation activation(args_.activation);
    const bool plain = args_.activation == Activation::kNone;
#pragma unroll
    for (int r = 0; r < kVectorRows / 8; ++r) {
      const int64_t row = first_row + r * 8;
      if (row >= args_.m) break;
      float out[kGroups][2];
#pragma unroll
      for (int j = 0; j < kGroups; ++j) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          out[j][c] = sums[j][r / 2][r % 2 * 2 + c] + bias_[j][c];
          if (!plain) out[j][c] = activation.Of(out[j][c]);
        }
      }
      if (lines_) {
        StoreLines(row, out);
      } else {
        StoreParts(row, out);
      }
    }
  }

 private:
  __device__ int64_t Output(int j) const {
    return int64_t{group_[j]} * kVectorOutputs + threadIdx.x % 4 * 2;
  }

  __device__ float Bias(int j, int c) const {
    const bool exists = args_.bias != nullptr && group_[j] >= 0 && Output(j) + c < args_.n;
    return exists ? __ldg(args_.bias + Output(j) + c) : 0.0f;
  }

  // Eight rows of neighbouring groups, float32: through shared memory, so that lanes side by side
  // store whole lines, 16 bytes each. Pieces of 32 bytes change places, so that no bank is met
  // twice.
  __device__ __forceinline__ void StoreLines(int64_t row, const float (&out)[kGroups][2]) const {
    constexpr int kLanes = 2 * kGroups, kRows = 32 / kLanes;  // of a row; at once
    const int lane = threadIdx.x % 32;
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(At(lane / 4, j) + lane % 4 * 8),
                   "f"(out[j][0]), "f"(out[j][1])
                   : "memory");
    }
    __syncwarp();
    const int64_t output = int64_t{group_[0]} * kVectorOutputs + lane % kLanes * 4;
#pragma unroll
    for (int i = lane / kLanes; i < 8; i += kRows) {
      const uint4 v = fragment::Load128(At(i, lane % kLanes / 2) + lane % 2 * 16);
      if (group_[0] >= 0 && output < args_.n && row + i < args_.m) {
        *reinterpret_cast<uint4*>(static_cast<float*>(args_.out) + (row + i) * args_.n + output) =
            v;
      }
    }
  }

  __device__ __forceinline__ uint32_t At(int row, int group) const {
    return stage_ + row * (32 * kGroups) + (group ^ row * kGroups / 4 % kGroups) * 32;
  }

  __device__ __forceinline__ void StoreParts(int64_t first_row,
                                             const float (&out)[kGroups][2]) const {
    const int64_t row = first_row + threadIdx.x % 32 / 4;
    const bool wide = args_.out_type == DType::kF32;
    if (row >= args_.m) return;
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const int64_t output = Output(j), at = row * args_.n + output;
      if (group_[j] < 0 || output >= args_.n) continue;
      if (args_.n % 2 == 0) {
        simt::StoreResult<2, T>(args_.out, wide, at, out[j]);
      } else {
        const float low[1] = {out[j][0]}, high[1] = {out[j][1]};
        simt::StoreResult<1, T>(args_.out, wide, at, low);
        if (output + 1 < args_.n) simt::StoreResult<1, T>(args_.out, wide, at + 1, high);
      }
    }
  }

  const PrunedArgs& args_;
  uint32_t stage_;
  int32_t group_[kGroups];
  float bias_[kGroups][2];
  bool lines_;
};

}  // namespace jaxsparse
