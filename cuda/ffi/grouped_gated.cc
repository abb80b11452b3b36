// Handler of jaxsparse_grouped_gated on CUDA (contracts/grouped_matmul.toml). Its kernels are
// prepared with those of jaxsparse_grouped_matmul.
#include "contracts/grouped_gated.gen.h"
#include "cuda/ffi/common.h"
#include "cuda/kernels/grouped_matmul/wgmma/gated.h"

namespace jaxsparse {
namespace {

constexpr char kOp[] = "grouped_gated";

ffi::Error GroupedGated(cudaStream_t stream, contract::grouped_gated::Attributes attributes,
                        ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::grouped_gated::Decode(attributes, operands, results);
  if (call.has_error()) return call.error();
  const auto& c = *call;
  if (c.nothing()) return ffi::Error::Success();
  if (c.depth == 0 || c.groups == 0 || c.lhs_rows == 0) {
    const size_t bytes = static_cast<size_t>(c.out.bytes());
    return CudaStatus(kOp, cudaMemsetAsync(c.out.data, 0, bytes, stream));
  }
  GroupedGatedArgs args = {};
  GroupedMatmulArgs& a = args.product;
  a.shape = {c.lhs_rows, c.depth, c.outputs, c.groups, c.sorted_rows, c.sorted_rows};
  a.in_type = ToDType(c.lhs.type);
  a.out_type = ToDType(c.out.type);
  a.index = {c.group_sizes.as<int32_t>(), c.gather.as<int32_t>(), nullptr, nullptr};
  a.lhs = c.lhs.data;
  a.rhs = c.gate.data;
  args.up = c.up.data;
  a.out = c.out.data;
  a.scratch = c.scratch.data;
  a.scratch_bytes = c.scratch_bytes;
  if (const char* reason = GroupedGatedReason(args)) return Invalid(kOp, reason);
  const int64_t needed = GroupedGatedScratchBytes(args);
  if (c.scratch_bytes < needed) return TooSmall(kOp, c.scratch_bytes, needed, "bytes");
  return CudaStatus(kOp, LaunchGroupedGated(args, stream));
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseGroupedGatedCuda, jaxsparse::GroupedGated,
                              jaxsparse::BindCall<jaxsparse::contract::grouped_gated::Attributes>(),
                              {xla::ffi::Traits::kCmdBufferCompatible});
