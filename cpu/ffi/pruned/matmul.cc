// The handler of jaxsparse_pruned_matmul on the CPU (contracts/pruned.toml).
#include "contracts/pruned_matmul.gen.h"
#include "cpu/ffi/pruned/decode.h"
#include "cpu/kernels/pruned_matmul/dots_job.h"

namespace jaxsparse {
namespace {

namespace ffi = xla::ffi;

template <class Call>
ffi::Future RunDots(ffi::ThreadPool& pool, const Call& c) {
  if (c.nothing()) return contract::Done();
  PrunedDotsArgs args = {};
  FillPruned(c, &args);
  args.rows = c.rows_of_x;
  args.inputs = c.n_in;
  args.outputs = c.n_out;
  args.parts = c.parts;
  args.entries = c.n_in > 0 ? c.entries : 0;
  args.columns = c.indices.template as<uint16_t>();
  args.starts = c.starts.template as<int32_t>();
  args.bounds = c.visits.template as<int32_t>() + c.n_out;
  return RunJob<PrunedDotsJob>("pruned_matmul", pool, args);
}

// Strips compute a product as a 1x1 window over an image of one row.
ffi::Future PrunedMatmul(ffi::ThreadPool pool, contract::pruned_matmul::Attributes attributes,
                         ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::pruned_matmul::Decode(attributes, operands, results);
  if (call.has_error()) return contract::Failed(call.error());
  if (static_cast<CpuExecutor>(call->executor) == CpuExecutor::kDots) return RunDots(pool, *call);
  PrunedArgs args = {};
  ConvGeometry& g = args.geometry;
  g.batch = g.in_h = g.out_h = g.kernel_h = g.kernel_w = g.groups = 1;
  g.stride_h = g.stride_w = g.dilation_h = g.dilation_w = g.lhs_dilation_h = g.lhs_dilation_w = 1;
  g.in_w = g.out_w = call->rows_of_x;
  g.in_c = call->n_in;
  g.out_c = call->n_out;
  return RunStrips("pruned_matmul", pool, *call, &args);
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparsePrunedMatmulCpu, jaxsparse::PrunedMatmul,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Attrs<jaxsparse::contract::pruned_matmul::Attributes>()
                                  .RemainingArgs()
                                  .RemainingRets());
