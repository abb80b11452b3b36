// A lane an output, for up to 16 rows of x and few kept weights: each is 4 bytes, a 16-bit value
// and the number of its input.
//
// Floor: 4 bytes a kept weight against 2 bytes a weight dense: 5x at 90 %; every kept weight reads
// the 2 bytes of each row of x from shared memory, 8 rows by one 16-byte load. A block has 32
// outputs for each of its strips, and one of `parts` ranges of the inputs, whose x lies transposed
// in shared memory, 8 rows of an input side by side. Its 16 warps are dealt to the strips; the
// warps of a strip, its teams, share the kept weights of every output evenly. Outputs are sorted by
// their kept weights, so that lanes that run together have equal work. Entries lie four to a lane,
// so that a warp reads 256 consecutive bytes of each array, kLanesAhead loads ahead in registers.
// The packer orders the entries of a lane so that lanes which load together use different banks,
// as far as it can. A cluster adds the sums of its blocks in rank order through distributed shared
// memory.
#pragma once

#include <cstdint>

#include "cuda/kernels/pruned_matmul/gather.cuh"

namespace jaxsparse {

inline constexpr int kLanesWarps = 16;
inline constexpr int kLanesAhead = 6;  // loads of a warp that are under way

// What the launcher adds to the arguments.
struct LanesLayout {
  int32_t parts;   // blocks of a cluster
  int32_t inputs;  // of a part; a multiple of 8
  int32_t strips;  // of 32 outputs, of a block

  __device__ __forceinline__ int Teams() const { return kLanesWarps / strips; }
  __device__ __forceinline__ int Outputs() const { return 32 * strips; }
  __device__ __forceinline__ int Pitch() const {
    return 32 * strips + 4;
  }  // floats of a row of sums
};

namespace lanes {

__device__ __forceinline__ void Prefetch(const void* source) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(source));
}

// Fills shared memory with the part's inputs: input i is the i / 8-th of the i % 8-th eighth.
template <typename T, int kRows>
__device__ void LoadTransposed(const PrunedArgs& args, uint32_t x, int64_t first, int inputs) {
  using P = gather::Plane<kRows>;
  // A warp takes kRun neighbouring eights of all rows of a plane: what it stores is one run.
  constexpr int kRun = P::kWidth < 2 ? 32 : 64 / P::kWidth;
  const int eights = inputs / 8, turns = (eights + kRun - 1) / kRun;
  const int lane = threadIdx.x % 32, rows = lane / kRun * 2;
#pragma unroll 2
  for (int i = threadIdx.x / 32; i < P::kCount * turns; i += kLanesWarps) {
    const int plane = i / turns, eight = (i - plane * turns) * kRun + lane % kRun;
    if (eight >= eights) continue;
    const int64_t row = plane * P::kWidth + rows;
    const uint32_t to = x + (plane * inputs + eight) * P::kBytes + rows * 2;
    const uint4 above = gather::LoadEight<T>(args, row, first + eight * 8);
    const uint4 below =
        gather::LoadEight<T>(args, kRows == 1 ? args.m : row + 1, first + eight * 8);
    const uint32_t a[4] = {above.x, above.y, above.z, above.w};
    const uint32_t b[4] = {below.x, below.y, below.z, below.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t even = to + 2 * j * eights * P::kBytes, odd = even + eights * P::kBytes;
      if constexpr (kRows == 1) {
        gather::Store32(even, __float_as_uint(gather::LowHalf<T>(a[j])));
        gather::Store32(odd, __float_as_uint(gather::HighHalf<T>(a[j])));
      } else {
        gather::Store32(even, __byte_perm(a[j], b[j], 0x5410));
        gather::Store32(odd, __byte_perm(a[j], b[j], 0x7632));
      }
    }
  }
}

// Four entries of a lane: values, and where their inputs lie.
struct Quad {
  uint2 values, offsets;
};

// The quads of a warp: those of a strip lie step by step, team by team.
class QuadStream {
 public:
  __device__ QuadStream(const PrunedArgs& args, int teams, int team, int first, int last)
      : stride_(teams * 32) {
    const int64_t most = args.entries / (128 * teams);
    const int64_t from = min(static_cast<int64_t>(max(first, 0)), most);
    left_ = static_cast<int>(min(static_cast<int64_t>(max(last, 0)), most) - from);
    const int64_t at = (from * teams + team) * 32 + threadIdx.x % 32;
    values_ = static_cast<const uint2*>(args.values) + at;
    offsets_ = static_cast<const uint2*>(args.indices) + at;
  }

  __device__ __forceinline__ int Left() const { return left_; }

  // The i-th of those left, if there are as many.
  __device__ __forceinline__ Quad At(int i) const {
    if (i >= left_) return {{0, 0}, {0, 0}};
    return {__ldg(values_ + i * stride_), __ldg(offsets_ + i * stride_)};
  }

  __device__ __forceinline__ void Advance(int quads) {
    left_ -= quads;
    values_ += quads * stride_;
    offsets_ += quads * stride_;
  }

 private:
  const uint2* values_;
  const uint2* offsets_;
  int left_, stride_;
};

}  // namespace lanes

// A quad's products with all rows. `last` is the number of the part's last input.
template <typename T, int kRows>
__device__ __forceinline__ void MultiplyQuad(
    const lanes::Quad& quad, uint32_t x, uint32_t last, uint32_t plane_bytes,
    float (&sums)[gather::Plane<kRows>::kCount][gather::Plane<kRows>::kWidth]) {
  using P = gather::Plane<kRows>;
  const float values[4] = {gather::LowHalf<T>(quad.values.x), gather::HighHalf<T>(quad.values.x),
                           gather::LowHalf<T>(quad.values.y), gather::HighHalf<T>(quad.values.y)};
  const uint32_t inputs[4] = {quad.offsets.x & 0xffff, quad.offsets.x >> 16,
                              quad.offsets.y & 0xffff, quad.offsets.y >> 16};
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const uint32_t at = x + min(inputs[e], last) * P::kBytes;
#pragma unroll
    for (int p = 0; p < P::kCount; ++p) {
      gather::MultiplyInput<T, kRows>(at + p * plane_bytes, values[e], sums[p]);
    }
  }
}

// Adds the teams of all blocks of the cluster in order and stores this block's share.
template <typename T, int kRows>
__device__ void StoreLanes(const PrunedArgs& args, const LanesLayout& layout, uint32_t part,
                           int rank, const int32_t* outputs) {
  const int share = layout.Outputs() / layout.parts, quads = share / 4, teams = layout.Teams();
  for (int i = threadIdx.x; i < args.m * quads; i += blockDim.x) {
    const int row = i / quads, column = rank * share + i % quads * 4;
    float sum[4] = {};
    for (int r = 0; r < layout.parts; ++r) {
#pragma unroll 8
      for (int team = 0; team < teams; ++team) {
        const float4 v =
            fragment::LoadPart(part + ((team * kRows + row) * layout.Pitch() + column) * 4, r);
        sum[0] += v.x, sum[1] += v.y, sum[2] += v.z, sum[3] += v.w;
      }
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int64_t output = __ldg(outputs + column + c);
      if (output < 0 || output >= args.n) continue;
      const float bias = args.bias ? __ldg(args.bias + output) : 0.0f;
      const float result[1] = {simt::Activate(args.activation, sum[c] + bias)};
      simt::StoreResult<1, T>(args.out, args.out_type == DType::kF32, row * args.n + output,
                              result);
    }
  }
}

// `rows`: the outputs of each block, then, for each block and part, the output of each lane.
template <typename T, int kRows>
__global__ void __launch_bounds__(kLanesWarps * 32, kRows > 4 ? 1 : 2)
    PrunedLanes(const __grid_constant__ PrunedArgs args, const LanesLayout layout) {
  extern __shared__ float4 memory[];
  using P = gather::Plane<kRows>;
  const uint32_t x = ptx::SharedAddress(memory);
  const int part = blockIdx.x % layout.parts, group = blockIdx.x / layout.parts;
  const int warp = threadIdx.x / 32, teams = layout.Teams(), strip = warp / teams;
  const int team = warp - strip * teams, outputs = layout.Outputs();
  const int64_t stream = blockIdx.x * int64_t{layout.strips} + strip;
  lanes::QuadStream quads(args, teams, team, __ldg(args.starts + stream),
                          __ldg(args.starts + stream + 1));
  const int64_t listed = gridDim.x / layout.parts * int64_t{outputs};
  lanes::Prefetch(args.rows + group * int64_t{outputs} + threadIdx.x % outputs);
  const int place = __ldg(args.rows + listed + stream * 32 + threadIdx.x % 32) & (outputs - 1);
  lanes::Quad ahead[kLanesAhead];
#pragma unroll
  for (int i = 0; i < kLanesAhead; ++i) ahead[i] = quads.At(i);
  lanes::LoadTransposed<T, kRows>(args, x, static_cast<int64_t>(part) * layout.inputs,
                                  layout.inputs);
  __syncthreads();
  float sums[P::kCount][P::kWidth] = {};
  const uint32_t last = layout.inputs - 1, plane_bytes = layout.inputs * P::kBytes;
#pragma unroll 1
  for (; quads.Left() > 0; quads.Advance(kLanesAhead)) {
#pragma unroll
    for (int i = 0; i < kLanesAhead; ++i) {
      if (i >= quads.Left()) break;
      const lanes::Quad quad = ahead[i];
      ahead[i] = quads.At(i + kLanesAhead);
      MultiplyQuad<T, kRows>(quad, x, last, plane_bytes, sums);
    }
  }
  __syncthreads();
  float* const parts = reinterpret_cast<float*>(memory) + team * kRows * layout.Pitch() + place;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    parts[i * layout.Pitch()] = sums[i / P::kWidth][i % P::kWidth];
  }
  fragment::MeetCluster();
  StoreLanes<T, kRows>(args, layout, x, part, args.rows + group * int64_t{outputs});
  fragment::MeetCluster();
}

}  // namespace jaxsparse
