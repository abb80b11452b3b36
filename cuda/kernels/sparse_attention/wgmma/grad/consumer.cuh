// The warpgroups that multiply: 64 owned rows each. A tile's scores and dots are started together,
// behind the sums of the tile before.
#pragma once

#include "cuda/core/warpgroup.cuh"
#include "cuda/kernels/sparse_attention/wgmma/grad/config.cuh"
#include "cuda/kernels/sparse_attention/wgmma/grad/products.cuh"
#include "cuda/kernels/sparse_attention/wgmma/grad/terms.cuh"

namespace jaxsparse {

template <class C>
class GradConsumer {
 public:
  using T = typename C::T;

  __device__ __forceinline__ GradConsumer(const AttentionGradParams& p, typename C::Shared& shared,
                                          int group)
      : p_(p),
        s_(shared),
        own_(Address(shared.own[group])),
        stream_(p.streams == 1 ? 0 : group),
        row_((p.streams == 1 ? group : 0) * 64 + threadIdx.x % 128 / 32 * 16 +
             threadIdx.x % 32 / 4),
        at_(stream_, p.streams) {}

  __device__ __forceinline__ void Run() {
    for (uint32_t parity = 0;; parity ^= 1) {
      ptx::BarrierWait(Address(&s_.own_full[stream_]), parity);
      const AttentionGradItem& item = s_.items[stream_][parity];
      if (item.tiles < 0) return;
      RunItem(item);
    }
  }

 private:
  static constexpr int kScores = C::kOther / 2, kOut = C::kDepth / 2, kSteps = C::kOther / 16;
  static constexpr int kValues = C::kKeys ? kOut : 2;

  __device__ static uint32_t Address(const void* p) { return ptx::SharedAddress(p); }
  __device__ static void Release(uint64_t* barrier) {
    if (threadIdx.x % 32 == 0) ptx::BarrierArrive(Address(barrier));
  }

  __device__ __forceinline__ void RunItem(const AttentionGradItem& item) {
    float gradient[kOut], values[kValues];
#pragma unroll
    for (float& v : gradient) v = 0.0f;
#pragma unroll
    for (float& v : values) v = 0.0f;
    const int tiles = item.tiles;
    if (tiles == 0) {
      __syncwarp();  // every lane has read the item
      Release(&s_.own_empty[stream_]);
    } else {
      Multiply(item, tiles, gradient, values);
    }
    StoreSum<C>(p_, item, row_, gradient, p_.scale, p_.gradient);
    if constexpr (C::kKeys) StoreSum<C>(p_, item, row_, values, 1.0f, p_.values);
  }

  __device__ __forceinline__ QueryTerms<C> OwnTerms(const AttentionGradItem& item) const {
    QueryTerms<C> terms = {};
    if constexpr (!C::kKeys) {
      const int64_t line = (int64_t{item.batch} * p_.query_heads + item.head) * p_.q_len;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = min(row_ + 8 * h, item.rows - 1);
        const int64_t t = line + item.first + row;
        terms.Set(h, __ldg(p_.lse + t), __ldg(p_.delta + t));
      }
    }
    return terms;
  }

  __device__ __forceinline__ void Multiply(const AttentionGradItem& item, int tiles,
                                           float (&gradient)[kOut], float (&values)[kValues]) {
    float scores[kScores], dots[kScores];
    const auto tile = [&](int slot, int i) { return Address(s_.ring[slot][i]); };
    QueryTerms<C> terms = OwnTerms(item);
    int before = -1;
#pragma unroll 1
    for (int left = tiles; left > 0;) {
      const int slot = at_.slot;
      const typename C::Tile& info = s_.tiles[slot];
      ptx::BarrierWait(Address(&s_.full[slot]), at_.parity);
      StartDots<C>(scores, own_, tile(slot, 0));
      StartDots<C>(dots, own_ + C::kOwnBytes, tile(slot, 1));
      const bool masked = info.masked;
      ptx::MmaWait<2>();
      if (before >= 0) Release(&s_.empty[before]);
      ptx::MmaWait<1>();
      ptx::MmaTouch(scores);
      terms.Resolve();
      Probabilities<C>(scores, p_.scale_log2, terms, info);
      if (masked) KeepAttending<C>(scores, info, row_);
      if constexpr (C::kKeys) {
        uint32_t probs[kSteps][4];
        PackWeights<C>(scores, probs);
        StartSum<C>(values, probs, tile(slot, 1));
        ptx::MmaWait<1>();
      } else {
        ptx::MmaWait<0>();
      }
      ptx::MmaTouch(dots);
      if (--left == 0) Release(&s_.own_empty[stream_]);
      ScoreGradients<C>(scores, dots, terms, info);
      if (masked) KeepAttending<C>(scores, info, row_);
      if constexpr (C::kKeys) ptx::MmaWait<0>();  // grads take the registers of probs
      uint32_t grads[kSteps][4];
      PackWeights<C>(scores, grads);
      StartSum<C>(gradient, grads, tile(slot, 0));
      at_.Advance(stream_, p_.streams);
      before = slot;
    }
    ptx::MmaWait<0>();
    ptx::MmaTouch(gradient);
    ptx::MmaTouch(values);
    Release(&s_.empty[before]);
  }

  const AttentionGradParams& p_;
  typename C::Shared& s_;
  uint32_t own_;
  int stream_, row_;
  RingPlace<C> at_;
};

}  // namespace jaxsparse
