// Sizes and shared memory of the gradient kernel that owns 128 keys and adds its part of dq to sums
// in global memory.
//
// The sums are float32, 16 queries (a strip) and 64 elements of depth to a run of 4 KB, in the
// order of a warp's accumulators: [strip line][depth / 64][8][lane][4]; a strip line is a strip of
// one batch and query head. Value 2h + e of lane l in column group j is of query l/4 + 8h and
// element 8j + 2*(l%4) + e.
#pragma once

#include "cuda/kernels/sparse_attention/wgmma/grad/config.cuh"

namespace jaxsparse {

inline constexpr int kSumBytes = kStripRows * 64 * 4;  // of one run

// A tile of queries, and where its strips' sums are: -1 where a strip has no query.
template <int Other>
struct AttentionReduceTile : AttentionGradTile<Other, true> {
  int lines[Other / kStripRows];
};

template <typename Element, int QkDepth>
struct AttentionReduceConfig {
  using T = Element;
  static constexpr bool kKeys = true, kReduces = true;
  static constexpr int kDepth = QkDepth, kOther = 64, kBlocks = QkDepth / 64;
  static constexpr int kThreads = 384, kConsumerRegisters = kDepth == 128 ? 240 : 208;
  static constexpr int kProducerRegisters = kDepth == 128 ? 24 : 88;
  static constexpr int kStrips = kOther / kStripRows, kWords = kOther / 32;
  static constexpr int kOwnBytes = kBlocks * 64 * 128, kTileBytes = kBlocks * kOther * 128;
  static constexpr int kSlots = kDepth == 128 ? 3 : 6;
  // At a depth of 64 a warpgroup multiplies and adds what its own keys give to dq; at 128 it takes
  // half of the depth, of all 128 keys: dS^T is exchanged.
  static constexpr bool kExchanges = kDepth == 128;
  static constexpr int kExchanging = kExchanges ? 8 : 4;  // warps that share dS^T
  static_assert(kStrips == 4, "a warp adds one strip");

  using Tile = AttentionReduceTile<kOther>;

  struct alignas(1024) Shared {
    uint8_t own[2][2][kOwnBytes];  // k and v of each warpgroup
    uint8_t ring[kSlots][2][kTileBytes];
    uint8_t grads[128 * kOther * 2];  // dS^T: a row of 128 bytes for each key, swizzled
    uint8_t sums[8][kSumBytes];       // of each warp, on their way to memory
    Tile tiles[kSlots];
    uint64_t full[kSlots], empty[kSlots], own_full[2], own_empty[2], check_full[2], check_empty[2];
    uint64_t grads_full[2], grads_empty[2];  // of each warpgroup, or of both
    AttentionGradItem items[2][2];
    uint32_t nonfinite[2][4];  // rows of k whose NaN and Inf were taken out, by warpgroup and warp
    int check_slot[2];
  };
  static constexpr int kSharedBytes = sizeof(Shared) + 1024;  // room to align
  static_assert(kSharedBytes <= 227 * 1024, "the ring does not fit in shared memory");
};

}  // namespace jaxsparse
