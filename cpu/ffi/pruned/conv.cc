// The handler of jaxsparse_pruned_conv on the CPU (contracts/pruned.toml).
#include "contracts/pruned_conv.gen.h"
#include "cpu/ffi/pruned/decode.h"
#include "cpu/kernels/pruned_conv/depthwise_job.h"

namespace jaxsparse {
namespace {

namespace ffi = xla::ffi;

template <class Call>
ffi::Future RunDepthwise(ffi::ThreadPool& pool, const Call& c, const ConvGeometry& geometry) {
  if (c.nothing()) return contract::Done();
  PrunedDepthwiseArgs args = {};
  args.geometry = geometry;
  FillPruned(c, &args);
  args.rows = c.tile;
  args.taps = c.entries / c.n_out;
  args.tap_of = c.indices.template as<uint16_t>();
  return RunJob<PrunedDepthwiseJob>("pruned_conv", pool, args);
}

ffi::Future PrunedConv(ffi::ThreadPool pool, contract::pruned_conv::Attributes attributes,
                       ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::pruned_conv::Decode(attributes, operands, results);
  if (call.has_error()) return contract::Failed(call.error());
  const auto& c = *call;
  PrunedArgs args = {};
  args.channels_first = c.channels_first != 0;
  args.geometry = {c.batch,          c.height,         c.width,    c.n_in,       c.out_h,
                   c.out_w,          c.n_out,          c.kernel_h, c.kernel_w,   c.stride_h,
                   c.stride_w,       c.pad_top,        c.pad_left, c.dilation_h, c.dilation_w,
                   c.lhs_dilation_h, c.lhs_dilation_w, 1};
  if (static_cast<CpuExecutor>(c.executor) == CpuExecutor::kDepthwise) {
    return RunDepthwise(pool, c, args.geometry);
  }
  return RunStrips("pruned_conv", pool, c, &args);
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparsePrunedConvCpu, jaxsparse::PrunedConv,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Attrs<jaxsparse::contract::pruned_conv::Attributes>()
                                  .RemainingArgs()
                                  .RemainingRets());
