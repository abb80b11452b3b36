// Handlers of jaxsparse_mask_index and jaxsparse_portfolio_index on CUDA (contracts/index.toml).
#include <algorithm>
#include <cstdint>
#include <optional>
#include <tuple>

#include "contracts/mask_index.gen.h"
#include "contracts/portfolio_index.gen.h"
#include "cuda/bits/pack.h"
#include "cuda/ffi/common.h"
#include "cuda/ffi/index/limits.h"
#include "cuda/index/portfolio_index.h"
#include "cuda/index/tile_index.h"

namespace jaxsparse {
namespace {

using MaskCall = contract::mask_index::Call;
using PortfolioCall = contract::portfolio_index::Call;

constexpr char kMaskOp[] = "mask_index", kPortfolioOp[] = "portfolio_index";

static_assert(std::tuple_size_v<decltype(PortfolioCall::more)> == kMaxPortfolio);

// log2 of 1, 2, 4, 8, 16 or 32.
std::optional<int32_t> SmallLog2(int64_t size) {
  for (int32_t log2 = 0; log2 <= 5; ++log2) {
    if (size == int64_t{1} << log2) return log2;
  }
  return std::nullopt;
}

// What both handlers fill in alike.
template <class Call>
PortfolioArgs MaskArgs(const Call& c) {
  PortfolioArgs args{};
  args.mask = c.mask.template as<uint8_t>();
  args.lists = c.lists;
  args.images = c.batch;
  args.height = c.height;
  args.width = c.width;
  args.words = c.mask_words.template as<uint32_t>();
  args.scratch = c.scratch.template as<int32_t>();
  return args;
}

// The results of one list; `found` has ids, count and overflow.
template <class Found>
PortfolioList ListOf(TileCode tile, int64_t capacity, const Found& found) {
  return {tile.th_log2,
          tile.tw_log2,
          capacity,
          found.ids.template as<int32_t>(),
          found.count.template as<int32_t>(),
          found.overflow.template as<bool>()};
}

cudaError_t Launch(const PortfolioArgs& args, cudaStream_t stream) {
  PortfolioTeam team{};
  const cudaError_t status = PlanPortfolio(args, &team);
  return status == cudaSuccess ? PortfolioIndex(args, team, stream) : status;
}

// The launches of jaxsparse_pack_mask and jaxsparse_tile_index.
ffi::Error InTurn(const MaskCall& c, const PortfolioArgs& args, cudaStream_t stream) {
  const PortfolioList found = ListOf({}, c.capacity, c);
  const TileIndexArgs list{args.words,  args.lists,     args.images, args.height,    args.width,
                           c.tile_h,    c.tile_w,       c.capacity,  c.ordered != 0, found.ids,
                           found.count, found.overflow, args.scratch};
  const int64_t needed = TileIndexScratch(list);
  if (c.scratch_size < needed) return TooSmall(kMaskOp, c.scratch_size, needed, "entries");
  const int64_t rows = args.lists * args.images * args.height;
  cudaError_t status = PackMask(args.mask, rows, args.width, args.words, stream);
  if (status == cudaSuccess) status = TileIndex(list, stream);
  return CudaStatus(kMaskOp, status);
}

ffi::Error MaskIndex(cudaStream_t stream, contract::mask_index::Attributes attributes,
                     ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::mask_index::Decode(attributes, operands, results);
  if (call.has_error()) return call.error();
  const MaskCall& c = *call;
  if (c.nothing()) return ffi::Error::Success();
  PortfolioArgs args = MaskArgs(c);
  const auto th_log2 = SmallLog2(c.tile_h), tw_log2 = SmallLog2(c.tile_w);
  if (!th_log2 || !tw_log2) return InTurn(c, args, stream);
  if (c.scratch_size < kPortfolioScratch) {
    return TooSmall(kMaskOp, c.scratch_size, kPortfolioScratch, "entries");
  }
  args.sizes = 1;
  args.list[0] = ListOf({*th_log2, *tw_log2}, c.capacity, c);
  return CudaStatus(kMaskOp, Launch(args, stream));
}

// Fills the lists; returns what is wrong, or nullptr.
const char* ReadLists(const PortfolioCall& c, PortfolioArgs* args) {
  int64_t strip = 1;
  for (int64_t t = 0; t < c.more_count; ++t) {
    const TileCode tile = TileCodeOf(c.tiles >> (8 * t) & 0xff);
    if (!tile.valid()) return "tiles names a side above 32";
    if (c.more[t].capacity > INT32_MAX) return "a list has room for more than 2^31 - 1 tiles";
    const int64_t th = int64_t{1} << tile.th_log2, tw = int64_t{1} << tile.tw_log2;
    if (!IndexFits32(c.batch, c.height, c.width, th, tw)) return "mask has too many tiles";
    args->list[t] = ListOf(tile, c.more[t].capacity, c.more[t]);
    strip = std::max(strip, th);
  }
  // Rows are counted as if each image were whole strips of the highest tile.
  const Checked padded = MostOf(CeilOf(c.height, strip), 1) * strip;
  const Checked whole = MostOf(c.width, 1);
  return IndexFits32(c.batch, padded, c.width, padded, whole) ? nullptr : "mask has too many rows";
}

ffi::Error Portfolio(cudaStream_t stream, contract::portfolio_index::Attributes attributes,
                     ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::portfolio_index::Decode(attributes, operands, results);
  if (call.has_error()) return call.error();
  const PortfolioCall& c = *call;
  PortfolioArgs args = MaskArgs(c);
  args.sizes = static_cast<int32_t>(c.more_count);
  args.variants = static_cast<int32_t>(c.variants);
  args.costs = c.costs.as<float>();
  args.choice = c.choice.as<int32_t>();
  if (c.more_count == 0) return Invalid(kPortfolioOp, "no list is asked for");
  if (const char* wrong = ReadLists(c, &args)) return Invalid(kPortfolioOp, wrong);
  if (c.nothing()) return ffi::Error::Success();
  return CudaStatus(kPortfolioOp, Launch(args, stream));
}

// Before every execution; only the first on a device does something.
ffi::Error Prepare() { return CudaStatus(kMaskOp, PreparePortfolio()); }

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskIndexCuda, jaxsparse::MaskIndex,
                              jaxsparse::BindCall<jaxsparse::contract::mask_index::Attributes>(),
                              {xla::ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JaxsparsePortfolioIndexCuda, jaxsparse::Portfolio,
    jaxsparse::BindCall<jaxsparse::contract::portfolio_index::Attributes>(),
    {xla::ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskIndexCudaInit, jaxsparse::Prepare,
                              jaxsparse::BindInit());
