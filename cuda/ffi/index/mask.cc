// Handlers of jaxsparse_mask_index and jaxsparse_portfolio_index (docs/contract.md).
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "cuda/bits/pack.h"
#include "cuda/ffi/common.h"
#include "cuda/ffi/index/limits.h"
#include "cuda/index/portfolio_index.h"
#include "cuda/index/tile_index.h"
#include "xla/ffi/api/ffi.h"

namespace jaxsparse {
namespace {

namespace ffi = ::xla::ffi;

using Mask = ffi::BufferR4<ffi::PRED>;
using Words = ffi::ResultBufferR4<ffi::U32>;
using Scratch = ffi::ResultBufferR1<ffi::S32>;

ffi::Error Invalid(const std::string& reason) { return ffi::Error::InvalidArgument(reason); }

ffi::Error Status(cudaError_t error) { return CudaStatus("mask index", error); }

// log2 of 1, 2, 4, 8, 16 or 32.
std::optional<int32_t> SmallLog2(int64_t size) {
  for (int32_t log2 = 0; log2 <= 5; ++log2) {
    if (size == int64_t{1} << log2) return log2;
  }
  return std::nullopt;
}

bool SameImages(const Mask& mask, Words words) {
  const auto m = mask.dimensions(), w = words->dimensions();
  return m[0] == w[0] && m[1] == w[1] && m[2] == w[2] && w[3] == (m[3] + 31) / 32;
}

// What both handlers fill in alike.
PortfolioArgs MaskArgs(Mask mask, Words words, Scratch scratch) {
  const auto dims = mask.dimensions();
  PortfolioArgs args{};
  args.mask = static_cast<const uint8_t*>(mask.untyped_data());
  args.lists = dims[0];
  args.images = dims[1];
  args.height = dims[2];
  args.width = dims[3];
  args.words = words->typed_data();
  args.scratch = scratch->typed_data();
  return args;
}

cudaError_t Launch(const PortfolioArgs& args, cudaStream_t stream) {
  PortfolioTeam team{};
  const cudaError_t status = PlanPortfolio(args, &team);
  return status == cudaSuccess ? PortfolioIndex(args, team, stream) : status;
}

ffi::Error MaskIndex(cudaStream_t stream, Mask mask, Words words, ffi::ResultBufferR2<ffi::S32> ids,
                     ffi::ResultBufferR1<ffi::S32> count, ffi::ResultBufferR1<ffi::PRED> overflow,
                     Scratch scratch, int64_t tile_h, int64_t tile_w, int64_t ordered) {
  const auto dims = mask.dimensions();
  const int64_t capacity = ids->dimensions()[1];
  if (!SameImages(mask, words) || ids->dimensions()[0] != dims[0] ||
      count->dimensions()[0] != dims[0] || overflow->dimensions()[0] != dims[0]) {
    return Invalid("mask index: operands and results disagree");
  }
  if (tile_h < 1 || tile_w < 1 || tile_h > kMaxIndexAxis || tile_w > kMaxIndexAxis ||
      !IndexFits32(dims[1], dims[2], dims[3], tile_h, tile_w)) {
    return Invalid("mask index: the tile or the mask is out of range");
  }
  PortfolioArgs args = MaskArgs(mask, words, scratch);
  args.sizes = 1;
  const auto room = static_cast<int64_t>(scratch->element_count());
  const auto th_log2 = SmallLog2(tile_h), tw_log2 = SmallLog2(tile_w);
  if (th_log2 && tw_log2) {
    if (room < kPortfolioScratch) return Invalid("mask index: scratch is too small");
    args.list[0] = {*th_log2,
                    *tw_log2,
                    capacity,
                    ids->typed_data(),
                    count->typed_data(),
                    static_cast<bool*>(overflow->untyped_data())};
    return Status(Launch(args, stream));
  }
  const TileIndexArgs list{args.words,
                           dims[0],
                           dims[1],
                           dims[2],
                           dims[3],
                           tile_h,
                           tile_w,
                           capacity,
                           ordered != 0,
                           ids->typed_data(),
                           count->typed_data(),
                           static_cast<bool*>(overflow->untyped_data()),
                           args.scratch};
  if (room < TileIndexScratch(list)) return Invalid("mask index: scratch is too small");
  const cudaError_t packed =
      PackMask(args.mask, dims[0] * dims[1] * dims[2], dims[3], args.words, stream);
  return Status(packed == cudaSuccess ? TileIndex(list, stream) : packed);
}

// The results of list `t`: its ids, count and overflow; nothing where one has another shape.
std::optional<PortfolioList> ListOf(const ffi::RemainingRets& lists, int64_t t, int64_t masks) {
  auto ids = lists.get<ffi::BufferR2<ffi::S32>>(3 * t);
  auto count = lists.get<ffi::BufferR1<ffi::S32>>(3 * t + 1);
  auto overflow = lists.get<ffi::BufferR1<ffi::PRED>>(3 * t + 2);
  if (!ids.has_value() || !count.has_value() || !overflow.has_value() ||
      (*ids)->dimensions()[0] != masks || (*count)->dimensions()[0] != masks ||
      (*overflow)->dimensions()[0] != masks) {
    return std::nullopt;
  }
  return PortfolioList{0,
                       0,
                       (*ids)->dimensions()[1],
                       (*ids)->typed_data(),
                       (*count)->typed_data(),
                       static_cast<bool*>((*overflow)->untyped_data())};
}

ffi::Error Portfolio(cudaStream_t stream, Mask mask, ffi::BufferR3<ffi::F32> costs, Words words,
                     ffi::ResultBufferR1<ffi::S32> choice, Scratch scratch,
                     ffi::RemainingRets lists, int64_t tiles) {
  const auto dims = mask.dimensions();
  const auto sizes = static_cast<int64_t>(lists.size() / 3);
  if (sizes > kMaxPortfolio || lists.size() % 3 != 0 || !SameImages(mask, words) ||
      costs.dimensions()[0] != dims[0] || costs.dimensions()[1] > INT32_MAX / 5 ||
      costs.dimensions()[2] != 5 || choice->dimensions()[0] != dims[0]) {
    return Invalid("portfolio index: operands, results and attributes disagree");
  }
  if (static_cast<int64_t>(scratch->element_count()) < kPortfolioScratch) {
    return Invalid("portfolio index: scratch is too small");
  }
  PortfolioArgs args = MaskArgs(mask, words, scratch);
  args.sizes = static_cast<int32_t>(sizes);
  args.variants = static_cast<int32_t>(costs.dimensions()[1]);
  args.costs = costs.typed_data();
  args.choice = choice->typed_data();
  int64_t strip = 1;
  for (int64_t t = 0; t < sizes; ++t) {
    const auto list = ListOf(lists, t, dims[0]);
    const auto code = static_cast<int32_t>(tiles >> (8 * t) & 0xff);
    if (!list || code / 8 > 5 || code % 8 > 5) {
      return Invalid(
          "portfolio index: ids s32[L, capacity], count s32[L], overflow pred[L] for each tile up "
          "to 32 x 32");
    }
    args.list[t] = *list;
    args.list[t].th_log2 = code / 8;
    args.list[t].tw_log2 = code % 8;
    if (!IndexFits32(dims[1], dims[2], dims[3], 1 << (code / 8), 1 << (code % 8))) {
      return Invalid("portfolio index: the mask is out of range");
    }
    strip = std::max<int64_t>(strip, 1 << (code / 8));
  }
  // Rows are counted as if each image were whole strips of the highest tile.
  const int64_t padded = std::max<int64_t>((dims[2] + strip - 1) / strip, 1) * strip;
  if (!IndexFits32(dims[1], padded, dims[3], padded, std::max<int64_t>(dims[3], 1))) {
    return Invalid("portfolio index: the mask is out of range");
  }
  return Status(Launch(args, stream));
}

// Before every execution; only the first on a device does something.
ffi::Error Prepare() { return Status(PreparePortfolio()); }

}  // namespace
}  // namespace jaxsparse

namespace ffi = ::xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskIndexCuda, jaxsparse::MaskIndex,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<cudaStream_t>>()
                                  .Arg<ffi::BufferR4<ffi::PRED>>()
                                  .Ret<ffi::BufferR4<ffi::U32>>()
                                  .Ret<ffi::BufferR2<ffi::S32>>()
                                  .Ret<ffi::BufferR1<ffi::S32>>()
                                  .Ret<ffi::BufferR1<ffi::PRED>>()
                                  .Ret<ffi::BufferR1<ffi::S32>>()
                                  .Attr<int64_t>("tile_h")
                                  .Attr<int64_t>("tile_w")
                                  .Attr<int64_t>("ordered"),
                              {ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparsePortfolioIndexCuda, jaxsparse::Portfolio,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<cudaStream_t>>()
                                  .Arg<ffi::BufferR4<ffi::PRED>>()
                                  .Arg<ffi::BufferR3<ffi::F32>>()
                                  .Ret<ffi::BufferR4<ffi::U32>>()
                                  .Ret<ffi::BufferR1<ffi::S32>>()
                                  .Ret<ffi::BufferR1<ffi::S32>>()
                                  .RemainingRets()
                                  .Attr<int64_t>("tiles"),
                              {ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskIndexCudaInit, jaxsparse::Prepare,
                              ffi::Ffi::Bind<ffi::ExecutionStage::kInitialize>());
