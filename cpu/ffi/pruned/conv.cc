// The handler of jaxsparse_pruned_conv on the CPU (contracts/pruned.toml).
#include "contracts/pruned_conv.gen.h"
#include "cpu/ffi/pruned/decode.h"

namespace jaxsparse {
namespace {

namespace ffi = xla::ffi;

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
  return RunPruned("pruned_conv", pool, c, &args);
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparsePrunedConvCpu, jaxsparse::PrunedConv,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Attrs<jaxsparse::contract::pruned_conv::Attributes>()
                                  .RemainingArgs()
                                  .RemainingRets());
