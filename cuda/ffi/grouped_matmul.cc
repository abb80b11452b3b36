// Handlers of jaxsparse_grouped_matmul and jaxsparse_grouped_matmul_drhs on CUDA
// (contracts/grouped_matmul.toml): one kernel family.
#include "contracts/grouped_matmul.gen.h"
#include "contracts/grouped_matmul_drhs.gen.h"
#include "cuda/core/device.h"
#include "cuda/ffi/common.h"
#include "cuda/kernels/grouped_matmul/args.h"
#include "cuda/kernels/grouped_matmul/direct.h"
#include "cuda/kernels/grouped_matmul/wgmma/gated.h"
#include "cuda/kernels/grouped_matmul/wgmma/launch.h"

namespace jaxsparse {
namespace {

constexpr char kOp[] = "grouped_matmul";
constexpr char kDrhsOp[] = "grouped_matmul_drhs";
constexpr int64_t kDirect = 0;  // the other variant of drhs, 1, is tensor cores

// Absent operands are nullptr; the others have an entry for every sorted row.
template <class Call>
GroupedIndex IndexOf(const Call& c) {
  return {c.group_sizes.template as<int32_t>(), c.gather.template as<int32_t>(),
          c.scatter.template as<int32_t>(), c.row_weights.template as<float>()};
}

// Why `variant` cannot run this problem, or nullptr when it can. No other family is tried in its
// place.
const char* VariantReason(const GroupedMatmulArgs& args, int64_t variant) {
  if (variant == kDirect) return nullptr;
  if (variant < kFirstGroupedRow) return "variant must be 0 (direct) or 16 + row";
  return GroupedWgmmaReason(args, static_cast<int>(variant - kFirstGroupedRow));
}

ffi::Error GroupedMatmul(cudaStream_t stream, contract::grouped_matmul::Attributes attributes,
                         ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::grouped_matmul::Decode(attributes, operands, results);
  if (call.has_error()) return call.error();
  const auto& c = *call;
  if (c.nothing()) return ffi::Error::Success();
  GroupedMatmulArgs args = {};
  args.shape = {c.lhs_rows, c.depth, c.outputs, c.groups, c.sorted_rows, c.out_rows};
  args.in_type = ToDType(c.lhs.type);
  args.out_type = ToDType(c.out.type);
  args.index = IndexOf(c);
  args.scatters = c.scatters;
  args.transpose_rhs = c.transpose_rhs;
  args.highest = c.precision == 1;
  args.lhs = c.lhs.data;
  args.rhs = c.rhs.data;
  args.out = c.out.data;
  args.scratch = c.scratch.data;
  args.scratch_bytes = c.scratch_bytes;
  if (const char* reason = VariantReason(args, c.variant)) return Invalid(kOp, reason);
  const bool direct = c.variant == kDirect;
  const int64_t needed = direct ? GroupedDirectScratchBytes(args) : GroupedWgmmaScratchBytes(args);
  if (c.scratch_bytes < needed) return TooSmall(kOp, c.scratch_bytes, needed, "bytes");
  if (direct) return CudaStatus(kOp, LaunchGroupedDirect(args, stream));
  const int row = static_cast<int>(c.variant - kFirstGroupedRow);
  return CudaStatus(kOp, LaunchGroupedWgmma(args, row, stream));
}

ffi::Error GroupedDrhs(cudaStream_t stream, contract::grouped_matmul_drhs::Attributes attributes,
                       ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::grouped_matmul_drhs::Decode(attributes, operands, results);
  if (call.has_error()) return call.error();
  const auto& c = *call;
  if (c.nothing()) return ffi::Error::Success();
  GroupedDrhsArgs args = {};
  args.shape = {c.lhs_rows, c.depth, c.outputs, c.groups, c.sorted_rows, c.gy_rows};
  args.in_type = ToDType(c.lhs.type);
  args.out_type = ToDType(c.drhs.type);
  args.index = IndexOf(c);
  args.highest = c.precision == 1;
  args.lhs = c.lhs.data;
  args.gy = c.gy.data;
  args.drhs = c.drhs.data;
  args.scratch = c.scratch.data;
  args.scratch_bytes = c.scratch_bytes;
  const int64_t needed = GroupedDrhsScratchBytes(args);
  if (c.scratch_bytes < needed) return TooSmall(kDrhsOp, c.scratch_bytes, needed, "bytes");
  if (c.variant == kDirect) return CudaStatus(kDrhsOp, LaunchGroupedDrhsDirect(args, stream));
  if (const char* reason = GroupedDrhsWgmmaReason(args)) return Invalid(kDrhsOp, reason);
  return CudaStatus(kDrhsOp, LaunchGroupedDrhsWgmma(args, stream));
}

ffi::Error GroupedInit() {
  static OncePerDevice* once = new OncePerDevice;
  return CudaStatus(kOp, once->Run([](int /*device*/) {
    int capability = 0;
    cudaError_t status = ComputeCapability(&capability);
    if (status == cudaSuccess) status = PrepareGroupedDirect();
    if (status == cudaSuccess && capability / 10 == 9) status = PrepareGroupedWgmma();
    if (status == cudaSuccess && capability / 10 == 9) status = PrepareGroupedDrhsWgmma();
    if (status == cudaSuccess && capability / 10 == 9) status = PrepareGroupedGated();
    return status;
  }));
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JaxsparseGroupedMatmulCuda, jaxsparse::GroupedMatmul,
    jaxsparse::BindCall<jaxsparse::contract::grouped_matmul::Attributes>(),
    {xla::ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JaxsparseGroupedMatmulDrhsCuda, jaxsparse::GroupedDrhs,
    jaxsparse::BindCall<jaxsparse::contract::grouped_matmul_drhs::Attributes>(),
    {xla::ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseGroupedMatmulCudaInit, jaxsparse::GroupedInit,
                              jaxsparse::BindInit());
