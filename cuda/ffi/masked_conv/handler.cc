// Handler of jaxsparse_masked_conv (docs/contract.md): checks, zero fill where there is no
// base, one kernel family.
#include "cuda/core/device.h"
#include "cuda/ffi/common.h"
#include "cuda/ffi/masked_conv/geometry.h"
#include "cuda/ffi/masked_conv/operands.h"
#include "cuda/kernels/masked_conv/direct/ffma.h"
#include "cuda/kernels/masked_conv/direct/launch.h"
#include "cuda/kernels/masked_conv/mma/launch.h"
#include "cuda/kernels/masked_conv/wgmma/launch.h"
#include "cuda/kernels/masked_conv/zero_fill.h"

namespace jaxsparse {

struct MaskedConvAttrs : WindowAttrs {
  int64_t activation, precision, variant;
};

}  // namespace jaxsparse

XLA_FFI_REGISTER_STRUCT_ATTR_DECODING(jaxsparse::MaskedConvAttrs, JAXSPARSE_WINDOW_MEMBERS,
                                      ::xla::ffi::StructMember<int64_t>("activation"),
                                      ::xla::ffi::StructMember<int64_t>("precision"),
                                      ::xla::ffi::StructMember<int64_t>("variant"));

namespace jaxsparse {
namespace {

constexpr char kOp[] = "jaxsparse_masked_conv";
constexpr int64_t kDirect = 0, kFfma = 1;

// Why `variant` cannot run this problem, or nullptr when it can. No other family is tried in its
// place.
const char* VariantReason(const MaskedConvArgs& args, int64_t variant) {
  if (variant == kDirect) return nullptr;
  if (variant == kFfma) return MaskedConvFfmaReason(args);
  if (IsMaskedConvMma(variant)) {
    if (const char* reason = MaskedConvMmaReason(args, variant)) return reason;
    const int64_t bytes = MaskedConvMmaScratchBytes(args.geometry, args.in_type);
    return args.scratch_bytes < bytes ? "scratch is too small" : nullptr;
  }
  if (variant < kFirstTensorCoreRow) {
    return "variant must be 0 (direct), 1 (ffma), a row of mma.sync, or 16 + row";
  }
  if (variant - kFirstTensorCoreRow > INT32_MAX) return "variant names no row";
  const int row = static_cast<int>(variant - kFirstTensorCoreRow);
  if (const char* reason = MaskedConvWgmmaReason(args, row)) return reason;
  if (args.scratch_bytes < MaskedConvWgmmaScratchBytes(args.geometry, args.in_type, row)) {
    return "scratch is too small";
  }
  return nullptr;
}

cudaError_t Launch(const MaskedConvArgs& args, int64_t variant, cudaStream_t stream) {
  if (variant == kDirect) return LaunchMaskedConvDirect(args, stream);
  if (variant == kFfma) return LaunchMaskedConvFfma(args, stream);
  if (IsMaskedConvMma(variant)) return LaunchMaskedConvMma(args, variant, stream);
  return LaunchMaskedConvWgmma(args, static_cast<int>(variant - kFirstTensorCoreRow), stream);
}

ffi::Error MaskedConv(cudaStream_t stream, MaskedConvAttrs a, ffi::AnyBuffer x,
                      ffi::AnyBuffer kernel, ffi::AnyBuffer ids, ffi::AnyBuffer count,
                      ffi::AnyBuffer words, ffi::AnyBuffer x_words, ffi::AnyBuffer bias,
                      ffi::AnyBuffer base, ffi::AnyBuffer residual, ffi::Result<ffi::AnyBuffer> out,
                      ffi::Result<ffi::AnyBuffer> scratch) {
  const MaskedConvOperands operands = {x,        kernel, words,    x_words,      bias,       base,
                                       residual, *out,   *scratch, a.activation, a.precision};
  std::string wrong = CheckOperands(operands);
  if (!wrong.empty()) return Invalid(kOp, wrong);
  const auto k = kernel.dimensions();
  const auto o = out->dimensions();
  MaskedConvArgs args;
  wrong = ReadGeometry(x, {k[0], k[1], k[2], k[3]}, {o[0], o[1], o[2], o[3]}, ids, count, words, a,
                       &args.geometry, &args.tiles);
  if (!wrong.empty()) return Invalid(kOp, wrong);
  if (out->element_count() == 0) return ffi::Error::Success();
  ReadOperands(operands, &args);
  const cudaError_t placed = PlaceBase(operands, stream);
  if (placed != cudaSuccess) return CudaStatus(kOp, placed);
  if (const char* reason = VariantReason(args, a.variant)) return Invalid(kOp, reason);
  const bool fills = a.variant != kDirect && a.variant != kFfma;  // beside its products
  if (args.zero_fill && !fills) {
    const cudaError_t status = LaunchZeroFill(args, stream);
    if (status != cudaSuccess) return CudaStatus(kOp, status);
  }
  if (args.tiles.capacity == 0 && !fills) return ffi::Error::Success();
  return CudaStatus(kOp, Launch(args, a.variant, stream));
}

ffi::Error MaskedConvInit() {
  static OncePerDevice* once = new OncePerDevice;
  return CudaStatus(kOp, once->Run([](int /*device*/) {
    int capability = 0;
    cudaError_t status = ComputeCapability(&capability);
    if (status == cudaSuccess) status = PrepareMaskedConvDirect();
    if (status == cudaSuccess) status = PrepareMaskedConvFfma();
    if (status == cudaSuccess) status = PrepareMaskedConvMma();
    if (status == cudaSuccess) status = PrepareZeroFill();
    if (status == cudaSuccess && capability / 10 == 9) status = PrepareMaskedConvWgmma();
    return status;
  }));
}

}  // namespace
}  // namespace jaxsparse

namespace ffi = ::xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskedConvCuda, jaxsparse::MaskedConv,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<cudaStream_t>>()
                                  .Attrs<jaxsparse::MaskedConvAttrs>()
                                  .Arg<ffi::AnyBuffer>()   // x
                                  .Arg<ffi::AnyBuffer>()   // kernel
                                  .Arg<ffi::AnyBuffer>()   // ids
                                  .Arg<ffi::AnyBuffer>()   // count
                                  .Arg<ffi::AnyBuffer>()   // words
                                  .Arg<ffi::AnyBuffer>()   // x_words
                                  .Arg<ffi::AnyBuffer>()   // bias
                                  .Arg<ffi::AnyBuffer>()   // base
                                  .Arg<ffi::AnyBuffer>()   // residual
                                  .Ret<ffi::AnyBuffer>()   // out
                                  .Ret<ffi::AnyBuffer>(),  // scratch
                              {ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskedConvCudaInit, jaxsparse::MaskedConvInit,
                              ffi::Ffi::Bind<ffi::ExecutionStage::kInitialize>());
