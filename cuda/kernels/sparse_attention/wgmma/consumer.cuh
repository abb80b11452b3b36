// The warpgroups that multiply. The scores of the next tile and the products of the present one are
// started together; the softmax runs beside them. Two warpgroups of a stream take turns: one's
// softmax runs while the other's products do.
#pragma once

#include "cuda/core/warpgroup.cuh"
#include "cuda/core/wgmma/operands.cuh"
#include "cuda/kernels/sparse_attention/wgmma/config.cuh"
#include "cuda/kernels/sparse_attention/wgmma/mask_bits.cuh"
#include "cuda/kernels/sparse_attention/wgmma/softmax.cuh"
#include "cuda/tile/store/quad.cuh"

namespace jaxsparse {

template <class C>
class Consumer {
 public:
  using T = typename C::T;

  __device__ __forceinline__ Consumer(const AttentionParams& p, typename C::Shared& shared,
                                      int group)
      : p_(p),
        s_(shared.streams[group / C::kGroups]),
        q_(ptx::SharedAddress(shared.q[group / C::kGroups]) + group % C::kGroups * 64 * 128),
        ring_(ptx::SharedAddress(shared.ring[group / C::kGroups])),
        group_(group % C::kGroups) {}

  __device__ __forceinline__ void Run() {
    if (C::kTurns && group_ == 1) ptx::NamedBarrierArrive(1, 256);
    for (uint32_t parity = 0;; parity ^= 1) {
      ptx::BarrierWait(Address(&s_.q_full), parity);
      const TileItem item = s_.item;
      if (item.tiles < 0) return;
      RunItem(item);
    }
  }

 private:
  static constexpr int kScores = C::kKv / 2, kOut = C::kVDepth / 2, kSteps = C::kKv / 16;

  __device__ static uint32_t Address(const void* p) { return ptx::SharedAddress(p); }
  __device__ static void Release(uint64_t* barrier) {
    if (threadIdx.x % 32 == 0) ptx::BarrierArrive(Address(barrier));
  }
  __device__ void WaitFull() { ptx::BarrierWait(Address(&s_.full[at_.stage]), at_.parity); }

  // This warpgroup's turn to start products, and the end of it.
  __device__ void TakeTurn() const {
    if constexpr (C::kTurns) ptx::NamedBarrier(1 + group_, 256);
  }
  __device__ void PassTurn() const {
    if constexpr (C::kTurns) ptx::NamedBarrierArrive(2 - group_, 256);
  }

  // Starts scores = Q K^T with the tile of K at `stage`.
  __device__ __forceinline__ void StartScores(float (&scores)[kScores], int stage) const {
    const uint64_t q = ptx::TileDescriptor(q_, 0);
    const uint64_t k = ptx::TileDescriptor(ring_ + stage * C::kStageBytes, 0);
    ptx::MmaTouch(scores);
    ptx::MmaFence();
#pragma unroll
    for (int step = 0; step < C::kDepth / 16; ++step) {
      const int block = step / 4, within = step % 4 * 32;
      ptx::MmaShared<T, C::kKv, false, false>(scores, q + (block * C::kRows * 128 + within) / 16,
                                              k + (block * C::kKv * 128 + within) / 16, step > 0);
    }
    ptx::MmaCommit();
  }

  // Starts out += P V with the tile of V at `stage`.
  __device__ __forceinline__ void StartValues(float (&out)[kOut], uint32_t (&probs)[kSteps][4],
                                              int stage) const {
    const uint64_t v = ptx::TileDescriptor(ring_ + stage * C::kStageBytes, C::kKv * 128);
    ptx::MmaTouch(out);
    ptx::MmaFence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      ptx::MmaRegisters<T, C::kVDepth, true>(out, probs[step], v + step * 16 * 128 / 16, 1);
    }
    ptx::MmaCommit();
  }

  __device__ __forceinline__ static void Pack(const float (&scores)[kScores],
                                              uint32_t (&probs)[kSteps][4]) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 8 * step + 2 * i;
        probs[step][i] = DTypeTraits<T>::Pack(scores[at], scores[at + 1]);
      }
    }
  }

  __device__ __forceinline__ void RunItem(const TileItem& item) {
    const int row = group_ * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    float out[kOut];
#pragma unroll
    for (float& v : out) v = 0.0f;
    RowSoftmax<C::kKv> softmax;
    if (item.tiles == 0) {
      __syncwarp();  // every lane has read the item
      Release(&s_.q_empty);
    } else {
      Multiply(item, row, out, softmax);
    }
    Store(item, row, out, softmax);
  }

  __device__ __forceinline__ void Multiply(const TileItem& item, int row, float (&out)[kOut],
                                           RowSoftmax<C::kKv>& softmax) {
    const int last_row = p_.lists.block_q - 1;
    const int block_row[2] = {min(item.block_row + row, last_row),
                              min(item.block_row + row + 8, last_row)};
    float scores[kScores], factor[2];
    uint32_t probs[kSteps][4];
    KeyBits<C::kKv> bits;
    int flags = kEveryKey;
    const auto start_scores = [&] {
      StartScores(scores, at_.stage);
      const typename C::Info& info = s_.info[at_.stage];
      flags = info.flags;
      if (flags != kEveryKey) bits.Load(p_.lists, info, block_row);
    };
    const auto finish_values = [&](int stage, int v_flags) {
      ptx::MmaWait<0>();
      ptx::MmaTouch(out);
      if (v_flags & kPartial) {
        const typename C::Info& info = s_.info[stage];
        const int kv_head = p_.group.Quotient(item.head);
        const auto* v = static_cast<const T*>(p_.v) +
                        (int64_t{item.batch} * p_.kv_len * p_.kv_heads + kv_head) * C::kVDepth;
        AddNonfinite<C>(out, p_.lists, info, block_row, v, int64_t{p_.kv_heads} * C::kVDepth);
        __syncwarp();  // every lane has read what the stage notes
      }
      Release(&s_.empty[stage]);
    };
    const auto finish_scores = [&](int stage, bool last) {
      ptx::MmaTouch(scores);
      Release(&s_.empty[stage]);
      if (last) Release(&s_.q_empty);
      if (flags != kEveryKey) bits.Apply(scores);
      const bool raised = softmax.Step(scores, p_.scale_log2, factor);
      ptx::MmaTouch(scores);
      at_.Advance();
      WaitFull();
      return raised;
    };

    WaitFull();
    TakeTurn();
    start_scores();
    PassTurn();
    ptx::MmaWait<0>();
    finish_scores(at_.stage, item.tiles == 1);
    Pack(scores, probs);
    for (int tile = 1; tile < item.tiles; ++tile) {
      const int v_flags = flags;
      TakeTurn();
      start_scores();
      const int k_stage = at_.stage;
      at_.Advance();
      WaitFull();
      StartValues(out, probs, at_.stage);
      PassTurn();
      ptx::MmaWait<1>();
      const int v_stage = at_.stage;
      const bool raised = finish_scores(k_stage, tile + 1 == item.tiles);
      finish_values(v_stage, v_flags);
      if (raised) {
#pragma unroll
        for (int i = 0; i < kOut; ++i) out[i] *= factor[i / 2 % 2];
      }
      Pack(scores, probs);
    }
    StartValues(out, probs, at_.stage);
    finish_values(at_.stage, flags);
    at_.Advance();
  }

  // Both rows of this thread: 16 bytes a lane once a quad has exchanged its columns.
  __device__ __forceinline__ void Store(const TileItem& item, int row, float (&out)[kOut],
                                        RowSoftmax<C::kKv>& softmax) const {
    float factor[2], lse[2];
    softmax.Finish(factor, lse);
    const int heads = p_.heads.value, quad = threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int at = row + 8 * h;
      const bool stored = at < item.rows;
      const int64_t t = item.first + at;
      T* line = static_cast<T*>(p_.out) +
                ((int64_t{item.batch} * p_.q_len + t) * heads + item.head) * C::kVDepth;
#pragma unroll
      for (int j = 0; j < C::kVDepth / 8; j += 4) {
        uint32_t v[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int from = 4 * (j + i) + 2 * h;
          v[i] = DTypeTraits<T>::Pack(out[from] * factor[h], out[from + 1] * factor[h]);
        }
        TransposeQuad(v);
        if (!stored) continue;
        *reinterpret_cast<uint4*>(line + (j + quad) * 8) = make_uint4(v[0], v[1], v[2], v[3]);
      }
      if (stored && quad == 0 && p_.lse != nullptr) {
        p_.lse[(int64_t{item.batch} * heads + item.head) * p_.q_len + t] = lse[h];
      }
    }
  }

  const AttentionParams& p_;
  typename C::Stream& s_;
  uint32_t q_, ring_;
  int group_;
  typename C::Position at_;
};

}  // namespace jaxsparse
