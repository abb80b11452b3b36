// Handler of jaxsparse_masked_conv_dkernel on CUDA (contracts/masked_conv.toml).
#include "contracts/masked_conv_dkernel.gen.h"
#include "cuda/ffi/common.h"
#include "cuda/ffi/masked_conv/operands.h"
#include "cuda/kernels/masked_conv/dkernel/launch.h"
#include "cuda/kernels/masked_conv/dkernel/wgmma/launch.h"

namespace jaxsparse {
namespace {

using contract::masked_conv_dkernel::Attributes;
using contract::masked_conv_dkernel::Call;

constexpr char kOp[] = "masked_conv_dkernel";
constexpr int64_t kDirect = 0, kTiles = 1;

MaskedConvDkernelArgs ArgsOf(const Call& c) {
  MaskedConvDkernelArgs args = {};
  args.geometry = ReadGeometry(c);
  args.tiles = ReadTiles(c);
  args.in_type = ToDType(c.x.type);
  args.grad_type = ToDType(c.gy.type);
  args.highest = c.precision == 1;
  args.x = c.x.data;
  args.gy = c.gy.data;
  args.dkernel = c.dkernel.as<float>();
  args.scratch = c.scratch.data;
  args.scratch_bytes = c.scratch_bytes;
  return args;
}

// Why `variant` cannot run this problem, or nullptr when it can. No other family is tried in its
// place.
const char* VariantReason(const MaskedConvDkernelArgs& args, int64_t variant) {
  if (variant == kDirect) return nullptr;
  if (variant == kTiles) return DkernelTilesReason(args);
  return DkernelWgmmaReason(args, variant - kFirstDkernelRow);
}

cudaError_t Launch(const MaskedConvDkernelArgs& args, int64_t variant, cudaStream_t stream) {
  if (variant == kDirect) return LaunchDkernelDirect(args, stream);
  if (variant == kTiles) return LaunchDkernelTiles(args, stream);
  return LaunchDkernelWgmma(args, variant - kFirstDkernelRow, stream);
}

ffi::Error Dkernel(cudaStream_t stream, Attributes attributes, ffi::RemainingArgs operands,
                   ffi::RemainingRets results) {
  const auto call = contract::masked_conv_dkernel::Decode(attributes, operands, results);
  if (call.has_error()) return call.error();
  const Call& c = *call;
  if (c.nothing()) return ffi::Error::Success();
  for (const contract::Array* array : {&c.x, &c.gy, &c.dkernel, &c.scratch}) {
    if (!IsAligned(*array)) return Invalid(kOp, "every array must be aligned to 16 bytes");
  }
  const MaskedConvDkernelArgs args = ArgsOf(c);
  if (const char* reason = VariantReason(args, c.variant)) return Invalid(kOp, reason);
  const int64_t needed = DkernelWorkspace(args.geometry, args.tiles, c.variant);
  if (c.scratch_bytes < needed) return TooSmall(kOp, c.scratch_bytes, needed, "bytes");
  return CudaStatus(kOp, Launch(args, c.variant, stream));
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

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JaxsparseMaskedConvDkernelCuda, jaxsparse::Dkernel,
    jaxsparse::BindCall<jaxsparse::contract::masked_conv_dkernel::Attributes>(),
    {xla::ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskedConvDkernelCudaInit, jaxsparse::DkernelInit,
                              jaxsparse::BindInit());
