// Handler of jaxsparse_reach_index on CUDA (contracts/index.toml).
#include <cstdint>

#include "contracts/reach_index.gen.h"
#include "cuda/ffi/common.h"
#include "cuda/ffi/index/limits.h"
#include "cuda/index/portfolio_index.h"

namespace jaxsparse {
namespace {

constexpr char kOp[] = "reach_index";

static_assert(kPortfolioScratch == 4096, "what the contracts of the index handlers say");

// Every number is below 2^30: the contract's relations.
ReachSource::Axis AxisOf(int64_t taps, int64_t stride, int64_t pad, int64_t dilation,
                         int64_t lhs_dilation) {
  return {static_cast<int32_t>(taps), static_cast<int32_t>(stride), static_cast<int32_t>(pad),
          static_cast<int32_t>(dilation), static_cast<int32_t>(lhs_dilation)};
}

ffi::Error ReachIndex(cudaStream_t stream, contract::reach_index::Attributes attributes,
                      ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::reach_index::Decode(attributes, operands, results);
  if (call.has_error()) return call.error();
  const auto& c = *call;
  const TileCode tile = TileCodeOf(c.tile);
  if (!IndexFits32(c.batch, c.height, c.width, int64_t{1} << tile.th_log2,
                   int64_t{1} << tile.tw_log2)) {
    return Invalid(kOp, "reached has too many tiles");
  }
  if (c.nothing()) return ffi::Error::Success();
  PortfolioArgs args{};
  args.lists = c.lists;
  args.images = c.batch;
  args.height = c.height;
  args.width = c.width;
  args.reach = {static_cast<const uint32_t*>(c.mask_words.data),
                c.keep.as<uint32_t>(),
                static_cast<int32_t>(c.out_h),
                static_cast<int32_t>(c.out_width),
                AxisOf(c.kernel_h, c.stride_h, c.pad_top, c.dilation_h, c.lhs_dilation_h),
                AxisOf(c.kernel_w, c.stride_w, c.pad_left, c.dilation_w, c.lhs_dilation_w)};
  args.sizes = 1;
  args.list[0] = {tile.th_log2,        tile.tw_log2,          c.capacity,
                  c.ids.as<int32_t>(), c.count.as<int32_t>(), c.overflow.as<bool>()};
  args.words = c.reached.as<uint32_t>();
  args.scratch = c.scratch.as<int32_t>();
  PortfolioTeam team{};
  const cudaError_t status = PlanPortfolio(args, &team);
  return CudaStatus(kOp, status == cudaSuccess ? PortfolioIndex(args, team, stream) : status);
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseReachIndexCuda, jaxsparse::ReachIndex,
                              jaxsparse::BindCall<jaxsparse::contract::reach_index::Attributes>(),
                              {xla::ffi::Traits::kCmdBufferCompatible});
