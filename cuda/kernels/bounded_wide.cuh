// One layer of a stack whose state is too wide for shared memory: from one generation in memory to
// the other.
//
// Floor: a 32-byte sector an entry and eight images from L2, 1.7 T multiply-adds a second.
// Predicted for 60,000 unfolded images: 16384 neurons 60 ms, 65536 neurons 230 ms. A thread owns
// one output of eight images of a block of 32 slots; octets whose rows are all decided leave at
// once.
#pragma once

#include "cuda/kernels/bounded_state.cuh"

namespace jaxsparse {

constexpr int kOctet = 8;
constexpr int kWideThreads = 256;

// Of each block of slots: which are undecided, and what rules the two states out.
struct BlockVerdicts {
  uint32_t *alive, *not_zero, *not_upper;
};

template <typename Index>
__global__ void __launch_bounds__(kWideThreads)
    WideLayer(const __grid_constant__ StackView stack, const float* __restrict__ from, float* to,
              BlockVerdicts verdicts, uint32_t layer) {
  const uint32_t distinct = Distinct(stack, layer), octet = blockIdx.x;
  const uint32_t block = octet / (kSlots / kOctet), shift = octet % (kSlots / kOctet) * kOctet;
  const uint32_t o = blockIdx.y * kWideThreads + threadIdx.x;
  if (!(verdicts.alive[block] >> shift & 255u) || o / 32 * 32 >= distinct) return;
  const LayerView<Index> view = LayerOf<Index>(stack, layer, Distinct(stack, layer - 1));
  const float upper = __ldg(stack.uppers + layer);
  const uint32_t row = min(o, distinct - 1), end = view.End(row);
  const float* in = from + StateOffset(octet * kOctet, 0, stack.widest);
  float sum[kOctet] = {};
  for (uint32_t e = view.Begin(row); e < end; e += 4) {
    const Quad quad = view.Load(e);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float4* x =
          reinterpret_cast<const float4*>(in + static_cast<int64_t>(quad.index[k]) * kSlots);
      const float4 a = __ldg(x), b = __ldg(x + 1);
      const float v[kOctet] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
      for (int i = 0; i < kOctet; ++i) sum[i] = fmaf(quad.weight[k], v[i], sum[i]);
    }
  }
  const float bias = __ldg(view.bias + row);
  uint32_t not_zero = 0, not_upper = 0;
#pragma unroll
  for (int i = 0; i < kOctet; ++i) {
    sum[i] = Bound(sum[i] + bias, upper);
    not_zero |= (sum[i] != 0.0f ? 1u : 0u) << i;
    not_upper |= (sum[i] != upper ? 1u : 0u) << i;
  }
  if (o < distinct) {
    float4* out = reinterpret_cast<float4*>(to + StateOffset(octet * kOctet, o, stack.widest));
    out[0] = make_float4(sum[0], sum[1], sum[2], sum[3]);
    out[1] = make_float4(sum[4], sum[5], sum[6], sum[7]);
  }
  not_zero = __reduce_or_sync(~0u, not_zero);
  not_upper = __reduce_or_sync(~0u, not_upper);
  if (threadIdx.x % 32 != 0) return;
  if (not_zero) atomicOr(verdicts.not_zero + block, not_zero << shift);
  if (not_upper) atomicOr(verdicts.not_upper + block, not_upper << shift);
}

// A thread a slot: codes of the rows decided after `layer`, and clean words for the next one.
__global__ void __launch_bounds__(kWideThreads)
    WideSettle(const __grid_constant__ StackView stack, BlockVerdicts verdicts, uint32_t blocks,
               uint32_t layer) {
  const uint32_t slot = blockIdx.x * kWideThreads + threadIdx.x, block = slot / kSlots;
  if (block >= blocks) return;
  const uint32_t alive = verdicts.alive[block], retires = Retires(stack, layer),
                 bit = slot % kSlots;
  const uint32_t zero = retires & kRetireZero ? ~verdicts.not_zero[block] & alive : 0;
  const uint32_t upper = retires & kRetireUpper ? ~verdicts.not_upper[block] & alive : 0;
  const uint32_t left = alive & ~(zero | upper);
  if (alive >> bit & 1) {
    if ((zero | upper) >> bit & 1) stack.codes[slot] = zero >> bit & 1 ? kZero : kUpper;
    if (left >> bit & 1 && layer + 1 == stack.depth) stack.codes[slot] = kMixed;
  }
  __syncwarp();
  if (bit != 0) return;
  verdicts.alive[block] = left;
  verdicts.not_zero[block] = verdicts.not_upper[block] = 0;
}

// The mixed rows of the result; a block of threads a block of slots.
__global__ void __launch_bounds__(kWideThreads)
    WideWrite(const __grid_constant__ StackView stack, const float* __restrict__ state,
              BlockVerdicts verdicts) {
  const uint32_t alive = verdicts.alive[blockIdx.x];
  for (uint32_t image = 0; image < kSlots; ++image) {
    if (!(alive >> image & 1)) continue;
    const int64_t row = static_cast<int64_t>(blockIdx.x) * kSlots + image;
    for (int64_t n = threadIdx.x; n < stack.n_out; n += kWideThreads) {
      const uint32_t o = stack.expand ? __ldg(stack.expand + n) : static_cast<uint32_t>(n);
      stack.out[row * stack.n_out + n] =
          state[StateOffset(static_cast<uint32_t>(row), min(o, stack.widest - 1), stack.widest)];
    }
  }
}

}  // namespace jaxsparse
