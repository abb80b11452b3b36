// SplitWarp: one warp's share of a split. It streams strips of 16 keys through a ring of its own,
// so that no two warps wait for each other before the split is done.
#pragma once

#include "cuda/kernels/sparse_attention/mma/place.cuh"
#include "cuda/kernels/sparse_attention/mma/products.cuh"
#include "cuda/kernels/sparse_attention/mma/softmax.cuh"
#include "cuda/kernels/sparse_attention/split/list.cuh"

namespace jaxsparse {

// A row of a tile: a head and a query. Worked out where it is needed, so that it takes no registers
// elsewhere.
struct SplitRow {
  int head, query;
  bool exists;
};

// The rows of a tile that a lane holds: i * 16 + lane / 4 + h * 8 from `first` on.
struct SplitRows {
  const SplitArgs& args;
  int first_head, first;

  // A row past the last is the last one's copy.
  __device__ __forceinline__ SplitRow At(int i, int h) const {
    const int q_len = args.attention.q_len, rows = args.pack * q_len;
    const int row = first + i * 16 + ptx::ThreadHere() % 32 / 4 + h * 8;
    const int at = min(row, rows - 1), head = at / q_len;
    return {first_head + head, at - head * q_len, row < rows};
  }
};

template <class C>
class SplitWarp {
 public:
  using T = typename C::T;

  // `q`: the tile's rows in shared memory; `ring`: this warp's stages.
  __device__ SplitWarp(const SplitArgs& args, const KeyStrips& strips, const SplitRows& rows,
                       int batch, int kv_head, uint32_t q, uint32_t ring)
      : a_(args.attention),
        strips_(strips),
        rows_(rows),
        k_(HeadRows<T>(a_.k, batch, kv_head, a_.kv_len, a_.kv_heads, a_.depth)),
        v_(HeadRows<T>(a_.v, batch, kv_head, a_.kv_len, a_.kv_heads, a_.v_depth)),
        q_(q),
        ring_(ring),
        batch_(batch),
        plain_(a_.slopes == nullptr && a_.bias == nullptr && a_.soft_cap == 0.0f &&
               a_.scale > 0.0f),
        softmax_(plain_ ? a_.scale * kLog2E : kLog2E) {
#pragma unroll
    for (int i = 0; i < C::kBlocks; ++i) {
#pragma unroll
      for (int j = 0; j < C::kColumns / 8; ++j) {
#pragma unroll
        for (float& v : out_[i][j]) v = 0.0f;
      }
    }
  }

  // The strips first, first + step, ... below `end`.
  __device__ __forceinline__ void Run(int first, int end, int step) {
    first_ = first, step_ = step, count_ = first < end ? (end - first - 1) / step + 1 : 0;
    window_ = Entries(0), coming_ = Entries(1);
    KeyStrip now = Load(0, 0), next = Load(1, 1);
#pragma unroll 1
    for (int at = 0; at < count_; ++at) {
      asm volatile("cp.async.wait_group 1;" ::: "memory");
      __syncwarp();
      Multiply(now, Stage(at % 2));
      __syncwarp();  // the stage is free
      now = next;
      next = Load(at + 2, at % 2);
    }
    ptx::WaitForCopies();
  }

  // Normalized, and the rows' log-sum-exps.
  __device__ __forceinline__ void Finish(float (&lse)[C::kBlocks][2]) {
    float inverse[C::kBlocks][2];
    softmax_.Finish(inverse, lse);
#pragma unroll
    for (int i = 0; i < C::kBlocks; ++i) {
#pragma unroll
      for (int j = 0; j < C::kColumns / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) out_[i][j][e] *= inverse[i][e / 2];
      }
    }
  }

  __device__ float out(int i, int j, int e) const { return out_[i][j][e]; }

 private:
  __device__ static int Lane() { return threadIdx.x % 32; }
  __device__ uint32_t Stage(int s) const {
    return ring_ + s * kMaskUnit * (k_.panels() + v_.panels()) * kPanelBytes;
  }
  // The strips 32 * window and on, one a lane.
  __device__ __forceinline__ KeyStrip Entries(int window) const {
    const int at = 32 * window + Lane();
    return at < count_ ? strips_.At(first_ + at * step_) : KeyStrip{};
  }

  // Starts the copies of strip `at`: a group of its own, empty where there is none.
  __device__ __forceinline__ KeyStrip Load(int at, int stage) {
    if (at % 32 == 0 && at > 0) {
      window_ = coming_;
      coming_ = Entries(at / 32 + 1);
    }
    const KeyStrip strip = {__shfl_sync(~0u, window_.start, at % 32),
                            __shfl_sync(~0u, window_.slot, at % 32)};
    if (at < count_ && strip.start < k_.length) {
      const uint32_t k = Stage(stage), v = k + kMaskUnit * k_.panels() * kPanelBytes;
      Copy(k, k_, strip.start);
      Copy(v, v_, strip.start);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    return strip;
  }

  // 16 rows from `start` on; those past the end are zeros.
  __device__ __forceinline__ static void Copy(uint32_t tile, const AttentionRows& rows, int start) {
    const int lane = Lane(), byte = lane % kPanelUnits * kUnitBytes;
#pragma unroll
    for (int r = lane / kPanelUnits; r < kMaskUnit; r += 32 / kPanelUnits) {
      const bool exists = start + r < rows.length;
      const char* source = rows.base + (exists ? (start + r) * rows.pitch : 0);
      uint32_t target = tile + PanelAt(r, lane % kPanelUnits);
      for (int at = byte; at < rows.panels() * kPanelBytes; at += kPanelBytes) {
        const bool inside = exists && at < rows.row_bytes;
        ptx::CopyOrZero16(target, inside ? source + at : rows.base, inside ? kUnitBytes : 0);
        target += kMaskUnit * kPanelBytes;
      }
    }
  }

  __device__ __forceinline__ void Multiply(const KeyStrip& strip, uint32_t stage) {
    const int left = k_.length - strip.start;
    if (left <= 0) return;
    const uint32_t values = stage + kMaskUnit * k_.panels() * kPanelBytes;
    float scores[C::kBlocks][2][4] = {};
    MultiplyRows<T, C::kRows, kMaskUnit>(scores, q_, stage, k_.panels());
    const bool whole = left >= kMaskUnit && strip.slot == kFullBlock;
    if (!plain_ || !whole) {
      const uint32_t inside = left >= kMaskUnit ? 0xFFFFu : (1u << left) - 1;
      uint32_t any = 0;
#pragma unroll
      for (int i = 0; i < C::kBlocks; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) any |= Rescore(scores, strip, inside, i, h);
      }
      if (!whole) ClearUnread(any, values);
    }
    softmax_.template Apply<C::kColumns>(scores, out_);
    const LeftFragments<T, kMaskUnit, C::kBlocks> probabilities(scores);
    MultiplyColumns<T, C::kColumns>(out_, probabilities, values, v_.panels());
  }

  // Scores of one row of the lane, -inf where it does not attend; which of the 16 keys it attends
  // to.
  __device__ __forceinline__ uint32_t Rescore(float (&scores)[C::kBlocks][2][4],
                                              const KeyStrip& strip, uint32_t inside, int i,
                                              int h) const {
    const SplitRow row = rows_.At(i, h);
    uint32_t bits = inside;
    if (strip.slot >= 0) {
      const AttentionMask& m = a_.mask;
      const int words = (m.block_kv + 31) / 32, bit = strip.start % m.block_kv;
      const int64_t line = static_cast<int64_t>(strip.slot) * m.block_q + row.query;
      bits &= __ldg(m.words + line * words + bit / 32) >> (bit % 32);
    }
    using Element = typename AttentionElement<T>::Storage;
    const AttentionScore<Element> score(a_, batch_, row.head);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int e = 2 * h; e < 2 * h + 2; ++e) {
        const int column = 8 * j + threadIdx.x % 4 * 2 + e % 2;
        const bool counts = bits >> column & 1;
        float derivative;
        if (!plain_) {
          scores[i][j][e] =
              score.Score(scores[i][j][e], row.query, strip.start + column, counts, &derivative);
        }
        if (!counts) scores[i][j][e] = -INFINITY;
      }
    }
    return bits;
  }

  // 0 for the values that no row of the tile attends to, which may be NaN. `bits`: of this lane.
  __device__ __forceinline__ void ClearUnread(uint32_t bits, uint32_t values) const {
    const int lane = Lane();
#pragma unroll
    for (int step = 4; step < 32; step *= 2) bits |= __shfl_xor_sync(~0u, bits, step);
    uint32_t unread = ~bits & 0xFFFFu;
    if (unread == 0) return;
    for (; unread != 0; unread &= unread - 1) {
      const int row = __ffs(static_cast<int>(unread)) - 1;
      if (lane >= kPanelUnits * v_.panels()) continue;
      const uint32_t panel = values + lane / kPanelUnits * kMaskUnit * kPanelBytes;
      ptx::StoreShared16(panel + PanelAt(row, lane % kPanelUnits), {0, 0, 0, 0});
    }
    __syncwarp();
  }

  const AttentionArgs& a_;
  const KeyStrips& strips_;
  const SplitRows& rows_;
  AttentionRows k_, v_;
  uint32_t q_, ring_;
  int batch_;
  bool plain_;
  OnlineSoftmax<kMaskUnit, C::kBlocks> softmax_;
  float out_[C::kBlocks][C::kColumns / 8][4];
  KeyStrip window_, coming_;
  int first_ = 0, step_ = 1, count_ = 0;
};

}  // namespace jaxsparse
