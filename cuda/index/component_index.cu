// Tiles placed per connected component: each component has its own tile grid, from the corner of
// its bounding box.
//
// Floor: about 3 reads and 2 writes of a 4-byte label per pixel: 1 M pixels move 20 MB, 5 us at 4.3
// TB/s; predicted a few times that for chains of labels and six launches. It is for masks that are
// reused.
//
// Measured on an H200, in a graph of 20 calls, us: 40x40 17-37, 256x256 25-66, 1024x1024 55-137,
// 2048x2048 163-438 (random pixels of density .02 the least, .4 the most, a full mask between):
// atomics on long chains of labels, not bytes.
//
// Tile: a warp per word of 32 pixels. Start: a pixel points at the first pixel of its run in the
// word. Merge: runs are joined with neighbours, skipping those that another pixel joins. Flatten:
// every pixel points at its root, run starts lower the root's left bound. Represent: a bit for each
// pixel that is the first of its component in its tile; these words then go through the same
// launches as a grid of single pixels.
#include "cuda/index/label.cuh"
#include "cuda/index/lists.cuh"
#include "cuda/index/tile_index.h"

namespace jaxsparse {
namespace {

constexpr int kThreads = 256;

// The labelled lists: for each list labels[pixels] and, at roots, left[pixels].
struct Labels {
  PixelGrid grid;
  int32_t tile_h, tile_w;
  int32_t* labels;
  int32_t* left;
  uint32_t* first;  // [all words]: pixels that are the first of their tile

  __device__ int32_t* Of(int32_t* array, int64_t list) const {
    return array + list * grid.pixels();
  }
  __device__ int64_t Word() const {
    return (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / 32;
  }
};

__global__ void __launch_bounds__(kThreads) Start(Labels args) {
  if (args.Word() >= args.grid.all_words()) return;
  const Pixel at(args.grid, args.Word());
  if (at.column >= args.grid.width) return;
  const uint32_t word = Bits(args.grid, at.list).Word(at.row, at.w);
  const uint32_t gaps = ~word & ((1u << at.lane) - 1u);  // inactive pixels to the left in the word
  const int32_t run = 32 - __clz(static_cast<int>(gaps));
  const int32_t pixel = at.index(args.grid);
  const bool active = word >> at.lane & 1u;
  args.Of(args.labels, at.list)[pixel] = active ? pixel - at.lane + run : -1;
  args.Of(args.left, at.list)[pixel] = at.column;
}

__global__ void __launch_bounds__(kThreads) Merge(Labels args) {
  if (args.Word() >= args.grid.all_words()) return;
  const Pixel at(args.grid, args.Word());
  const Bits bits(args.grid, at.list);
  const uint32_t self = bits.Word(at.row, at.w), west = bits.Left(at.row, at.w);
  const uint32_t east = bits.Right(at.row, at.w);
  const bool top = at.row % args.grid.height == 0;
  const uint32_t north = top ? 0 : bits.Word(at.row - 1, at.w);
  const uint32_t north_west = top ? 0 : bits.Left(at.row - 1, at.w);
  const uint32_t north_east = top ? 0 : bits.Right(at.row - 1, at.w);
  const auto mine = [&](uint32_t lanes) { return lanes >> at.lane & 1u; };
  const Forest forest(args.Of(args.labels, at.list));
  const int32_t pixel = at.index(args.grid), above = pixel - args.grid.width;
  if (mine(self & west) && at.lane == 0) forest.Union(pixel, pixel - 1);
  if (mine(self & north & ~(west & north_west))) forest.Union(pixel, above);
  if (mine(self & ~north & ~west & north_west)) forest.Union(pixel, above - 1);
  if (mine(self & ~north & ~east & north_east)) forest.Union(pixel, above + 1);
}

__global__ void __launch_bounds__(kThreads) Flatten(Labels args) {
  if (args.Word() >= args.grid.all_words()) return;
  const Pixel at(args.grid, args.Word());
  const Bits bits(args.grid, at.list);
  const uint32_t self = bits.Word(at.row, at.w);
  if (!(self >> at.lane & 1u)) return;
  int32_t* labels = args.Of(args.labels, at.list);
  const int32_t pixel = at.index(args.grid), root = Forest(labels).Find(pixel);
  labels[pixel] = root;
  const bool run_start = !(bits.Left(at.row, at.w) >> at.lane & 1u);
  if (run_start) atomicMin(args.Of(args.left, at.list) + root, at.column);
}

// The tile of a labelled pixel, in rows of the list and columns.
struct ComponentTile {
  int32_t root, top, left;

  __device__ ComponentTile(const Labels& args, int64_t list, int32_t row, int32_t column) {
    root = args.Of(args.labels, list)[row * args.grid.width + column];
    const int32_t root_row = root / args.grid.width;
    const int32_t root_left = args.Of(args.left, list)[root];
    top = row - (row - root_row) % args.tile_h;
    left = column - (column - root_left) % args.tile_w;
  }
};

// Whether a row's pixels [begin, end) hold one of component `root`: one label per run of active
// pixels.
__device__ bool HoldsComponent(const Labels& args, const Bits& bits, int64_t list, int32_t row,
                               int32_t begin, int32_t end, int32_t root) {
  const int32_t* labels = args.Of(args.labels, list) + static_cast<int64_t>(row) * args.grid.width;
  for (int32_t x = begin; x < end; x = 32 * (x / 32 + 1)) {
    const int32_t length = min(end, 32 * (x / 32 + 1)) - x;
    uint32_t run = (bits.Word(row, x / 32) >> (x % 32)) & (~0u >> (32 - length));
    while (run != 0) {
      if (labels[x + __ffs(static_cast<int>(run)) - 1] == root) return true;
      run &= run + (run & (0u - run));
    }
  }
  return false;
}

__global__ void __launch_bounds__(kThreads) Represent(Labels args) {
  if (args.Word() >= args.grid.all_words()) return;
  const Pixel at(args.grid, args.Word());
  const Bits bits(args.grid, at.list);
  bool first = false;
  if (bits.Word(at.row, at.w) >> at.lane & 1u) {
    const ComponentTile tile(args, at.list, at.row, at.column);
    const int32_t end = static_cast<int32_t>(
        min(static_cast<int64_t>(tile.left) + args.tile_w, static_cast<int64_t>(args.grid.width)));
    first = !HoldsComponent(args, bits, at.list, at.row, tile.left, at.column, tile.root);
    for (int32_t row = at.row - 1; first && row >= tile.top; --row) {
      first = !HoldsComponent(args, bits, at.list, row, tile.left, end, tile.root);
    }
  }
  const uint32_t word = __ballot_sync(~0u, first);
  if (at.lane == 0) args.first[at.word] = word;
}

struct EmitOrigin {
  static constexpr int kFields = 3;
  Labels labels;
  int64_t list = 0;
  int32_t* ids = nullptr;

  __device__ void Bind(int64_t to_list, int32_t* list_ids) {
    list = to_list;
    ids = list_ids;
  }
  __device__ void operator()(int32_t place, int32_t pixel) const {
    const int32_t row = pixel / labels.grid.width, column = pixel - row * labels.grid.width;
    const ComponentTile tile(labels, list, row, column);
    int32_t* entry = ids + kFields * static_cast<int64_t>(place);
    entry[0] = row / labels.grid.height;
    entry[1] = tile.top - entry[0] * labels.grid.height;
    entry[2] = tile.left;
  }
};

TileGrid SinglePixels(const TileIndexArgs& args) {
  return TileGrid(args.images, static_cast<int32_t>(args.height), static_cast<int32_t>(args.width),
                  1, 1);
}

}  // namespace

int64_t ComponentIndexScratch(const TileIndexArgs& args) {
  const TileGrid grid = SinglePixels(args);
  const Partition part(static_cast<int32_t>(grid.items()));
  const int64_t pixels = args.images * args.height * args.width;
  return args.lists *
         (2 * pixels + grid.list_words() + (args.ordered ? part.items + part.blocks : 0));
}

cudaError_t ComponentIndex(const TileIndexArgs& args, cudaStream_t stream) {
  const TileGrid grid = SinglePixels(args);
  const PixelGrid pixels{args.words,  args.lists, static_cast<int32_t>(args.images * args.height),
                         grid.height, grid.width, grid.words};
  int32_t* labels = args.scratch;
  int32_t* left = labels + args.lists * pixels.pixels();
  int32_t* first = left + args.lists * pixels.pixels();
  const Labels state{
      pixels, static_cast<int32_t>(args.tile_h), static_cast<int32_t>(args.tile_w), labels,
      left,   reinterpret_cast<uint32_t*>(first)};
  if (const int64_t words = pixels.all_words(); words > 0) {
    const unsigned blocks = static_cast<unsigned>((32 * words + kThreads - 1) / kThreads);
    Start<<<blocks, kThreads, 0, stream>>>(state);
    Merge<<<blocks, kThreads, 0, stream>>>(state);
    Flatten<<<blocks, kThreads, 0, stream>>>(state);
    Represent<<<blocks, kThreads, 0, stream>>>(state);
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  }
  const TileLists lists{state.first, grid,       args.lists,    args.capacity,
                        args.ids,    args.count, args.overflow, first + pixels.all_words()};
  return LaunchLists(lists, args.ordered, EmitOrigin{state}, stream);
}

}  // namespace jaxsparse
