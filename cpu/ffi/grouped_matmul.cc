// The handlers of jaxsparse_grouped_matmul and jaxsparse_grouped_matmul_drhs on the CPU
// (contracts/grouped_matmul.toml). Products are float32 at either precision.
#include "contracts/grouped_matmul.gen.h"
#include "contracts/grouped_matmul_drhs.gen.h"
#include "cpu/ffi/dtype.h"
#include "cpu/ffi/run_job.h"
#include "cpu/kernels/grouped_matmul/args.h"
#include "cpu/kernels/grouped_matmul/drhs_job.h"
#include "cpu/kernels/grouped_matmul/job.h"

namespace jaxsparse {
namespace {

namespace ffi = xla::ffi;

ffi::Future GroupedMatmul(ffi::ThreadPool pool, contract::grouped_matmul::Attributes attributes,
                          ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::grouped_matmul::Decode(attributes, operands, results);
  if (call.has_error()) return contract::Failed(call.error());
  const auto& c = *call;
  if (c.nothing()) return contract::Done();
  GroupedMatmulArgs args = {};
  args.shape = {c.lhs_rows, c.depth, c.outputs, c.groups, c.sorted_rows, c.out_rows};
  args.in_type = ToDType(c.lhs.type);
  args.out_type = ToDType(c.out.type);
  args.transpose_rhs = c.transpose_rhs;
  args.variant = c.variant;
  args.lhs = c.lhs.data;
  args.rhs = c.rhs.data;
  args.sizes = c.group_sizes.as<int32_t>();
  args.gather = c.gather.as<int32_t>();
  args.scatter = c.scatters ? static_cast<const int32_t*>(c.scatter.data) : nullptr;
  args.row_weights = c.row_weights.as<float>();
  args.out = c.out.data;
  args.scratch = c.scratch.data;
  args.scratch_bytes = c.scratch_bytes;
  return RunJob<GroupedMatmulJob>("grouped_matmul", pool, args);
}

ffi::Future GroupedDrhs(ffi::ThreadPool pool, contract::grouped_matmul_drhs::Attributes attributes,
                        ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::grouped_matmul_drhs::Decode(attributes, operands, results);
  if (call.has_error()) return contract::Failed(call.error());
  const auto& c = *call;
  if (c.nothing()) return contract::Done();
  GroupedDrhsArgs args = {};
  args.shape = {c.lhs_rows, c.depth, c.outputs, c.groups, c.sorted_rows, c.gy_rows};
  args.type = ToDType(c.lhs.type);
  args.out_type = ToDType(c.drhs.type);
  args.lhs = c.lhs.data;
  args.gy = c.gy.data;
  args.sizes = c.group_sizes.as<int32_t>();
  args.gather = c.gather.as<int32_t>();
  args.scatter = c.scatter.as<int32_t>();
  args.row_weights = c.row_weights.as<float>();
  args.drhs = c.drhs.data;
  args.scratch = c.scratch.data;
  args.scratch_bytes = c.scratch_bytes;
  return RunJob<GroupedDrhsJob>("grouped_matmul_drhs", pool, args);
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseGroupedMatmulCpu, jaxsparse::GroupedMatmul,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Attrs<jaxsparse::contract::grouped_matmul::Attributes>()
                                  .RemainingArgs()
                                  .RemainingRets());

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseGroupedMatmulDrhsCpu, jaxsparse::GroupedDrhs,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Attrs<jaxsparse::contract::grouped_matmul_drhs::Attributes>()
                                  .RemainingArgs()
                                  .RemainingRets());
