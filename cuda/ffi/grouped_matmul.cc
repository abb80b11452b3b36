// Handlers of jaxsparse_grouped_matmul, jaxsparse_grouped_matmul_drhs and jaxsparse_grouped_gated
// (docs/contract.md): checks, one kernel family.
#include "cuda/kernels/grouped_matmul/args.h"

#include "cuda/core/device.h"
#include "cuda/ffi/common.h"
#include "cuda/kernels/grouped_matmul/direct.h"
#include "cuda/kernels/grouped_matmul/wgmma/gated.h"
#include "cuda/kernels/grouped_matmul/wgmma/launch.h"

namespace jaxsparse {
namespace {

constexpr char kOp[] = "jaxsparse_grouped_matmul";
constexpr char kDrhsOp[] = "jaxsparse_grouped_matmul_drhs";
constexpr char kGatedOp[] = "jaxsparse_grouped_gated";
constexpr int64_t kDirect = 0, kTensorCores = 1;

using Indices = ffi::BufferR1<ffi::S32>;
using Weights = ffi::BufferR1<ffi::F32>;
using Scratch = ffi::Result<ffi::BufferR1<ffi::U8>>;

template <class Buffer>
auto* PresentOrNull(const Buffer& buffer) {
  return buffer.element_count() > 0 ? buffer.typed_data() : nullptr;
}

// Empty operands are absent; the others have an entry for every sorted row.
std::string CheckRows(const GroupedShape& s, const Indices& sizes, const Indices& gather,
                      const Indices& scatter, const Weights& weights, bool gathers, bool scatters) {
  const auto agrees = [&](size_t count) {
    return count == 0 || static_cast<int64_t>(count) == s.sorted_rows;
  };
  if (static_cast<int64_t>(sizes.element_count()) != s.groups) return "group_sizes must be s32[g]";
  if (!agrees(gather.element_count()) || !agrees(scatter.element_count()) ||
      !agrees(weights.element_count())) {
    return "gather, scatter and row_weights must have sorted_rows entries";
  }
  if (scatters && static_cast<int64_t>(scatter.element_count()) != s.sorted_rows) {
    return "scatter must have sorted_rows entries";
  }
  if (!gathers && s.lhs_rows != s.sorted_rows) return "lhs must have sorted_rows rows";
  if (!scatters && s.out_rows != s.sorted_rows) return "the result must have sorted_rows rows";
  for (const int64_t size : {s.lhs_rows, s.depth, s.outputs, s.groups, s.sorted_rows, s.out_rows}) {
    if (size > INT32_MAX) return "a dimension is larger than 2^31";
  }
  if (s.sorted_rows > INT32_MAX - 1023) return "sorted_rows passes 2^31 - 1024";
  return "";
}

// Types of the operands and of the result.
std::string ReadTypes(const ffi::AnyBuffer& a, const ffi::AnyBuffer& b, const ffi::AnyBuffer& out,
                      DType* in_type, DType* out_type) {
  const auto in = ToDType(a.element_type()), result = ToDType(out.element_type());
  if (!in || b.element_type() != a.element_type()) return "operands must be f32, bf16 or f16";
  if (!result || (*result != *in && *result != DType::kF32)) {
    return "the result must have the operands' dtype or f32";
  }
  *in_type = *in;
  *out_type = *result;
  return "";
}

// Why `variant` cannot run this problem, or nullptr when it can. No other family is tried in its
// place.
const char* VariantReason(const GroupedMatmulArgs& args, int64_t variant) {
  const bool direct = variant == kDirect;
  if (!direct) {
    if (variant < kFirstGroupedRow) return "variant must be 0 (direct) or 16 + row";
    if (variant - kFirstGroupedRow > INT32_MAX) return "variant names no row";
    const int row = static_cast<int>(variant - kFirstGroupedRow);
    if (const char* reason = GroupedWgmmaReason(args, row)) return reason;
  }
  const int64_t needs = direct ? GroupedDirectScratchBytes(args) : GroupedWgmmaScratchBytes(args);
  return args.scratch_bytes < needs ? "scratch is too small" : nullptr;
}

ffi::Error GroupedMatmul(cudaStream_t stream, ffi::AnyBuffer lhs, ffi::AnyBuffer rhs, Indices sizes,
                         Indices gather, Indices scatter, Weights weights,
                         ffi::Result<ffi::AnyBuffer> out, Scratch scratch, int64_t sorted_rows,
                         bool scatters, bool transpose_rhs, int64_t precision, int64_t variant) {
  GroupedMatmulArgs args = {};
  std::string wrong = ReadTypes(lhs, rhs, *out, &args.in_type, &args.out_type);
  if (!wrong.empty()) return Invalid(kOp, wrong);
  const auto ls = lhs.dimensions(), rs = rhs.dimensions(), os = out->dimensions();
  if (ls.size() != 2 || rs.size() != 3 || os.size() != 2) return Invalid(kOp, "wrong ranks");
  args.shape = {ls[0], ls[1], os[1], rs[0], sorted_rows, os[0]};
  const GroupedShape& s = args.shape;
  if (rs[1] != (transpose_rhs ? s.outputs : s.depth) ||
      rs[2] != (transpose_rhs ? s.depth : s.outputs)) {
    return Invalid(kOp, "rhs must be [g, k, n], or [g, n, k] with transpose_rhs");
  }
  const bool gathers = gather.element_count() > 0 || sorted_rows == 0;
  wrong = CheckRows(s, sizes, gather, scatter, weights, gathers, scatters);
  if (!wrong.empty()) return Invalid(kOp, wrong);
  if (out->element_count() == 0) return ffi::Error::Success();
  args.index = {sizes.typed_data(), PresentOrNull(gather), PresentOrNull(scatter),
                PresentOrNull(weights)};
  args.scatters = scatters;
  args.transpose_rhs = transpose_rhs;
  args.highest = precision == 1;
  args.lhs = lhs.untyped_data();
  args.rhs = rhs.untyped_data();
  args.out = out->untyped_data();
  args.scratch = scratch->typed_data();
  args.scratch_bytes = static_cast<int64_t>(scratch->element_count());
  if (const char* reason = VariantReason(args, variant)) return Invalid(kOp, reason);
  if (variant == kDirect) return CudaStatus(kOp, LaunchGroupedDirect(args, stream));
  const int row = static_cast<int>(variant - kFirstGroupedRow);
  return CudaStatus(kOp, LaunchGroupedWgmma(args, row, stream));
}

ffi::Error GroupedDrhs(cudaStream_t stream, ffi::AnyBuffer lhs, ffi::AnyBuffer gy, Indices sizes,
                       Indices gather, Indices scatter, Weights weights,
                       ffi::Result<ffi::AnyBuffer> drhs, Scratch scratch, int64_t sorted_rows,
                       int64_t precision, int64_t variant) {
  GroupedDrhsArgs args = {};
  std::string wrong = ReadTypes(lhs, gy, *drhs, &args.in_type, &args.out_type);
  if (!wrong.empty()) return Invalid(kDrhsOp, wrong);
  const auto ls = lhs.dimensions(), gs = gy.dimensions(), ds = drhs->dimensions();
  if (ls.size() != 2 || gs.size() != 2 || ds.size() != 3 || ds[1] != ls[1] || ds[2] != gs[1]) {
    return Invalid(kDrhsOp, "the result must be [g, k, n]");
  }
  args.shape = {ls[0], ls[1], gs[1], ds[0], sorted_rows, gs[0]};
  const bool gathers = gather.element_count() > 0 || sorted_rows == 0;
  const bool scatters = scatter.element_count() > 0 || sorted_rows == 0;
  wrong = CheckRows(args.shape, sizes, gather, scatter, weights, gathers, scatters);
  if (!wrong.empty()) return Invalid(kDrhsOp, wrong);
  if (drhs->element_count() == 0) return ffi::Error::Success();
  args.index = {sizes.typed_data(), PresentOrNull(gather), PresentOrNull(scatter),
                PresentOrNull(weights)};
  args.highest = precision == 1;
  args.lhs = lhs.untyped_data();
  args.gy = gy.untyped_data();
  args.drhs = drhs->untyped_data();
  args.scratch = scratch->typed_data();
  args.scratch_bytes = static_cast<int64_t>(scratch->element_count());
  if (variant != kDirect && variant != kTensorCores) {
    return Invalid(kDrhsOp, "variant must be 0 (direct) or 1 (tensor cores)");
  }
  if (args.scratch_bytes < GroupedDrhsScratchBytes(args)) {
    return Invalid(kDrhsOp, "scratch is too small");
  }
  if (variant == kDirect) return CudaStatus(kDrhsOp, LaunchGroupedDrhsDirect(args, stream));
  if (const char* reason = GroupedDrhsWgmmaReason(args)) return Invalid(kDrhsOp, reason);
  return CudaStatus(kDrhsOp, LaunchGroupedDrhsWgmma(args, stream));
}

ffi::Error GroupedGated(cudaStream_t stream, ffi::AnyBuffer lhs, ffi::AnyBuffer gate,
                        ffi::AnyBuffer up, Indices sizes, Indices gather,
                        ffi::Result<ffi::AnyBuffer> out, Scratch scratch, int64_t sorted_rows) {
  GroupedGatedArgs args = {};
  GroupedMatmulArgs& a = args.product;
  const std::string wrong = ReadTypes(lhs, gate, *out, &a.in_type, &a.out_type);
  if (!wrong.empty()) return Invalid(kGatedOp, wrong);
  const auto ls = lhs.dimensions(), rs = gate.dimensions(), os = out->dimensions();
  if (ls.size() != 2 || rs.size() != 3 || os.size() != 2) return Invalid(kGatedOp, "wrong ranks");
  a.shape = {ls[0], ls[1], os[1], rs[0], sorted_rows, os[0]};
  if (rs[1] != a.shape.depth || rs[2] != a.shape.outputs ||
      up.element_type() != gate.element_type() || !HasShape(up, {rs[0], rs[1], rs[2]})) {
    return Invalid(kGatedOp, "gate and up must be [g, k, n]");
  }
  const bool gathers = gather.element_count() > 0 || sorted_rows == 0;
  if (static_cast<int64_t>(sizes.element_count()) != rs[0] || os[0] != sorted_rows ||
      (gathers ? static_cast<int64_t>(gather.element_count()) : ls[0]) != sorted_rows) {
    return Invalid(kGatedOp, "operands and attributes disagree");
  }
  if (out->element_count() == 0) return ffi::Error::Success();
  if (a.shape.depth == 0 || a.shape.groups == 0 || a.shape.lhs_rows == 0) {
    return CudaStatus(kGatedOp, cudaMemsetAsync(out->untyped_data(), 0, out->size_bytes(), stream));
  }
  a.index = {sizes.typed_data(), PresentOrNull(gather), nullptr, nullptr};
  a.lhs = lhs.untyped_data();
  a.rhs = gate.untyped_data();
  args.up = up.untyped_data();
  a.out = out->untyped_data();
  a.scratch = scratch->typed_data();
  a.scratch_bytes = static_cast<int64_t>(scratch->element_count());
  if (const char* reason = GroupedGatedReason(args)) return Invalid(kGatedOp, reason);
  if (a.scratch_bytes < GroupedGatedScratchBytes(args)) {
    return Invalid(kGatedOp, "scratch is too small");
  }
  return CudaStatus(kGatedOp, LaunchGroupedGated(args, stream));
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

namespace ffi = ::xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseGroupedMatmulCuda, jaxsparse::GroupedMatmul,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<cudaStream_t>>()
                                  .Arg<ffi::AnyBuffer>()           // lhs
                                  .Arg<ffi::AnyBuffer>()           // rhs
                                  .Arg<ffi::BufferR1<ffi::S32>>()  // group_sizes
                                  .Arg<ffi::BufferR1<ffi::S32>>()  // gather
                                  .Arg<ffi::BufferR1<ffi::S32>>()  // scatter
                                  .Arg<ffi::BufferR1<ffi::F32>>()  // row_weights
                                  .Ret<ffi::AnyBuffer>()           // out
                                  .Ret<ffi::BufferR1<ffi::U8>>()   // scratch
                                  .Attr<int64_t>("sorted_rows")
                                  .Attr<bool>("scatters")
                                  .Attr<bool>("transpose_rhs")
                                  .Attr<int64_t>("precision")
                                  .Attr<int64_t>("variant"),
                              {ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseGroupedMatmulDrhsCuda, jaxsparse::GroupedDrhs,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<cudaStream_t>>()
                                  .Arg<ffi::AnyBuffer>()           // lhs
                                  .Arg<ffi::AnyBuffer>()           // gy
                                  .Arg<ffi::BufferR1<ffi::S32>>()  // group_sizes
                                  .Arg<ffi::BufferR1<ffi::S32>>()  // gather
                                  .Arg<ffi::BufferR1<ffi::S32>>()  // scatter
                                  .Arg<ffi::BufferR1<ffi::F32>>()  // row_weights
                                  .Ret<ffi::AnyBuffer>()           // drhs
                                  .Ret<ffi::BufferR1<ffi::U8>>()   // scratch
                                  .Attr<int64_t>("sorted_rows")
                                  .Attr<int64_t>("precision")
                                  .Attr<int64_t>("variant"),
                              {ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseGroupedGatedCuda, jaxsparse::GroupedGated,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<cudaStream_t>>()
                                  .Arg<ffi::AnyBuffer>()           // lhs
                                  .Arg<ffi::AnyBuffer>()           // gate
                                  .Arg<ffi::AnyBuffer>()           // up
                                  .Arg<ffi::BufferR1<ffi::S32>>()  // group_sizes
                                  .Arg<ffi::BufferR1<ffi::S32>>()  // gather
                                  .Ret<ffi::AnyBuffer>()           // out
                                  .Ret<ffi::BufferR1<ffi::U8>>()   // scratch
                                  .Attr<int64_t>("sorted_rows"),
                              {ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseGroupedMatmulCudaInit, jaxsparse::GroupedInit,
                              ffi::Ffi::Bind<ffi::ExecutionStage::kInitialize>());
