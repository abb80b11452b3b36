// Grid-aligned tile lists. The design is in lists.cuh; an entry is the tile's id.
#include "cuda/index/tile_index.h"

#include "cuda/index/lists.cuh"

namespace jaxsparse {
namespace {

struct EmitId {
  static constexpr int kFields = 1;
  int32_t* ids = nullptr;

  __device__ void Bind(int64_t /*list*/, int32_t* list_ids) { ids = list_ids; }
  __device__ void operator()(int32_t place, int32_t id) const { ids[place] = id; }
};

TileGrid GridOf(const TileIndexArgs& args) {
  return TileGrid(args.images, static_cast<int32_t>(args.height), static_cast<int32_t>(args.width),
                  static_cast<int32_t>(args.tile_h), static_cast<int32_t>(args.tile_w));
}

}  // namespace

int64_t TileIndexScratch(const TileIndexArgs& args) {
  if (!args.ordered) return 0;
  const Partition part(static_cast<int32_t>(GridOf(args).items()));
  return args.lists * (static_cast<int64_t>(part.items) + part.blocks);
}

cudaError_t TileIndex(const TileIndexArgs& args, cudaStream_t stream) {
  const TileLists lists{args.words, GridOf(args), args.lists,    args.capacity,
                        args.ids,   args.count,   args.overflow, args.scratch};
  return LaunchLists(lists, args.ordered, EmitId{}, stream);
}

}  // namespace jaxsparse
