// Handler of jaxsparse_masked_conv on CUDA (contracts/masked_conv.toml): zero fill where there is
// no base, one kernel family.
#include "contracts/masked_conv.gen.h"
#include "cuda/core/device.h"
#include "cuda/ffi/common.h"
#include "cuda/ffi/masked_conv/operands.h"
#include "cuda/kernels/masked_conv/direct/ffma.h"
#include "cuda/kernels/masked_conv/direct/launch.h"
#include "cuda/kernels/masked_conv/mma/launch.h"
#include "cuda/kernels/masked_conv/wgmma/launch.h"
#include "cuda/kernels/masked_conv/zero_fill.h"

namespace jaxsparse {
namespace {

constexpr char kOp[] = "masked_conv";
constexpr int64_t kDirect = 0, kFfma = 1;

int RowOf(int64_t variant) { return static_cast<int>(variant - kFirstTensorCoreRow); }

// Why `variant` cannot run this problem, or nullptr when it can. No other family is tried in its
// place.
const char* VariantReason(const MaskedConvArgs& args, int64_t variant) {
  if (variant == kDirect) return nullptr;
  if (variant == kFfma) return MaskedConvFfmaReason(args);
  if (IsMaskedConvMma(variant)) return MaskedConvMmaReason(args, variant);
  if (variant < kFirstTensorCoreRow) {
    return "variant must be 0 (direct), 1 (ffma), a row of mma.sync, or 16 + row";
  }
  return MaskedConvWgmmaReason(args, RowOf(variant));
}

// Bytes, of a variant that can run.
int64_t ScratchOf(const MaskedConvArgs& args, int64_t variant) {
  if (variant == kDirect || variant == kFfma) return 0;
  if (IsMaskedConvMma(variant)) return MaskedConvMmaScratchBytes(args.geometry, args.in_type);
  return MaskedConvWgmmaScratchBytes(args.geometry, args.in_type, RowOf(variant));
}

cudaError_t Launch(const MaskedConvArgs& args, int64_t variant, cudaStream_t stream) {
  if (variant == kDirect) return LaunchMaskedConvDirect(args, stream);
  if (variant == kFfma) return LaunchMaskedConvFfma(args, stream);
  if (IsMaskedConvMma(variant)) return LaunchMaskedConvMma(args, variant, stream);
  return LaunchMaskedConvWgmma(args, RowOf(variant), stream);
}

ffi::Error MaskedConv(cudaStream_t stream, contract::masked_conv::Attributes attributes,
                      ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::masked_conv::Decode(attributes, operands, results);
  if (call.has_error()) return call.error();
  const auto& c = *call;
  if (c.nothing()) return ffi::Error::Success();
  if (const char* reason = PlacesReason(c)) return Invalid(kOp, reason);
  const MaskedConvArgs args = ReadForward(c);
  if (const char* reason = VariantReason(args, c.variant)) return Invalid(kOp, reason);
  const int64_t needed = ScratchOf(args, c.variant);
  if (c.scratch_bytes < needed) return TooSmall(kOp, c.scratch_bytes, needed, "bytes");
  cudaError_t status = PlaceBase(c.base, c.out, stream);
  const bool fills = c.variant != kDirect && c.variant != kFfma;  // beside its products
  if (status == cudaSuccess && args.zero_fill && !fills) status = LaunchZeroFill(args, stream);
  if (status == cudaSuccess && (args.tiles.capacity > 0 || fills)) {
    status = Launch(args, c.variant, stream);
  }
  return CudaStatus(kOp, status);
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

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskedConvCuda, jaxsparse::MaskedConv,
                              jaxsparse::BindCall<jaxsparse::contract::masked_conv::Attributes>(),
                              {xla::ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskedConvCudaInit, jaxsparse::MaskedConvInit,
                              jaxsparse::BindInit());
