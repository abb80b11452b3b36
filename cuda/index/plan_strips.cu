// How a mask is cut into blocks' shares and which warps build which list.
#include <algorithm>

#include "cuda/index/strips.h"

namespace jaxsparse {
namespace {

// Gives every list a share of a block's warps by what it has to do, in instructions a word of its
// tile rows: a test of as many rows as a tile has, and stores of as many tiles as begin in a word.
void ShareWarps(int32_t warps, StripArgs* args) {
  int cost[kMaxPortfolio], left = warps - args->sizes;
  for (int t = 0; t < args->sizes; ++t) {
    const StripList& list = args->list[t];
    cost[t] = (90 + (360 >> list.tw_log2) + (4 << list.th_log2))
              << (args->strip_log2 - list.th_log2);
    args->list[t].warps = 1;
  }
  for (; left > 0; --left) {
    int most = 0;
    for (int t = 1; t < args->sizes; ++t) {
      const int64_t ours = int64_t{cost[t]} * args->list[most].warps;
      if (ours > int64_t{cost[most]} * args->list[t].warps) most = t;
    }
    ++args->list[most].warps;
  }
  for (int t = 1; t < args->sizes; ++t) {
    args->list[t].first_warp = args->list[t - 1].first_warp + args->list[t - 1].warps;
  }
  for (int t = 0; t < args->sizes; ++t) {
    StripList& list = args->list[t];
    const int32_t words = (args->per_block << (args->strip_log2 - list.th_log2)) * args->chunk;
    list.each = (words + list.warps - 1) / list.warps;
    for (int w = 0; w < list.warps; ++w) {
      const int warp = list.first_warp + w;
      args->list_of_warp[warp / 16] |= static_cast<uint64_t>(t) << (4 * (warp % 16));
    }
  }
}

// A list as the kernel sees it.
StripList ToList(const PortfolioArgs& args, const PortfolioList& list) {
  const int64_t th = int64_t{1} << list.th_log2, tw = int64_t{1} << list.tw_log2;
  uint32_t starts = 0;
  for (int64_t p = 0; p < 32; p += tw) starts |= 1u << p;
  StripList out{};
  out.th_log2 = list.th_log2;
  out.tw_log2 = list.tw_log2;
  out.rows = static_cast<int32_t>((args.height + th - 1) / th);
  out.cols = static_cast<int32_t>((args.width + tw - 1) / tw);
  out.tile_starts = starts;
  out.capacity = static_cast<uint32_t>(list.capacity);
  out.ids = list.ids;
  out.count = list.count;
  out.overflow = list.overflow;
  return out;
}

// The strips, and each block's share of them: in shared memory where `room` bytes suffice.
void CutStrips(const PortfolioArgs& args, int64_t room, StripArgs* out) {
  const int64_t strip = int64_t{1} << out->strip_log2, blocks = out->blocks;
  const bool empty = args.height == 0 || args.width == 0;
  out->strips = static_cast<int32_t>(std::max<int64_t>((args.height + strip - 1) / strip, 1));
  const int64_t all = empty ? 0 : args.images * out->strips;
  const int64_t words = std::max(out->row_words, 1);
  const int64_t wanted = all == 0 ? 1 : std::max<int64_t>(blocks / all, 1);  // columns of blocks
  out->all_strips = static_cast<int32_t>(all);
  out->chunk = static_cast<int32_t>((words + wanted - 1) / wanted);
  out->chunks = static_cast<int32_t>((words + out->chunk - 1) / out->chunk);
  out->per_block = std::max<int32_t>(static_cast<int32_t>((all + blocks - 1) / blocks), 1);
  out->linear = out->chunks == 1;
  out->by_chunk = Division(static_cast<uint32_t>(out->chunk));
  out->by_chunks = Division(static_cast<uint32_t>(out->chunks));
  out->by_strips = Division(static_cast<uint32_t>(out->strips));
  out->by_blocks = Division(static_cast<uint32_t>(blocks));
  out->resident = out->block_bytes() <= room;
}

}  // namespace

StripArgs PlanStrips(const PortfolioArgs& args, int32_t blocks, int32_t warps, int64_t room) {
  StripArgs out{};
  out.mask = args.mask;
  out.reach = args.reach;
  out.images = args.images;
  out.by_height = Division(static_cast<uint32_t>(std::max<int64_t>(args.height, 1)));
  out.words = args.words;
  out.lists = args.lists;
  out.rows = args.images * args.height;
  out.mask_bytes = args.lists * out.rows * args.width;
  out.height = static_cast<int32_t>(args.height);
  out.width = static_cast<int32_t>(args.width);
  out.row_words = static_cast<int32_t>((args.width + 31) / 32);
  out.wide = (args.width | reinterpret_cast<uintptr_t>(args.mask)) % 16 == 0;
  out.sizes = args.sizes;
  out.blocks = blocks;
  for (int32_t t = 0; t < args.sizes; ++t) {
    out.list[t] = ToList(args, args.list[t]);
    out.strip_log2 = std::max(out.strip_log2, args.list[t].th_log2);
  }
  CutStrips(args, room, &out);
  ShareWarps(warps, &out);
  out.costs = args.costs;
  out.variants = args.variants;
  out.choice = args.choice;
  out.scratch = args.scratch;
  return out;
}

}  // namespace jaxsparse
