// The warp that loads a stream's tiles: it takes query tiles one by one, walks their lists, and
// fills the ring with K and V in the order in which they are multiplied: K0 K1 V0 K2 V1 ... V.
#pragma once

#include "cuda/core/async_copy.cuh"
#include "cuda/core/warpgroup.cuh"
#include "cuda/kernels/sparse_attention/wgmma/config.cuh"
#include "cuda/kernels/sparse_attention/wgmma/list.cuh"

namespace jaxsparse {

// Query tile `at` of the call; tiles of a head from its last on, whose lists are longest where the
// mask is causal. False where the tile has no rows.
template <class C>
__device__ __forceinline__ bool FindItem(const AttentionParams& p, int at, TileItem* item,
                                         ItemList* list) {
  const ListParams& m = p.lists;
  int rest, part, head;
  const int batch_head = p.head_items.Quotient(at, &rest);
  const int row = p.row_tiles.Quotient(p.head_items.value - 1 - rest, &part);
  item->batch = p.heads.Quotient(batch_head, &head);
  item->head = head;
  item->block_row = part * C::kRows;
  item->first = row * m.block_q + item->block_row;
  item->rows = min(C::kRows, min(m.block_q - item->block_row, p.q_len - item->first));
  if (item->rows <= 0) return false;
  *list = ListOf(m, item->batch, head, row);
  const int64_t strips = int64_t{list->count} * p.block_strips.value;
  item->tiles = static_cast<int>((strips + C::kStrips - 1) / C::kStrips);
  return true;
}

__device__ __forceinline__ Strip MakeStrip(const AttentionParams& p, const Entry& e) {
  const ListParams& m = p.lists;
  Strip s = {p.kv_len, -1, 0, 0};
  if (!IsListed(m, e)) return s;
  s.start = e.block * m.block_kv + e.within * kStripRows;
  const int left = min(max(p.kv_len - s.start, 0), kStripRows);
  s.valid = (1u << left) - 1;
  if (e.slot >= 0) {
    s.words = e.slot * m.block_q * m.row_words + e.within / 2;
    s.shift = e.within % 2 * kStripRows;
  }
  return s;
}

template <class C>
class Producer {
 public:
  using Stream = typename C::Stream;

  __device__ Producer(const AttentionParams& p, const AttentionMaps& maps,
                      typename C::Shared& shared, int stream)
      : p_(p),
        maps_(maps),
        s_(shared.streams[stream]),
        q_(ptx::SharedAddress(shared.q[stream])),
        ring_(ptx::SharedAddress(shared.ring[stream])),
        worker_(stream * gridDim.x + blockIdx.x),
        lane_(threadIdx.x % 32) {}

  __device__ void Run() {
    const int workers = C::kStreams * gridDim.x;
    for (int at = worker_; at < p_.items;) {
      int next = 0;
      if (p_.counter != nullptr && lane_ == 0) next = workers + atomicAdd(p_.counter, 1);
      TileItem item;
      ItemList list;
      if (FindItem<C>(p_, at, &item, &list)) LoadItem(item, list);
      at = p_.counter != nullptr ? __shfl_sync(~0u, next, 0) : at + workers;
    }
    if (lane_ != 0) return;
    ptx::BarrierWait(Address(&s_.q_empty), q_parity_ ^ 1);
    s_.item.tiles = -1;
    ptx::BarrierArrive(Address(&s_.q_full));
    ptx::BarrierWait(Address(&s_.check_empty[check_.stage]), check_.parity ^ 1);
    s_.check_stage[check_.stage] = -1;
    ptx::BarrierArrive(Address(&s_.check_full[check_.stage]));
  }

 private:
  __device__ static uint32_t Address(const void* p) { return ptx::SharedAddress(p); }

  __device__ void LoadItem(const TileItem& item, const ItemList& list) {
    const int loads = 2 * item.tiles;
    const int kv_head = p_.group.Quotient(item.head);
    Entry next = LoadEntry<C::kStrips>(p_.lists, p_.block_strips, list, 0, lane_);
    Strip now = {}, before = {};
    int tile = 0;  // of K, the next one
    for (int j = 0; j < loads; ++j) {
      if (j == C::kQTurn) LoadQuery(item);
      if (j == 0 || (j % 2 == 1 && tile < item.tiles)) {
        before = now;
        now = MakeStrip(p_, next);
        ++tile;
        next = LoadEntry<C::kStrips>(p_.lists, p_.block_strips, list, tile, lane_);
        LoadTile<C::kDepthBlocks>(&maps_.k, now, kv_head, item.batch, false);
      } else {
        if (j + 1 == loads) before = now;
        LoadTile<C::kVBlocks>(&maps_.v, before, kv_head, item.batch, true);
      }
    }
    if (loads <= C::kQTurn) LoadQuery(item);
  }

  __device__ void LoadQuery(const TileItem& item) {
    if (lane_ == 0) {
      const uint32_t full = Address(&s_.q_full);
      ptx::BarrierWait(Address(&s_.q_empty), q_parity_ ^ 1);
      s_.item = item;
      if (item.tiles == 0) {
        ptx::BarrierArrive(full);
      } else {
        ptx::BarrierArriveExpect(full, C::kQBytes);
#pragma unroll
        for (int block = 0; block < C::kDepthBlocks; ++block) {
          ptx::LoadImageBox(q_ + block * C::kRows * 128, &maps_.q, block * 64, item.head,
                            item.first, item.batch, full);
        }
      }
    }
    __syncwarp();
    q_parity_ ^= 1;
  }

  // The next stage. A tile of V with partial blocks goes to the checking warps first.
  template <int Blocks>
  __device__ void LoadTile(const CUtensorMap* map, Strip strip, int kv_head, int batch,
                           bool values) {
    typename C::Info& info = s_.info[at_.stage];
    ptx::BarrierWait(Address(&s_.empty[at_.stage]), at_.parity ^ 1);
    const bool mine = lane_ < C::kStrips;
    const bool partial = __any_sync(~0u, mine && strip.words >= 0);
    const bool masked = partial || __any_sync(~0u, mine && strip.valid != 0xFFFF);
    if (masked && mine) info.strips[lane_] = strip;
    const bool checked = values && partial;
    const uint32_t check = Address(&s_.check_full[check_.stage]);
    if (checked) ptx::BarrierWait(Address(&s_.check_empty[check_.stage]), check_.parity ^ 1);
    __syncwarp();
    const uint32_t landed = checked ? check : Address(&s_.full[at_.stage]);
    if (lane_ == 0) {
      info.flags = (masked ? kMasked : kEveryKey) | (partial ? kPartial : kEveryKey);
      if (checked) s_.check_stage[check_.stage] = at_.stage;
      ptx::BarrierArriveExpect(landed, Blocks * C::kKv * 128);
    }
    const uint32_t target = ring_ + at_.stage * C::kStageBytes;
#pragma unroll 1
    for (int piece = 0; piece < p_.pieces; ++piece) {
      const int first = piece * p_.piece_rows;
      const int start = __shfl_sync(~0u, strip.start, first / kStripRows);
      if (lane_ != 0) continue;
#pragma unroll
      for (int block = 0; block < Blocks; ++block) {
        ptx::LoadImageBox(target + (block * C::kKv + first) * 128, map, block * 64, kv_head, start,
                          batch, landed);
      }
    }
    __syncwarp();
    if (checked) check_.Advance();
    at_.Advance();
  }

  const AttentionParams& p_;
  const AttentionMaps& maps_;
  Stream& s_;
  uint32_t q_, ring_;
  int worker_, lane_;
  typename C::Position at_;
  RingPosition<C::kChecks> check_;
  uint32_t q_parity_ = 0;
};

}  // namespace jaxsparse
