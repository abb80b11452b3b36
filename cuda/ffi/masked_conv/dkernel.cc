// Handler of jaxsparse_masked_conv_dkernel (docs/contract.md).
#include "cuda/ffi/common.h"
#include "cuda/ffi/masked_conv/geometry.h"
#include "cuda/ffi/masked_conv/operands.h"
#include "cuda/kernels/masked_conv/dkernel/launch.h"
#include "cuda/kernels/masked_conv/dkernel/wgmma/launch.h"

namespace jaxsparse {

struct DkernelAttrs {
  int64_t stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w;
  int64_t groups, tile_h, tile_w, precision, variant;
};

}  // namespace jaxsparse

XLA_FFI_REGISTER_STRUCT_ATTR_DECODING(jaxsparse::DkernelAttrs, JAXSPARSE_STEP_MEMBERS,
                                      JAXSPARSE_TILE_MEMBERS,
                                      ::xla::ffi::StructMember<int64_t>("precision"),
                                      ::xla::ffi::StructMember<int64_t>("variant"));

namespace jaxsparse {
namespace {

constexpr char kOp[] = "jaxsparse_masked_conv_dkernel";
constexpr int64_t kDirect = 0, kTiles = 1;

std::string CheckOperands(const ffi::AnyBuffer& x, const ffi::AnyBuffer& gy,
                          const ffi::AnyBuffer& ids, const ffi::AnyBuffer& dkernel,
                          const DkernelAttrs& a) {
  const auto in_type = ToDType(x.element_type());
  const auto grad_type = ToDType(gy.element_type());
  if (!in_type || !grad_type || (*grad_type != *in_type && *grad_type != DType::kF32)) {
    return "x must be f32, bf16 or f16, and gy of the same dtype or f32";
  }
  if (dkernel.element_type() != ffi::DataType::F32) return "dkernel must be f32";
  if (x.dimensions().size() != 4 || gy.dimensions().size() != 4 ||
      dkernel.dimensions().size() != 4) {
    return "x, gy and dkernel must have four dimensions";
  }
  if (ids.dimensions().size() != 1) return "ids must be grid-aligned, s32[capacity]";
  if (a.precision < 0 || a.precision > 1) return "precision must be 0 or 1";
  for (const void* data : {x.untyped_data(), gy.untyped_data(), dkernel.untyped_data()}) {
    if (!IsAligned(data)) return "x, gy and dkernel must be aligned to 16 bytes";
  }
  return "";
}

// Why `variant` cannot run this problem, or nullptr when it can. No other family is tried in its
// place.
const char* VariantReason(const MaskedConvDkernelArgs& args, int64_t variant) {
  const char* reason = variant == kDirect  ? nullptr
                       : variant == kTiles ? DkernelTilesReason(args)
                                           : DkernelWgmmaReason(args, variant - kFirstDkernelRow);
  if (reason != nullptr) return reason;
  if (args.scratch_bytes < DkernelWorkspace(args.geometry, args.tiles, variant)) {
    return "scratch is too small";
  }
  return IsAligned(args.scratch) ? nullptr : "scratch must be aligned to 16 bytes";
}

cudaError_t Launch(const MaskedConvDkernelArgs& args, int64_t variant, cudaStream_t stream) {
  if (variant == kDirect) return LaunchDkernelDirect(args, stream);
  if (variant == kTiles) return LaunchDkernelTiles(args, stream);
  return LaunchDkernelWgmma(args, variant - kFirstDkernelRow, stream);
}

ffi::Error Dkernel(cudaStream_t stream, DkernelAttrs a, ffi::AnyBuffer x, ffi::AnyBuffer gy,
                   ffi::AnyBuffer ids, ffi::AnyBuffer count, ffi::AnyBuffer words,
                   ffi::Result<ffi::AnyBuffer> dkernel, ffi::Result<ffi::AnyBuffer> scratch) {
  std::string wrong = CheckOperands(x, gy, ids, *dkernel, a);
  if (!wrong.empty()) return Invalid(kOp, wrong);
  const auto k = dkernel->dimensions();
  const auto o = gy.dimensions();
  const WindowAttrs window = {a.stride_h,   a.stride_w,   a.pad_top, a.pad_left,
                              a.dilation_h, a.dilation_w, 1,         1,
                              a.groups,     a.tile_h,     a.tile_w};
  MaskedConvDkernelArgs args;
  wrong = ReadGeometry(x, {k[0], k[1], k[2], k[3]}, {o[0], o[1], o[2], o[3]}, ids, count, words,
                       window, &args.geometry, &args.tiles);
  if (!wrong.empty()) return Invalid(kOp, wrong);
  if (dkernel->element_count() == 0) return ffi::Error::Success();
  args.in_type = *ToDType(x.element_type());
  args.grad_type = *ToDType(gy.element_type());
  args.highest = a.precision == 1;
  args.x = x.untyped_data();
  args.gy = gy.untyped_data();
  args.dkernel = static_cast<float*>(dkernel->untyped_data());
  args.scratch = scratch->untyped_data();
  args.scratch_bytes = static_cast<int64_t>(scratch->size_bytes());
  if (const char* reason = VariantReason(args, a.variant)) return Invalid(kOp, reason);
  return CudaStatus(kOp, Launch(args, a.variant, stream));
}

ffi::Error DkernelInit() {
  static OncePerDevice* once = new OncePerDevice;
  return CudaStatus(kOp, once->Run([](int) {
    cudaError_t status = PrepareDkernelDirect();
    if (status == cudaSuccess) status = PrepareDkernelTiles();
    return status == cudaSuccess ? PrepareDkernelWgmma() : status;
  }));
}

}  // namespace
}  // namespace jaxsparse

namespace ffi = ::xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskedConvDkernelCuda, jaxsparse::Dkernel,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<cudaStream_t>>()
                                  .Attrs<jaxsparse::DkernelAttrs>()
                                  .Arg<ffi::AnyBuffer>()   // x
                                  .Arg<ffi::AnyBuffer>()   // gy
                                  .Arg<ffi::AnyBuffer>()   // ids
                                  .Arg<ffi::AnyBuffer>()   // count
                                  .Arg<ffi::AnyBuffer>()   // words
                                  .Ret<ffi::AnyBuffer>()   // dkernel
                                  .Ret<ffi::AnyBuffer>(),  // scratch
                              {ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskedConvDkernelCudaInit, jaxsparse::DkernelInit,
                              ffi::Ffi::Bind<ffi::ExecutionStage::kInitialize>());
