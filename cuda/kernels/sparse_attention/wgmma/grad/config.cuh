// Sizes and shared memory of a gradient kernel. Two warpgroups with one ring of tiles, or each with
// a ring of its own (a *stream*), decided by the launcher: the ring is an array of slots that one
// or two streams share out.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/core/mbarrier.cuh"
#include "cuda/kernels/sparse_attention/wgmma/grad/params.cuh"
#include "cuda/kernels/sparse_attention/wgmma/list.cuh"

namespace jaxsparse {

// Owned rows, and how many tiles they meet; tiles < 0 ends a stream.
struct AttentionGradItem {
  int batch, head, first, rows, block_row, row, tiles;  // row: the list's; block_row: of `first`
};

// What is known of a tile of the other side. Of queries: -lse in base 2, which is -inf where a
// query has attended to nothing, and delta. `bits` where masked: a word per 32 keys, [words][
// queries] where keys are owned, else [queries][words].
template <int Other, bool OwnKeys>
struct AttentionGradTile {
  Strip strips[Other / kStripRows];
  float offset[OwnKeys ? Other : 4], delta[OwnKeys ? Other : 4];
  uint32_t bits[128 * Other / 32];
  int masked, block_row;
};

template <typename Element, int QkDepth, bool OwnKeys, int TileOther>
struct AttentionGradConfig {
  using T = Element;
  static constexpr bool kKeys = OwnKeys, kReduces = false;
  static constexpr int kDepth = QkDepth, kOther = TileOther, kBlocks = QkDepth / 64;
  static constexpr int kThreads = 384, kConsumerRegisters = kKeys && kDepth == 128 ? 240 : 232;
  static constexpr int kProducerRegisters = kConsumerRegisters == 240 ? 24 : 40;
  static constexpr int kStrips = kOther / kStripRows, kWords = kOther / 32;
  static constexpr int kOwnBytes = kBlocks * 64 * 128, kTileBytes = kBlocks * kOther * 128;

  using Tile = AttentionGradTile<kOther, kKeys>;
  static constexpr int kRoom = 226 * 1024 - 1024 - 4 * kOwnBytes - 1024;
  static constexpr int kFits = kRoom / (2 * kTileBytes + static_cast<int>(sizeof(Tile))) / 2 * 2;
  static constexpr int kSlots = kFits > 8 ? 8 : kFits;
  static_assert(kSlots >= 4 && kDepth % 64 == 0 && kOther % 32 == 0 && kStrips <= 32);

  struct alignas(1024) Shared {
    uint8_t own[2][2][kOwnBytes];  // of each warpgroup
    uint8_t ring[kSlots][2][kTileBytes];
    Tile tiles[kSlots];
    uint64_t full[kSlots], empty[kSlots], own_full[2], own_empty[2], check_full[2], check_empty[2];
    AttentionGradItem items[2][2];  // of a stream: this one and the one before
    int check_slot[2];
  };
  static constexpr int kSharedBytes = sizeof(Shared) + 1024;  // room to align
  static_assert(kSharedBytes <= 227 * 1024, "the ring does not fit in shared memory");
};

// A stream's place in its part of the ring.
template <class C>
struct RingPlace {
  int slot;
  uint32_t parity = 0;

  __device__ static int Slots(int streams) { return streams == 1 ? C::kSlots : C::kSlots / 2; }
  __device__ RingPlace(int stream, int streams) : slot(stream * Slots(streams)) {}
  __device__ void Advance(int stream, int streams) {
    const int slots = Slots(streams);
    if (++slot == (stream + 1) * slots) {
      slot -= slots;
      parity ^= 1;
    }
  }
};

}  // namespace jaxsparse
