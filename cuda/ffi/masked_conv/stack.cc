// Handler of jaxsparse_masked_conv_stack (docs/contract.md).
#include "cuda/kernels/masked_conv/stack/launch.h"

#include "cuda/ffi/common.h"
#include "cuda/ffi/masked_conv/geometry.h"

namespace jaxsparse {
namespace {

constexpr char kOp[] = "jaxsparse_masked_conv_stack";

// Five bits a layer.
int Bits(int64_t packed, int layer) { return static_cast<int>(packed >> (5 * layer) & 31); }

const void* Optional(const ffi::AnyBuffer& buffer) {
  return buffer.element_count() == 0 ? nullptr : buffer.untyped_data();
}

// Whether `buffer` is like `x`, of so many channels, and may be read 16 bytes at a time.
bool Like(const ffi::AnyBuffer& x, const ffi::AnyBuffer& buffer, int64_t channels) {
  const auto d = x.dimensions();
  return buffer.element_type() == x.element_type() &&
         HasShape(buffer, {d[0], d[1], d[2], channels}) && IsAligned(buffer.untyped_data());
}

// The kernel, the bias, the base and the result of layer `l`, checked; returns what is wrong, or an
// empty string.
std::string ReadLayer(const ffi::AnyBuffer& x, const ffi::RemainingArgs& more,
                      const ffi::RemainingRets& outs, int l, MaskedConvStackArgs* args,
                      const void** base) {
  const int n = args->layers;
  const auto kernel = more.get<ffi::AnyBuffer>(l), bias = more.get<ffi::AnyBuffer>(n + l);
  const auto start = more.get<ffi::AnyBuffer>(2 * n + l), first = more.get<ffi::AnyBuffer>(0);
  auto out = outs.get<ffi::AnyBuffer>(l);
  if (!kernel.has_value() || !bias.has_value() || !start.has_value() || !first.has_value() ||
      !out.has_value()) {
    return "an operand is no buffer";
  }
  const auto k = first->dimensions();
  if (k.size() != 4 || kernel->dimensions().size() != 4) return "a kernel must be T[kh, kw, C, C]";
  const int64_t channels = x.dimensions()[3];
  const int64_t outputs = l == n - 1 ? kernel->dimensions()[3] : channels;
  if (kernel->element_type() != x.element_type() ||
      !HasShape(*kernel, {k[0], k[1], channels, outputs}) || !IsAligned(kernel->untyped_data())) {
    return "kernels must be T[kh, kw, C, C], the last one T[kh, kw, C, O]";
  }
  if (bias->element_count() != 0 &&
      (bias->element_type() != ffi::DataType::F32 || !HasShape(*bias, {outputs}) ||
       !IsAligned(bias->untyped_data()))) {
    return "a bias must be f32[C], the last one f32[O], or [0]";
  }
  if (!Like(x, *start, outputs) || !Like(x, **out, outputs)) {
    return "bases and results must be like x, the last ones of O channels";
  }
  StackLayer& layer = args->layer[l];
  layer.kernel = kernel->untyped_data();
  layer.bias = static_cast<const float*>(Optional(*bias));
  layer.out = (*out)->untyped_data();
  *base = start->untyped_data();
  return "";
}

ffi::Error MaskedConvStack(cudaStream_t stream, ffi::AnyBuffer x, ffi::AnyBuffer ids,
                           ffi::AnyBuffer count, ffi::AnyBuffer words, ffi::RemainingArgs more,
                           ffi::ResultBufferR1<ffi::U32> scratch, ffi::RemainingRets outs,
                           int64_t tile_h, int64_t tile_w, int64_t activations, int64_t residuals) {
  MaskedConvStackArgs args = {};
  args.layers = static_cast<int>(outs.size());
  const auto type = ToDType(x.element_type());
  if (args.layers < 1 || args.layers > kMaxStack ||
      static_cast<int>(more.size()) != 3 * args.layers) {
    return Invalid(kOp, "there must be 1 to 12 layers, each with a kernel, a bias and a base");
  }
  if (!type || x.dimensions().size() != 4 || !IsAligned(x.untyped_data()) ||
      static_cast<int>(scratch->element_count()) < kMaxStack) {
    return Invalid(kOp, "x must be T[B, H, W, C], and scratch u32[12]");
  }
  args.type = *type;
  args.x = x.untyped_data();
  args.done = scratch->typed_data();
  const void* bases[kMaxStack];
  for (int l = 0; l < args.layers; ++l) {
    const std::string wrong = ReadLayer(x, more, outs, l, &args, &bases[l]);
    if (!wrong.empty()) return Invalid(kOp, wrong);
    const int activation = Bits(activations, l), back = Bits(residuals, l);
    if (activation > 4 || back > l + 1) return Invalid(kOp, "activations or residuals are off");
    if (back > 0 && (*outs.get<ffi::AnyBuffer>(l))->dimensions()[3] != x.dimensions()[3]) {
      return Invalid(kOp, "a residual has other channels than the layer that adds it");
    }
    args.layer[l].activation = static_cast<Activation>(activation);
    if (back == l + 1) args.layer[l].residual = args.x;
    if (back > 0 && back <= l) args.layer[l].residual = args.layer[l - back].out;
  }
  const auto k = more.get<ffi::AnyBuffer>(0)->dimensions();
  const auto d = x.dimensions();
  const WindowAttrs window = {1, 1, (k[0] - 1) / 2, (k[1] - 1) / 2, 1, 1, 1, 1, 1, tile_h, tile_w};
  const std::string wrong = ReadGeometry(x, {k[0], k[1], k[2], k[3]}, {d[0], d[1], d[2], d[3]}, ids,
                                         count, words, window, &args.geometry, &args.tiles);
  if (!wrong.empty()) return Invalid(kOp, wrong);
  args.last_outputs = more.get<ffi::AnyBuffer>(args.layers - 1)->dimensions()[3];
  for (int l = 0; l < args.layers; ++l) {  // a base is in the result wherever XLA kept the alias
    const size_t bytes = (*outs.get<ffi::AnyBuffer>(l))->size_bytes();
    if (bases[l] == args.layer[l].out || bytes == 0) continue;
    const cudaError_t placed =
        cudaMemcpyAsync(args.layer[l].out, bases[l], bytes, cudaMemcpyDeviceToDevice, stream);
    if (placed != cudaSuccess) return CudaStatus(kOp, placed);
  }
  if (x.element_count() == 0) return ffi::Error::Success();
  if (const char* reason = MaskedConvStackReason(args)) return Invalid(kOp, reason);
  return CudaStatus(kOp, LaunchMaskedConvStack(args, stream));
}

ffi::Error MaskedConvStackInit() { return CudaStatus(kOp, PrepareMaskedConvStack()); }

}  // namespace
}  // namespace jaxsparse

namespace ffi = ::xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskedConvStackCuda, jaxsparse::MaskedConvStack,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<cudaStream_t>>()
                                  .Arg<ffi::AnyBuffer>()  // x
                                  .Arg<ffi::AnyBuffer>()  // ids
                                  .Arg<ffi::AnyBuffer>()  // count
                                  .Arg<ffi::AnyBuffer>()  // words
                                  .RemainingArgs()        // kernels, biases, bases
                                  .Ret<ffi::BufferR1<ffi::U32>>()
                                  .RemainingRets()  // a result a layer
                                  .Attr<int64_t>("tile_h")
                                  .Attr<int64_t>("tile_w")
                                  .Attr<int64_t>("activations")
                                  .Attr<int64_t>("residuals"),
                              {ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskedConvStackCudaInit, jaxsparse::MaskedConvStackInit,
                              ffi::Ffi::Bind<ffi::ExecutionStage::kInitialize>());
