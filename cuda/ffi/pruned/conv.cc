// Handlers of jaxsparse_pruned_conv on CUDA (contracts/pruned.toml).
#include "contracts/pruned_conv.gen.h"
#include "cuda/ffi/pruned/decode.h"

namespace jaxsparse {
namespace {

// The contract keeps every coordinate of a tap below 2^30.
ConvGeometry GeometryOf(const contract::pruned_conv::Call& c) {
  ConvGeometry g = {};
  g.batch = c.batch;
  g.in_h = c.height;
  g.in_w = c.width;
  g.in_c = c.n_in;
  g.out_h = c.out_h;
  g.out_w = c.out_w;
  g.out_c = c.n_out;
  g.kernel_h = static_cast<int>(c.kernel_h);
  g.kernel_w = static_cast<int>(c.kernel_w);
  g.stride_h = static_cast<int>(c.stride_h);
  g.stride_w = static_cast<int>(c.stride_w);
  g.pad_top = static_cast<int>(c.pad_top);
  g.pad_left = static_cast<int>(c.pad_left);
  g.dilation_h = static_cast<int>(c.dilation_h);
  g.dilation_w = static_cast<int>(c.dilation_w);
  g.lhs_dilation_h = static_cast<int>(c.lhs_dilation_h);
  g.lhs_dilation_w = static_cast<int>(c.lhs_dilation_w);
  g.groups = 1;
  return g;
}

ffi::Error PrunedConv(cudaStream_t stream, contract::pruned_conv::Attributes attributes,
                      ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::pruned_conv::Decode(attributes, operands, results);
  if (call.has_error()) return call.error();
  const auto& c = *call;
  PrunedArgs args = {};
  args.geometry = GeometryOf(c);
  args.image = true;
  args.channels_first = c.channels_first != 0;
  args.m = c.batch * c.out_h * c.out_w;
  args.k = c.n_in * c.kernel_h * c.kernel_w;
  return RunPruned("pruned_conv", c, args, stream);
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparsePrunedConvCudaInit, jaxsparse::InitPruned,
                              jaxsparse::BindPrunedInit());

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparsePrunedConvCuda, jaxsparse::PrunedConv,
                              jaxsparse::BindCall<jaxsparse::contract::pruned_conv::Attributes>(),
                              {xla::ffi::Traits::kCmdBufferCompatible});
