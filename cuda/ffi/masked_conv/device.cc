// Handler of jaxsparse_masked_conv_device (docs/contract.md): the variant is chosen by the
// kernel, from the id that an index kernel wrote or from the counts.
#include "cuda/kernels/masked_conv/device/launch.h"

#include "cuda/ffi/common.h"
#include "cuda/ffi/masked_conv/geometry.h"
#include "cuda/ffi/masked_conv/operands.h"
#include "cuda/kernels/masked_conv/zero_fill.h"

namespace jaxsparse {

struct MaskedConvDeviceAttrs : WindowAttrs {
  int64_t activation, precision, variants, lists, tiles;
};

}  // namespace jaxsparse

XLA_FFI_REGISTER_STRUCT_ATTR_DECODING(jaxsparse::MaskedConvDeviceAttrs, JAXSPARSE_WINDOW_MEMBERS,
                                      ::xla::ffi::StructMember<int64_t>("activation"),
                                      ::xla::ffi::StructMember<int64_t>("precision"),
                                      ::xla::ffi::StructMember<int64_t>("variants"),
                                      ::xla::ffi::StructMember<int64_t>("lists"),
                                      ::xla::ffi::StructMember<int64_t>("tiles"));

namespace jaxsparse {
namespace {

constexpr char kOp[] = "jaxsparse_masked_conv_device";

int Byte(int64_t packed, int i) { return static_cast<int>(packed >> (8 * i) & 0xff); }

ffi::Error MaskedConvDevice(cudaStream_t stream, MaskedConvDeviceAttrs a, ffi::AnyBuffer x,
                            ffi::AnyBuffer kernel, ffi::AnyBuffer ids, ffi::AnyBuffer count,
                            ffi::AnyBuffer words, ffi::AnyBuffer x_words, ffi::AnyBuffer bias,
                            ffi::AnyBuffer base, ffi::AnyBuffer residual, ffi::AnyBuffer choice,
                            ffi::AnyBuffer costs, ffi::RemainingArgs more,
                            ffi::Result<ffi::AnyBuffer> out, ffi::Result<ffi::AnyBuffer> scratch) {
  const MaskedConvOperands operands = {x,        kernel, words,    x_words,      bias,       base,
                                       residual, *out,   *scratch, a.activation, a.precision};
  std::string wrong = CheckOperands(operands);
  if (!wrong.empty()) return Invalid(kOp, wrong);
  const auto k = kernel.dimensions(), o = out->dimensions();
  WindowAttrs window = a;
  MaskedConvArgs args;
  ConvChoice chosen = {};
  chosen.lists = static_cast<int>(more.size()) / 2 + 1;
  if (chosen.lists > kMaxLists || more.size() % 2 != 0) return Invalid(kOp, "too many lists");
  for (int t = 0; t < chosen.lists; ++t) {
    const auto list =
        t == 0 ? ffi::ErrorOr<ffi::AnyBuffer>(ids) : more.get<ffi::AnyBuffer>(2 * t - 2);
    const auto length =
        t == 0 ? ffi::ErrorOr<ffi::AnyBuffer>(count) : more.get<ffi::AnyBuffer>(2 * t - 1);
    if (!list.has_value() || !length.has_value()) return Invalid(kOp, "a list is no buffer");
    if (t > 0) {
      const int code = Byte(a.tiles, t);
      window.tile_h = int64_t{1} << (code / 8);
      window.tile_w = int64_t{1} << (code % 8);
    }
    wrong = ReadGeometry(x, {k[0], k[1], k[2], k[3]}, {o[0], o[1], o[2], o[3]}, *list, *length,
                         words, window, &args.geometry, &args.tiles);
    if (!wrong.empty()) return Invalid(kOp, wrong);
    chosen.list[t] = args.tiles;
  }
  if (out->element_count() == 0) return ffi::Error::Success();
  if (costs.element_type() != ffi::DataType::F32 || costs.dimensions().size() != 2 ||
      costs.dimensions()[1] != 5 || costs.dimensions()[0] < 1 ||
      costs.dimensions()[0] > kMaxCandidates) {
    return Invalid(kOp, "costs must be f32[v, 5] for 1 to 8 candidates");
  }
  if (choice.element_count() > 1 || choice.element_type() != ffi::DataType::S32) {
    return Invalid(kOp, "choice must be s32[] or s32[0]");
  }
  chosen.candidates = static_cast<int>(costs.dimensions()[0]);
  for (int i = 0; i < chosen.candidates; ++i) {
    chosen.candidate[i] = {Byte(a.variants, i), Byte(a.lists, i)};
  }
  chosen.costs = static_cast<const float*>(costs.untyped_data());
  if (choice.element_count() == 1) {
    chosen.choice = static_cast<const int32_t*>(choice.untyped_data());
  }
  ReadOperands(operands, &args);
  const cudaError_t placed = PlaceBase(operands, stream);
  if (placed != cudaSuccess) return CudaStatus(kOp, placed);
  args.tiles = chosen.list[0];
  if (const char* reason = MaskedConvDeviceReason(args, chosen)) return Invalid(kOp, reason);
  return CudaStatus(kOp, LaunchMaskedConvDevice(args, chosen, stream));
}

ffi::Error MaskedConvDeviceInit() {
  static OncePerDevice* once = new OncePerDevice;
  return CudaStatus(kOp, once->Run([](int) {
    const cudaError_t status = PrepareMaskedConvDevice();
    return status == cudaSuccess ? PrepareZeroFill() : status;
  }));
}

}  // namespace
}  // namespace jaxsparse

namespace ffi = ::xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskedConvDeviceCuda, jaxsparse::MaskedConvDevice,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<cudaStream_t>>()
                                  .Attrs<jaxsparse::MaskedConvDeviceAttrs>()
                                  .Arg<ffi::AnyBuffer>()   // x
                                  .Arg<ffi::AnyBuffer>()   // kernel
                                  .Arg<ffi::AnyBuffer>()   // ids
                                  .Arg<ffi::AnyBuffer>()   // count
                                  .Arg<ffi::AnyBuffer>()   // words
                                  .Arg<ffi::AnyBuffer>()   // x_words
                                  .Arg<ffi::AnyBuffer>()   // bias
                                  .Arg<ffi::AnyBuffer>()   // base
                                  .Arg<ffi::AnyBuffer>()   // residual
                                  .Arg<ffi::AnyBuffer>()   // choice
                                  .Arg<ffi::AnyBuffer>()   // costs
                                  .RemainingArgs()         // ids, count of every further list
                                  .Ret<ffi::AnyBuffer>()   // out
                                  .Ret<ffi::AnyBuffer>(),  // scratch
                              {ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskedConvDeviceCudaInit, jaxsparse::MaskedConvDeviceInit,
                              ffi::Ffi::Bind<ffi::ExecutionStage::kInitialize>());
