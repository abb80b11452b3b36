// The warpgroups that multiply: 64 owned keys each. Scores of keys by queries stay in registers,
// where they are the operands of dv and dk; their gradients also go to shared memory, from where
// each warpgroup multiplies those of all 128 keys by its half of the depth of k, or at a depth of
// 64 those of its own keys.
#pragma once

#include "cuda/core/matrix_copy.cuh"
#include "cuda/core/warpgroup.cuh"
#include "cuda/kernels/sparse_attention/wgmma/check.cuh"
#include "cuda/kernels/sparse_attention/wgmma/grad/products.cuh"
#include "cuda/kernels/sparse_attention/wgmma/grad/terms.cuh"
#include "cuda/kernels/sparse_attention/wgmma/reduce/config.cuh"

namespace jaxsparse {

namespace ptx {

// Adds `bytes` of floats in shared memory to those at `target`; both addresses and the size are
// multiples of 16. A group of its own.
__device__ __forceinline__ void AddBulk(float* target, uint32_t shared, uint32_t bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;\n"
      "cp.async.bulk.commit_group;" ::"l"(target),
      "r"(shared), "r"(bytes)
      : "memory");
}

// Returns once every bulk operation that this thread started has read its source.
__device__ __forceinline__ void WaitBulkRead() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// Returns once every bulk operation that this thread started is complete.
__device__ __forceinline__ void WaitBulk() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

}  // namespace ptx

template <class C>
class ReduceConsumer {
 public:
  using T = typename C::T;

  __device__ __forceinline__ ReduceConsumer(const AttentionGradParams& p,
                                            typename C::Shared& shared, int group)
      : p_(p),
        s_(shared),
        group_(group),
        shares_(C::kExchanges ? 0 : group),
        row_(group * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4),
        at_(0, 1) {}

  __device__ __forceinline__ void Run() {
    for (uint32_t parity = 0;; parity ^= 1) {
      ptx::BarrierWait(Address(&s_.own_full[0]), parity);
      const AttentionGradItem& item = s_.items[0][parity];
      if (item.tiles < 0) break;
      RunItem(item);
    }
    ptx::WaitBulk();
  }

 private:
  static constexpr int kScores = C::kOther / 2, kOut = C::kDepth / 2, kSteps = C::kOther / 16;
  static constexpr int kSide = 2 * C::kOwnBytes;  // from one warpgroup's keys to the other's
  static constexpr int kQueries = 32;             // of 64 queries by 64 elements of depth
  static_assert(C::kDepth == (C::kExchanges ? 128 : 64), "a warpgroup takes 64 elements of depth");

  __device__ static uint32_t Address(const void* p) { return ptx::SharedAddress(p); }
  __device__ static void Release(uint64_t* barrier) {
    if (threadIdx.x % 32 == 0) ptx::BarrierArrive(Address(barrier));
  }

  __device__ __forceinline__ void RunItem(const AttentionGradItem& item) {
    float keys[kOut], values[kOut];
#pragma unroll
    for (float& v : keys) v = 0.0f;
#pragma unroll
    for (float& v : values) v = 0.0f;
    const int tiles = item.tiles;
    if (tiles == 0) {
      __syncwarp();  // every lane has read the item
      Release(&s_.own_empty[0]);
    } else {
      Multiply(item, tiles, keys, values);
    }
    StoreSum<C>(p_, item, row_, keys, p_.scale, p_.gradient);
    StoreSum<C>(p_, item, row_, values, 1.0f, p_.values);
  }

  // Takes NaN and Inf out of this warpgroup's keys: the product with dq has all of them as its
  // operand, also those that a query does not attend. Returns what is special about this thread's
  // rows h: bit h where it is past the last key, bit 2 + h where there was NaN or Inf.
  __device__ __forceinline__ uint32_t CleanKeys(const AttentionGradItem& item) {
    const int thread = threadIdx.x % 128, part = thread / 64;
    bool found = false;
    if (part < C::kBlocks) {
      found = CleanRow<T, 64, 1>(Address(s_.own[group_][0]) + part * 64 * 128, thread % 64);
    }
    const uint32_t rows = __ballot_sync(~0u, found);
    if (thread % 32 == 0) s_.nonfinite[group_][thread / 32] = rows;
    ptx::FenceAsyncProxy();
    ptx::NamedBarrier(1 + group_, 128);
    uint32_t special = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = row_ + 8 * h, within = row % 64;
      const uint32_t (&words)[4] = s_.nonfinite[group_];
      const uint32_t bad = words[within / 32] | words[2 + within / 32];
      special |= (row >= item.rows ? 1u : 0u) << h | (bad >> within % 32 & 1) << (2 + h);
    }
    return special;
  }

  // Probabilities of special rows: 0 past the last key, NaN where a key holds NaN or Inf.
  __device__ __forceinline__ static void MarkRows(float (&probs)[kScores], uint32_t special) {
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const int h = i / 2 % 2;
      if (special >> (2 + h) & 1) probs[i] = NAN;
      if (special >> h & 1) probs[i] = 0.0f;
    }
  }

  // This warp's 16 rows of dS^T to shared memory.
  __device__ __forceinline__ void ShareGrads(const uint32_t (&grads)[kSteps][4]) {
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 8 % 2 * 8 + lane % 8;
    const uint32_t line = Address(s_.grads) + row * 128;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      ptx::StoreMatrices(line + ((2 * step + lane / 16) ^ (lane % 8)) * 16, grads[step]);
    }
    ptx::FenceAsyncProxy();
    __syncwarp();
    Release(&s_.grads_full[shares_]);
  }

  // Starts out = dS k: 64 queries by 64 elements of depth, of the keys that are shared.
  __device__ __forceinline__ void StartQueries(float (&out)[kQueries]) {
    const uint32_t grads = Address(s_.grads) + (C::kExchanges ? 0 : group_ * 64 * 128);
    const uint32_t keys = Address(s_.own[0][0]) + group_ * (C::kExchanges ? 64 * 128 : kSide);
    const uint64_t a = ptx::TileDescriptor(grads, 0), b = ptx::TileDescriptor(keys, 0);
    ptx::MmaTouch(out);
    ptx::MmaFence();
#pragma unroll
    for (int step = 0; step < C::kExchanging; ++step) {
      const int side = step / 4, within = step % 4 * 16 * 128;
      ptx::MmaShared<T, 64, true, true>(out, a + step * 16 * 128 / 16,
                                        b + (side * kSide + within) / 16, step > 0);
    }
    ptx::MmaCommit();
  }

  // What a tile's products leave: its slot, the place of its gradients, and this warp's 16 queries
  // of its part of dq, on their way to memory.
  __device__ __forceinline__ void FinishTile(const float (&queries)[kQueries], int slot, int line) {
    Release(&s_.empty[slot]);
    Release(&s_.grads_empty[shares_]);
    const int lane = threadIdx.x % 32;
    const uint32_t shared = Address(s_.sums[threadIdx.x / 32]);
    if (lane == 0) ptx::WaitBulkRead();
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kQueries / 4; ++j) {
      const uint32_t v[4] = {__float_as_uint(queries[4 * j]), __float_as_uint(queries[4 * j + 1]),
                             __float_as_uint(queries[4 * j + 2]),
                             __float_as_uint(queries[4 * j + 3])};
      ptx::StoreShared16(shared + (j * 32 + lane) * 16, v);
    }
    ptx::FenceAsyncProxy();
    __syncwarp();
    if (lane == 0 && line >= 0) {
      const int64_t run = int64_t{line} * (C::kDepth / 64) + (C::kExchanges ? group_ : 0);
      ptx::AddBulk(p_.sums + run * (kSumBytes / 4), shared, kSumBytes);
    }
  }

  __device__ __forceinline__ void Multiply(const AttentionGradItem& item, int tiles,
                                           float (&keys)[kOut], float (&values)[kOut]) {
    float scores[kScores], dots[kScores], queries[kQueries];
    const auto tile = [&](int slot, int i) { return Address(s_.ring[slot][i]); };
    QueryTerms<C> terms = {};
    const uint32_t own = Address(s_.own[group_]), special = CleanKeys(item);
    const bool any_special = __any_sync(~0u, special != 0);
    int before = -1, line = -1;
#pragma unroll 1
    for (int left = tiles; left > 0; --left) {
      const int slot = at_.slot;
      const typename C::Tile& info = s_.tiles[slot];
      // dq of the tile before. There is none at first: what is multiplied then is not added.
      if (before >= 0) ptx::BarrierWait(Address(&s_.grads_full[shares_]), turn_ ^ 1);
      StartQueries(queries);
      ptx::BarrierWait(Address(&s_.full[slot]), at_.parity);
      StartDots<C>(scores, own, tile(slot, 0));
      ptx::MmaWait<1>();
      ptx::MmaTouch(queries);
      if (before >= 0) FinishTile(queries, before, line);
      StartDots<C>(dots, own + C::kOwnBytes, tile(slot, 1));
      const bool masked = info.masked;
      ptx::MmaWait<1>();
      ptx::MmaTouch(scores);
      Probabilities<C>(scores, p_.scale_log2, terms, info);
      if (any_special) MarkRows(scores, special);
      if (masked) KeepAttending<C>(scores, info, row_);
      uint32_t probs[kSteps][4];
      PackWeights<C>(scores, probs);
      StartSum<C>(values, probs, tile(slot, 1));
      ptx::MmaWait<1>();
      ptx::MmaTouch(dots);
      ScoreGradients<C>(scores, dots, terms, info);
      if (masked) KeepAttending<C>(scores, info, row_);
      uint32_t grads[kSteps][4];
      PackWeights<C>(scores, grads);
      ptx::MmaWait<0>();
      ptx::BarrierWait(Address(&s_.grads_empty[shares_]), turn_ ^ 1);
      ShareGrads(grads);
      StartSum<C>(keys, grads, tile(slot, 0));
      line = info.lines[threadIdx.x % 128 / 32];
      turn_ ^= 1;
      at_.Advance(0, 1);
      before = slot;
    }
    ptx::BarrierWait(Address(&s_.grads_full[shares_]), turn_ ^ 1);
    StartQueries(queries);
    ptx::MmaWait<0>();
    ptx::MmaTouch(queries);
    ptx::MmaTouch(keys);
    ptx::MmaTouch(values);
    Release(&s_.own_empty[0]);
    FinishTile(queries, before, line);
  }

  const AttentionGradParams& p_;
  typename C::Shared& s_;
  int group_, shares_, row_;  // shares_: the barriers of dS^T that this warpgroup takes
  RingPlace<C> at_;
  uint32_t turn_ = 0;  // parity of a tile's phase of grads_full
};

}  // namespace jaxsparse
