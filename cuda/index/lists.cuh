// The kernels that turn a packed mask into lists, for any kind of entry (`Emit`): two launches,
// ordered or not; one for a small list.
//
// Floor: words read once (4 M pixels: 0.5 MB), 4 bytes written per tile; at 64 K tiles both take
// well under 1 us, so the floor is the launches, about 1 us each in a graph.
//
// Tile: a block of 128 threads, a thread per item (32 pixel columns of one tile row). Unordered:
// Clear (every entry -1, counts 0), then List: one atomic addition per block. Ordered: Count (bits
// and block sums go to scratch), then ListOrdered: each block adds up the sums before it. Small:
// one block that knows every place. None waits for another block.
//
// Measured on an H200, in a graph of 20 calls, us, unordered / ordered: 64 K tiles of 4x4 4.0 /
// 4.3, of 8x8 4.1 / 4.5, of 1x1 5.4 / 5.6; 131 K tiles of 4x8 4.3 / 4.8; 4 M tiles of 1x1 12.5 /
// 12; small: 1 K tiles of 4x4 2.6, 4 K tiles 3.0, 1,600 tiles of 1x1 4.0. What is above the
// launches is one chain of latencies: load, sum, addition, store.
#pragma once

#include "cuda/index/compact.cuh"

namespace jaxsparse {

// `lists` independent masks of one shape and their lists.
struct TileLists {
  const uint32_t* words;  // [lists, grid.list_words()]
  TileGrid grid;
  int64_t lists, capacity;
  int32_t* ids;  // [lists, capacity, Emit::kFields]
  int32_t* count;
  bool* overflow;
  int32_t* scratch;  // ordered: [lists, items + blocks]
};

// The block's list and its place in it.
struct BlockPlace {
  int64_t list;
  int32_t block, first_item;

  __device__ explicit BlockPlace(const Partition& part)
      : list(blockIdx.x / part.blocks),
        block(blockIdx.x % part.blocks),
        first_item(block * part.steps * Partition::kThreads + threadIdx.x) {}
};

static __global__ void __launch_bounds__(Partition::kThreads)
    ClearLists(int64_t lists, int64_t entries, int32_t* ids, int32_t* count, bool* overflow) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (int64_t i = first; i < entries; i += stride) ids[i] = -1;
  for (int64_t i = first; i < lists; i += stride) {
    count[i] = 0;
    overflow[i] = false;
  }
}

template <class Emit>
static __global__ void __launch_bounds__(Partition::kThreads)
    List(TileLists args, Partition part, Emit emit) {
  const BlockPlace at(part);
  const TileBits tiles(args.words + at.list * args.grid.list_words(), args.grid);
  const Compact compact(args.capacity, args.grid.span_log2);
  emit.Bind(at.list, args.ids + at.list * args.capacity * Emit::kFields);
  for (int32_t step = 0, item = at.first_item; step < part.steps;
       ++step, item += Partition::kThreads) {
    const TileWord word = item < part.items ? tiles.Load(item) : TileWord{0u, 0};
    const auto sum = BlockSum<Partition::kThreads>::Exclusive(__popc(word.bits));
    const int32_t base = compact.Reserve(sum.total, args.count + at.list, args.overflow + at.list);
    compact.Store(word, base + sum.before, emit);
  }
}

static __global__ void __launch_bounds__(Partition::kThreads)
    CountTiles(TileLists args, Partition part) {
  const BlockPlace at(part);
  const TileBits tiles(args.words + at.list * args.grid.list_words(), args.grid);
  int32_t* scratch = args.scratch + at.list * (static_cast<int64_t>(part.items) + part.blocks);
  int32_t sum = 0;
  for (int32_t step = 0, item = at.first_item; step < part.steps && item < part.items;
       ++step, item += Partition::kThreads) {
    const uint32_t bits = tiles.Load(item).bits;
    scratch[item] = static_cast<int32_t>(bits);
    sum += __popc(bits);
  }
  const int32_t total = BlockSum<Partition::kThreads>::Exclusive(sum).total;
  if (threadIdx.x == 0) scratch[part.items + at.block] = total;
}

template <class Emit>
static __global__ void __launch_bounds__(Partition::kThreads)
    ListOrdered(TileLists args, Partition part, Emit emit) {
  const BlockPlace at(part);
  const TileBits tiles(args.words + at.list * args.grid.list_words(), args.grid);
  const Compact compact(args.capacity, args.grid.span_log2);
  const int32_t* scratch =
      args.scratch + at.list * (static_cast<int64_t>(part.items) + part.blocks);
  int32_t* ids = args.ids + at.list * args.capacity * Emit::kFields;
  emit.Bind(at.list, ids);
  int32_t before = 0, after = 0;
  for (int32_t b = threadIdx.x; b < part.blocks; b += Partition::kThreads) {
    (b < at.block ? before : after) += scratch[part.items + b];
  }
  int32_t base = BlockSum<Partition::kThreads>::Exclusive(before).total;
  const int32_t total = base + BlockSum<Partition::kThreads>::Exclusive(after).total;
  for (int32_t step = 0, item = at.first_item; step < part.steps;
       ++step, item += Partition::kThreads) {
    TileWord word{0u, 0};
    if (item < part.items) {
      word = {static_cast<uint32_t>(scratch[item]), tiles.FirstId(item)};
    }
    const auto sum = BlockSum<Partition::kThreads>::Exclusive(__popc(word.bits));
    compact.Store(word, base + sum.before, emit);
    base += sum.total;
  }
  const int64_t threads = static_cast<int64_t>(part.blocks) * Partition::kThreads;
  const int64_t end = args.capacity * Emit::kFields;
  for (int64_t i = static_cast<int64_t>(total) * Emit::kFields + at.block * Partition::kThreads +
                   threadIdx.x;
       i < end; i += threads) {
    ids[i] = -1;
  }
  if (at.block == 0 && threadIdx.x == 0) {
    args.count[at.list] = total;
    args.overflow[at.list] = total > args.capacity;
  }
}

// A list of few items: one block, which knows every place, so one launch gives either order.
template <class Emit>
static __global__ void __launch_bounds__(Partition::kSmallBlock)
    ListSmall(TileLists args, int32_t items, Emit emit) {
  const int64_t list = blockIdx.x;
  const TileBits tiles(args.words + list * args.grid.list_words(), args.grid);
  const Compact compact(args.capacity, args.grid.span_log2);
  int32_t* ids = args.ids + list * args.capacity * Emit::kFields;
  emit.Bind(list, ids);
  const int32_t item = threadIdx.x;
  const TileWord word = item < items ? tiles.Load(item) : TileWord{0u, 0};
  const auto sum = BlockSum<Partition::kSmallBlock>::Exclusive(__popc(word.bits));
  compact.Store(word, sum.before, emit);
  const int32_t total = sum.total;
  const int64_t end = args.capacity * Emit::kFields;
  for (int64_t i = static_cast<int64_t>(total) * Emit::kFields + threadIdx.x; i < end;
       i += Partition::kSmallBlock) {
    ids[i] = -1;
  }
  if (threadIdx.x == 0) {
    args.count[list] = total;
    args.overflow[list] = total > args.capacity;
  }
}

// One launch for a small list (an empty one too), two for others.
template <class Emit>
cudaError_t LaunchLists(const TileLists& args, bool ordered, Emit emit, cudaStream_t stream) {
  const Partition part(static_cast<int32_t>(args.grid.items()));
  const unsigned blocks = static_cast<unsigned>(args.lists * part.blocks);
  if (args.lists == 0) return cudaSuccess;
  if (part.items <= Partition::kSmallBlock &&
      (blocks == 0 || args.capacity * Emit::kFields <= Partition::kSmallEntries)) {
    ListSmall<<<static_cast<unsigned>(args.lists), Partition::kSmallBlock, 0, stream>>>(
        args, part.items, emit);
  } else if (ordered) {
    CountTiles<<<blocks, Partition::kThreads, 0, stream>>>(args, part);
    ListOrdered<<<blocks, Partition::kThreads, 0, stream>>>(args, part, emit);
  } else {
    const int64_t entries = args.lists * args.capacity * Emit::kFields;
    const int64_t clear = (entries > args.lists ? entries : args.lists) / Partition::kThreads + 1;
    ClearLists<<<static_cast<unsigned>(clear < 2048 ? clear : 2048), Partition::kThreads, 0,
                 stream>>>(args.lists, entries, args.ids, args.count, args.overflow);
    List<<<blocks, Partition::kThreads, 0, stream>>>(args, part, emit);
  }
  return cudaGetLastError();
}

}  // namespace jaxsparse
