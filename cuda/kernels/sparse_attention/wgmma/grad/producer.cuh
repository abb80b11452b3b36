// The warp that loads a stream's tiles: it takes items one by one and walks their lists, of every
// query head of a group where keys are owned.
#pragma once

#include "cuda/core/async_copy.cuh"
#include "cuda/core/warpgroup.cuh"
#include "cuda/kernels/sparse_attention/wgmma/grad/config.cuh"
#include "cuda/kernels/sparse_attention/wgmma/grad/terms.cuh"

namespace jaxsparse {

template <class C>
__device__ __forceinline__ int ListTiles(const AttentionGradParams& p, const ItemList& list) {
  const int64_t strips = int64_t{list.count} * p.block_strips.value;
  return static_cast<int>((strips + C::kStrips - 1) / C::kStrips);
}

// Item `at` of the call; where the mask is causal those with the longest lists come first. False
// where it has no rows. Whole warps.
template <class C>
__device__ __forceinline__ bool FindItem(const AttentionGradParams& p, int at, int lane,
                                         AttentionGradItem* item) {
  int rest, part;
  const int batch_head = p.head_items.Quotient(at, &rest);
  item->row = p.row_tiles.Quotient(C::kKeys ? rest : p.head_items.value - 1 - rest, &part);
  item->batch = p.heads.Quotient(batch_head, &item->head);
  item->block_row = part * p.tile_rows;
  item->first = item->row * p.own_block + item->block_row;
  item->rows = min(p.tile_rows, min(p.own_block - item->block_row, p.own_len - item->first));
  if (item->rows <= 0) return false;
  int tiles = 0;
  for (int h = lane; h < p.item_heads; h += 32) {
    const int head = item->head * p.item_heads + h;
    tiles += ListTiles<C>(p, ListOf(p.lists, item->batch, head, item->row));
  }
  item->tiles = __reduce_add_sync(~0u, tiles);
  return true;
}

template <class C>
__device__ __forceinline__ Strip MakeStrip(const AttentionGradParams& p, const Entry& e) {
  const ListParams& m = p.lists;
  Strip s = {p.other_len, -1, 0, 0};
  if (!IsListed(m, e)) return s;
  s.start = (e.block * p.block_strips.value + e.within) * kStripRows;
  const int left = min(max(p.other_len - s.start, 0), kStripRows);
  s.valid = (1u << left) - 1;
  if (e.slot < 0) return s;
  if constexpr (C::kKeys) {
    s.words = (e.slot * m.block_q + e.within * kStripRows) * m.row_words;
  } else {
    s.words = e.slot * m.block_q * m.row_words + e.within / 2;
    s.shift = e.within % 2 * kStripRows;
  }
  return s;
}

template <class C>
class GradProducer {
 public:
  __device__ GradProducer(const AttentionGradParams& p, const AttentionGradMaps& maps,
                          typename C::Shared& shared, int stream)
      : p_(p),
        maps_(maps),
        s_(shared),
        stream_(stream),
        lane_(threadIdx.x % 32),
        at_(stream, p.streams) {}

  __device__ void Run() {
    const int workers = p_.streams * gridDim.x;
    for (int at = stream_ * gridDim.x + blockIdx.x; at < p_.items;) {
      int next = 0;
      if (p_.counter != nullptr && lane_ == 0) next = workers + atomicAdd(p_.counter, 1);
      AttentionGradItem item;
      if (FindItem<C>(p_, at, lane_, &item)) LoadItem(item);
      at = p_.counter != nullptr ? __shfl_sync(~0u, next, 0) : at + workers;
    }
    if (lane_ != 0) return;
    ptx::BarrierWait(Address(&s_.own_empty[stream_]), own_parity_ ^ 1);
    s_.items[stream_][own_parity_].tiles = -1;
    ptx::BarrierArrive(Address(&s_.own_full[stream_]));
    const int checkers = 2 / p_.streams;
    for (int i = 0; i < checkers; ++i, NextChecker()) {
      const int c = Checker();
      ptx::BarrierWait(Address(&s_.check_empty[c]), CheckParity() ^ 1);
      s_.check_slot[c] = -1;
      ptx::BarrierArrive(Address(&s_.check_full[c]));
    }
  }

 private:
  __device__ static uint32_t Address(const void* p) { return ptx::SharedAddress(p); }

  // Masked tiles go to both checking warps in turns, or to the stream's own.
  __device__ int Checker() const { return p_.streams == 1 ? checks_ & 1 : stream_; }
  __device__ uint32_t CheckParity() const { return (p_.streams == 1 ? checks_ >> 1 : checks_) & 1; }
  __device__ void NextChecker() { ++checks_; }

  // Where a walk of a list starts, to end before it. CTAs of one head that add to the same sums
  // start a few tiles apart: they do not wait for one another's additions in L2.
  __device__ static int FirstTile(const AttentionGradItem& item, int tiles) {
    const int first = C::kReduces ? item.row % 8 : 0;
    return first < tiles ? first : 0;
  }

  // The first tiles of an item are loaded before its own rows: their slots are free before the last
  // products of the item before are.
  __device__ void LoadItem(const AttentionGradItem& item) {
    int loaded = 0;
    for (int h = 0; h < p_.item_heads; ++h) {
      const int head = item.head * p_.item_heads + h;
      const ItemList list = ListOf(p_.lists, item.batch, head, item.row);
      const int tiles = ListTiles<C>(p_, list);
      const int other_head = C::kKeys ? head : p_.group.Quotient(head);
      int at = FirstTile(item, tiles);
      Entry next = LoadEntry<C::kStrips>(p_.lists, p_.block_strips, list, at, lane_);
      for (int tile = 0; tile < tiles; ++tile, ++loaded) {
        if (loaded == RingPlace<C>::Slots(p_.streams) - 1) LoadOwn(item);
        const Strip strip = MakeStrip<C>(p_, next);
        if (++at == tiles) at = 0;
        next = LoadEntry<C::kStrips>(p_.lists, p_.block_strips, list, at, lane_);
        LoadTile(strip, item, other_head);
      }
    }
    if (loaded < RingPlace<C>::Slots(p_.streams)) LoadOwn(item);
  }

  __device__ void LoadOwn(const AttentionGradItem& item) {
    if (lane_ == 0) {
      const uint32_t full = Address(&s_.own_full[stream_]);
      ptx::BarrierWait(Address(&s_.own_empty[stream_]), own_parity_ ^ 1);
      s_.items[stream_][own_parity_] = item;
      if (item.tiles == 0) {
        ptx::BarrierArrive(full);
      } else {
        const int groups = 2 / p_.streams;
        ptx::BarrierArriveExpect(full, groups * 2 * C::kOwnBytes);
#pragma unroll 1
        for (int g = 0; g < groups; ++g) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int block = 0; block < C::kBlocks; ++block) {
              const uint32_t target = Address(s_.own[stream_ + g][i]) + block * 64 * 128;
              ptx::LoadImageBox(target, &maps_.own[i], block * 64, item.head, item.first + 64 * g,
                                item.batch, full);
            }
          }
        }
      }
    }
    __syncwarp();
    own_parity_ ^= 1;
  }

  // The next slot. A masked tile goes to a checking warp first. Queries past the last have
  // probabilities of 0 by their offset; a tile of nothing else is masked, as keys may hold NaN.
  __device__ void LoadTile(const Strip& strip, const AttentionGradItem& item, int head) {
    const int slot = at_.slot;
    typename C::Tile& tile = s_.tiles[slot];
    constexpr int kTerms = C::kKeys ? C::kOther / 32 : 1;
    float offset[kTerms], delta[kTerms];
    if constexpr (C::kKeys) {
      const int64_t line = (int64_t{item.batch} * p_.query_heads + head) * p_.q_len;
#pragma unroll
      for (int i = 0; i < kTerms; ++i) {
        const int from = (32 * i + lane_) / kStripRows, within = lane_ % kStripRows;
        const int64_t t = line + __shfl_sync(~0u, strip.start, from) + within;
        const bool valid = __shfl_sync(~0u, strip.valid, from) >> within & 1;
        offset[i] = valid ? __ldg(p_.lse + t) : -INFINITY;
        delta[i] = valid ? __ldg(p_.delta + t) : 0.0f;
      }
    }
    ptx::BarrierWait(Address(&s_.empty[slot]), at_.parity ^ 1);
    const bool mine = lane_ < C::kStrips;
    const bool cut = strip.words >= 0 || (!C::kKeys && strip.valid != 0xFFFF);
    const bool masked = __any_sync(~0u, mine && cut) || !__any_sync(~0u, mine && strip.valid != 0);
    if (masked && mine) tile.strips[lane_] = strip;
    if constexpr (C::kReduces) {
      const int first = (item.batch * p_.query_heads + head) * p_.query_strips;
      if (mine) tile.lines[lane_] = strip.valid != 0 ? first + strip.start / kStripRows : -1;
    }
    if constexpr (C::kKeys) {
#pragma unroll
      for (int i = 0; i < kTerms; ++i) {
        tile.offset[32 * i + lane_] = LseOffset(offset[i]);
        tile.delta[32 * i + lane_] = delta[i];
      }
    }
    const int checker = Checker();
    const uint32_t check = Address(&s_.check_full[checker]);
    if (masked) ptx::BarrierWait(Address(&s_.check_empty[checker]), CheckParity() ^ 1);
    __syncwarp();
    const uint32_t landed = masked ? check : Address(&s_.full[slot]);
    if (lane_ == 0) {
      tile.masked = masked;
      tile.block_row = item.block_row;
      if (masked) s_.check_slot[checker] = slot;
      ptx::BarrierArriveExpect(landed, 2 * C::kTileBytes);
    }
#pragma unroll 1
    for (int piece = 0; piece < p_.pieces; ++piece) {
      const int first = piece * p_.piece_rows;
      const int start = __shfl_sync(~0u, strip.start, first / kStripRows);
      if (lane_ != 0) continue;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t target = Address(s_.ring[slot][i]) + first * 128;
#pragma unroll
        for (int block = 0; block < C::kBlocks; ++block) {
          ptx::LoadImageBox(target + block * C::kOther * 128, &maps_.other[i], block * 64, head,
                            start, item.batch, landed);
        }
      }
    }
    __syncwarp();
    if (masked) NextChecker();
    at_.Advance(stream_, p_.streams);
  }

  const AttentionGradParams& p_;
  const AttentionGradMaps& maps_;
  typename C::Shared& s_;
  int stream_, lane_;
  RingPlace<C> at_;
  uint32_t own_parity_ = 0, checks_ = 0;
};

}  // namespace jaxsparse
