// The handler of jaxsparse_pruned_matmul on the CPU (contracts/pruned.toml): a 1x1 window over an
// image of one row.
#include "contracts/pruned_matmul.gen.h"
#include "cpu/ffi/pruned/decode.h"

namespace jaxsparse {
namespace {

namespace ffi = xla::ffi;

ffi::Future PrunedMatmul(ffi::ThreadPool pool, contract::pruned_matmul::Attributes attributes,
                         ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::pruned_matmul::Decode(attributes, operands, results);
  if (call.has_error()) return contract::Failed(call.error());
  PrunedArgs args = {};
  ConvGeometry& g = args.geometry;
  g.batch = g.in_h = g.out_h = g.kernel_h = g.kernel_w = g.groups = 1;
  g.stride_h = g.stride_w = g.dilation_h = g.dilation_w = g.lhs_dilation_h = g.lhs_dilation_w = 1;
  g.in_w = g.out_w = call->rows_of_x;
  g.in_c = call->n_in;
  g.out_c = call->n_out;
  return RunPruned("pruned_matmul", pool, *call, &args);
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparsePrunedMatmulCpu, jaxsparse::PrunedMatmul,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Attrs<jaxsparse::contract::pruned_matmul::Attributes>()
                                  .RemainingArgs()
                                  .RemainingRets());
