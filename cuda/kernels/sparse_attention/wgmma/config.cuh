// Sizes and shared memory of the attention kernel on Hopper. A *stream* is a ring of key and value
// tiles with the warpgroups that read it: one stream of two warpgroups (128 queries that share
// their lists), or two streams of one (64 queries each, lists of their own).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

#include "cuda/core/mbarrier.cuh"
#include "cuda/kernels/sparse_attention/wgmma/list.cuh"
#include "cuda/kernels/sparse_attention/wgmma/params.cuh"
#include "cuda/tile/pipeline.cuh"

namespace jaxsparse {

enum TileFlags : int { kEveryKey = 0, kMasked = 1, kPartial = 2 };

template <int KvRows>
struct TileInfo {
  Strip strips[KvRows / kStripRows];
  uint32_t nonfinite[KvRows / 32];  // rows of a partial tile of V whose NaN and Inf were taken out
  int flags;
};

// A query tile.
struct TileItem {
  int batch, head, first, rows, block_row, tiles;  // block_row: of `first` in its block
};

template <typename Element, int QkDepth, int VDepth, int TileKv, int StreamCount, int StageCount,
          bool TakesTurns = true>
struct AttentionConfig {
  using T = Element;
  static constexpr int kDepth = QkDepth, kVDepth = VDepth, kKv = TileKv;
  static constexpr int kStreams = StreamCount, kGroups = 2 / kStreams, kStages = StageCount;
  static constexpr int kRows = 64 * kGroups;  // queries of a tile
  static constexpr bool kTurns = TakesTurns && kGroups == 2;
  static constexpr int kConsumers = kStreams * kGroups;
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr int kConsumerRegisters = 232, kProducerRegisters = 40;
  static constexpr int kDepthBlocks = (kDepth + 63) / 64, kVBlocks = (kVDepth + 63) / 64;
  static constexpr int kStrips = kKv / kStripRows;
  static constexpr int kQBytes = kDepthBlocks * kRows * 128;
  static constexpr int kKBytes = kDepthBlocks * kKv * 128, kVBytes = kVBlocks * kKv * 128;
  static constexpr int kStageBytes = kKBytes > kVBytes ? kKBytes : kVBytes;
  static constexpr int kChecks = 2;                 // partial tiles of V that wait to be checked
  static constexpr int kCheckWarps = 2 / kStreams;  // of a stream
  static constexpr int kQTurn = kStages >= 6 ? 3 : kStages - 3 > 1 ? kStages - 3 : 1;
  static_assert(kStages >= 3 && kStrips <= 32 && kKv % 32 == 0);

  using Position = RingPosition<kStages>;
  using Info = TileInfo<kKv>;

  struct Stream {
    uint64_t full[kStages], empty[kStages], q_full, q_empty, check_full[kChecks],
        check_empty[kChecks];
    Info info[kStages];
    TileItem item;
    int check_stage[kChecks];
  };
  struct alignas(1024) Shared {
    uint8_t q[kStreams][kQBytes];
    uint8_t ring[kStreams][kStages][kStageBytes];
    Stream streams[kStreams];
  };
  static constexpr int kSharedBytes = sizeof(Shared) + 1024;  // room to align
  static_assert(kSharedBytes <= 227 * 1024, "the stages do not fit in shared memory");
};

}  // namespace jaxsparse
