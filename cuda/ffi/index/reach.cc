// Handler of jaxsparse_reach_index (docs/contract.md).
#include <cstdint>
#include <cstdlib>

#include "cuda/ffi/common.h"
#include "cuda/ffi/index/limits.h"
#include "cuda/index/portfolio_index.h"
#include "xla/ffi/api/ffi.h"

namespace jaxsparse {
namespace {

namespace ffi = ::xla::ffi;

constexpr const char* kOp = "reach index";

// Whether the kernel's 32-bit coordinates suffice along one axis.
bool AxisFits(const ReachSource::Axis& axis, int64_t size, int64_t out_size) {
  if (axis.taps < 0 || axis.stride < 1 || axis.dilation < 1 || axis.lhs_dilation < 1 ||
      (axis.stride > 1 && axis.lhs_dilation > 1)) {
    return false;
  }
  const int64_t taps = int64_t{axis.taps} * axis.dilation;
  const int64_t in = (size + 32) * axis.lhs_dilation, out = out_size * axis.stride;
  return in + out + taps + std::abs(int64_t{axis.pad}) < kMaxIndexAxis;
}

ffi::Error ReachIndex(cudaStream_t stream, ffi::BufferR4<ffi::U32> words, ffi::AnyBuffer keep,
                      ffi::ResultBufferR4<ffi::U32> out, ffi::ResultBufferR2<ffi::S32> ids,
                      ffi::ResultBufferR1<ffi::S32> count, ffi::ResultBufferR1<ffi::PRED> overflow,
                      ffi::ResultBufferR1<ffi::S32> scratch, ffi::Dictionary attributes) {
  bool known = true;
  const auto attribute = [&](const char* name) {
    const auto value = attributes.get<int64_t>(name);
    known = known && value.has_value() && *value >= INT32_MIN && *value <= INT32_MAX;
    return known ? static_cast<int32_t>(*value) : 0;
  };
  const ReachSource::Axis rows{attribute("kernel_h"), attribute("stride_h"), attribute("pad_top"),
                               attribute("dilation_h"), attribute("lhs_dilation_h")};
  const ReachSource::Axis columns{attribute("kernel_w"), attribute("stride_w"),
                                  attribute("pad_left"), attribute("dilation_w"),
                                  attribute("lhs_dilation_w")};
  const int32_t width = attribute("width"), out_width = attribute("out_width");
  const int32_t tile = attribute("tile");
  const auto from = words.dimensions(), to = out->dimensions();
  const int64_t th_log2 = tile / 8, tw_log2 = tile % 8;
  if (!known || width < 0 || out_width < 0 || from[0] != to[0] || from[1] != to[1] ||
      from[3] != (int64_t{out_width} + 31) / 32 || to[3] != (int64_t{width} + 31) / 32 ||
      ids->dimensions()[0] != to[0] || count->dimensions()[0] != to[0] ||
      overflow->dimensions()[0] != to[0] ||
      (keep.element_count() != 0 &&
       (keep.element_type() != ffi::U32 || keep.element_count() != out->element_count()))) {
    return Invalid(kOp, "operands, results and attributes disagree");
  }
  if (tile < 0 || th_log2 > 5 || tw_log2 > 5 ||
      !IndexFits32(to[1], to[2], width, int64_t{1} << th_log2, int64_t{1} << tw_log2) ||
      !IndexFits32(from[1], from[2], out_width, 1, 1) || !AxisFits(rows, to[2], from[2]) ||
      !AxisFits(columns, width, out_width)) {
    return Invalid(kOp, "the tile, the window or the mask is out of range");
  }
  if (static_cast<int64_t>(scratch->element_count()) < kPortfolioScratch) {
    return Invalid(kOp, "scratch is too small");
  }
  PortfolioArgs args{};
  args.lists = to[0];
  args.images = to[1];
  args.height = to[2];
  args.width = width;
  args.reach = {
      words.typed_data(),
      keep.element_count() == 0 ? nullptr : static_cast<const uint32_t*>(keep.untyped_data()),
      static_cast<int32_t>(from[2]),
      out_width,
      rows,
      columns};
  args.sizes = 1;
  args.list[0] = {static_cast<int32_t>(th_log2), static_cast<int32_t>(tw_log2),
                  ids->dimensions()[1],          ids->typed_data(),
                  count->typed_data(),           static_cast<bool*>(overflow->untyped_data())};
  args.words = out->typed_data();
  args.scratch = scratch->typed_data();
  PortfolioTeam team{};
  const cudaError_t status = PlanPortfolio(args, &team);
  return CudaStatus(kOp, status == cudaSuccess ? PortfolioIndex(args, team, stream) : status);
}

}  // namespace
}  // namespace jaxsparse

namespace ffi = ::xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseReachIndexCuda, jaxsparse::ReachIndex,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<cudaStream_t>>()
                                  .Arg<ffi::BufferR4<ffi::U32>>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::BufferR4<ffi::U32>>()
                                  .Ret<ffi::BufferR2<ffi::S32>>()
                                  .Ret<ffi::BufferR1<ffi::S32>>()
                                  .Ret<ffi::BufferR1<ffi::PRED>>()
                                  .Ret<ffi::BufferR1<ffi::S32>>()
                                  .Attrs(),
                              {ffi::Traits::kCmdBufferCompatible});
