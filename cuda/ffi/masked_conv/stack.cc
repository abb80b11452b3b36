// Handler of jaxsparse_masked_conv_stack on CUDA (contracts/masked_conv.toml). A layer brings
// operands and results of its own, so the checks are written here and not made from a declaration.
#include "cuda/kernels/masked_conv/stack/launch.h"

#include <array>

#include "cuda/ffi/common.h"

namespace jaxsparse {
namespace {

using contract::Array;
using contract::Checker;
using ffi::DataType;

constexpr char kOp[] = "masked_conv_stack";
constexpr int64_t kMostSide = int64_t{1} << 28;  // of an image, a window and a tile
constexpr int64_t kMostSlots = int64_t{1} << 30;
constexpr size_t kShared = 4;  // operands before those of the layers: x, ids, count, words

// Five bits a layer.
int Bits(int64_t packed, int layer) { return static_cast<int>(packed >> (5 * layer) & 31); }

struct Attributes {
  int64_t tile_h, tile_w, activations, residuals;
};

// The operands that the layers share.
struct Shared {
  Array x, ids, count, words, scratch;
};

struct Layer {
  Array kernel, bias, base, out;
};

void CheckShared(const Shared& s, const Attributes& a, Checker* check) {
  check->Type("x", s.x, {DataType::BF16, DataType::F16}, "bf16 or f16");
  check->Type("ids", s.ids, {DataType::S32}, "s32");
  check->Type("count", s.count, {DataType::S32}, "s32");
  check->Type("words", s.words, {DataType::U32}, "u32");
  check->Type("scratch", s.scratch, {DataType::U32}, "u32");
  if (s.x.rank != 4) check->Fail("x must be [batch, height, width, channels]");
  if (s.ids.rank != 1) check->Fail("ids must be [capacity]");
  if (!check->ok()) return;
  const int64_t* const d = s.x.dims;
  check->Shape("count", s.count, {}, "[]");
  check->Shape("words", s.words, {d[0], d[1], WordsOf(d[2])}, "[batch, height, words(width)]");
  check->Shape("scratch", s.scratch, {kMaxStack}, "[12]");
  check->Range("batch", d[0], 0, kMostSide);
  check->Range("height", d[1], 0, kMostSide);
  check->Range("width", d[2], 0, kMostSide);
  check->Range("tile_h", a.tile_h, 1, kMostSide);
  check->Range("tile_w", a.tile_w, 1, kMostSide);
  check->Relation(Checked(a.tile_h) * a.tile_w <= kMostSlots &&
                      Checked(s.ids.dims[0]) * a.tile_h * a.tile_w <= kMostSlots,
                  "capacity * tile_h * tile_w <= 2**30");
  check->Relation(IsAligned(s.x), "x is aligned to 16 bytes");
}

Shared ReadShared(const ffi::RemainingArgs& operands, const ffi::RemainingRets& results,
                  Checker* check) {
  return {check->Operand("x", operands, 0), check->Operand("ids", operands, 1),
          check->Operand("count", operands, 2), check->Operand("words", operands, 3),
          check->Result("scratch", results, 0)};
}

// Layer `l` of `n`: all arrays of a kind come before the next kind.
Layer ReadLayer(const ffi::RemainingArgs& operands, const ffi::RemainingRets& results, size_t n,
                size_t l, Checker* check) {
  return {check->Operand("kernel", operands, kShared + l),
          check->Operand("bias", operands, kShared + n + l),
          check->Operand("base", operands, kShared + 2 * n + l),
          check->Result("out", results, 1 + l)};
}

// `first` is the kernel of the first layer; only the last one may have other outputs.
void CheckLayer(const Array& x, const Array& first, const Layer& layer, bool last, Checker* check) {
  for (const Array* array : {&layer.kernel, &layer.base, &layer.out}) {
    check->Type("a kernel, a base or a result", *array, {x.type}, "of the type of x");
    check->Relation(IsAligned(*array), "kernels, bases and results are aligned to 16 bytes");
  }
  if (layer.kernel.rank != 4 || first.rank != 4) check->Fail("a kernel must be [kh, kw, C, O]");
  if (!check->ok()) return;
  const int64_t* const d = x.dims;
  const int64_t outputs = last ? layer.kernel.dims[3] : d[3];
  check->Shape("a kernel", layer.kernel, {first.dims[0], first.dims[1], d[3], outputs},
               "[kh, kw, channels, channels], the last one [kh, kw, channels, outputs]");
  check->Shape("a base", layer.base, {d[0], d[1], d[2], outputs},
               "like x, the last one of the last kernel's outputs");
  check->Shape("a result", layer.out, {d[0], d[1], d[2], outputs},
               "like x, the last one of the last kernel's outputs");
  check->Range("kh", first.dims[0], 1, kMostSide);
  check->Range("kw", first.dims[1], 1, kMostSide);
  if (!layer.bias.given()) return;
  check->Type("a bias", layer.bias, {DataType::F32}, "f32");
  check->Shape("a bias", layer.bias, {outputs}, "[channels], the last one [outputs], or [0]");
  check->Relation(IsAligned(layer.bias), "biases are aligned to 16 bytes");
}

// The activation and the residual of layer `l`, whose arrays are read.
void ReadSteps(const Attributes& a, const Array& x, const Array& out, int l, Checker* check,
               MaskedConvStackArgs* args) {
  const int activation = Bits(a.activations, l), back = Bits(a.residuals, l);
  check->Range("an activation", activation, 0, static_cast<int64_t>(Activation::kGelu));
  check->Range("a residual", back, 0, l + 1);
  if (!check->ok()) return;
  check->Relation(back == 0 || out.dims[3] == x.dims[3],
                  "a residual has the channels of the layer that adds it");
  args->layer[l].activation = static_cast<Activation>(activation);
  if (back == l + 1) args->layer[l].residual = args->x;
  if (back > 0 && back <= l) args->layer[l].residual = args->layer[l - back].out;
}

ConvGeometry GeometryOf(const Array& x, const Array& kernel) {
  ConvGeometry g = {};
  const int64_t* const d = x.dims;
  g.batch = d[0];
  g.in_h = g.out_h = d[1];
  g.in_w = g.out_w = d[2];
  g.in_c = d[3];
  g.out_c = kernel.dims[3];
  g.kernel_h = static_cast<int>(kernel.dims[0]);
  g.kernel_w = static_cast<int>(kernel.dims[1]);
  g.pad_top = (g.kernel_h - 1) / 2;
  g.pad_left = (g.kernel_w - 1) / 2;
  g.stride_h = g.stride_w = g.dilation_h = g.dilation_w = g.groups = 1;
  g.lhs_dilation_h = g.lhs_dilation_w = 1;
  return g;
}

ffi::Error MaskedConvStack(cudaStream_t stream, ffi::RemainingArgs operands,
                           ffi::RemainingRets results, int64_t tile_h, int64_t tile_w,
                           int64_t activations, int64_t residuals) {
  const Attributes a = {tile_h, tile_w, activations, residuals};
  Checker check(kOp);
  check.Count("results", results.size(), 2, 1 + kMaxStack);
  if (!check.ok()) return check.error();
  const size_t n = results.size() - 1;
  check.Count("operands", operands.size(), kShared + 3 * n, kShared + 3 * n);
  if (!check.ok()) return check.error();
  const Shared shared = ReadShared(operands, results, &check);
  if (check.ok()) CheckShared(shared, a, &check);
  MaskedConvStackArgs args = {};
  args.layers = static_cast<int>(n);
  args.x = shared.x.data;
  args.done = shared.scratch.as<uint32_t>();
  std::array<Layer, kMaxStack> layers;
  for (int l = 0; l < args.layers && check.ok(); ++l) {
    layers[l] = ReadLayer(operands, results, n, static_cast<size_t>(l), &check);
    const Layer& layer = layers[l];
    if (check.ok()) CheckLayer(shared.x, layers[0].kernel, layer, l == args.layers - 1, &check);
    args.layer[l].kernel = layer.kernel.data;
    args.layer[l].bias = layer.bias.as<float>();
    args.layer[l].out = layer.out.data;
    if (check.ok()) ReadSteps(a, shared.x, layer.out, l, &check, &args);
  }
  if (!check.ok()) return check.error();
  args.type = ToDType(shared.x.type);
  args.geometry = GeometryOf(shared.x, layers[0].kernel);
  args.tiles = {static_cast<const int32_t*>(shared.ids.data),
                static_cast<const int32_t*>(shared.count.data),
                shared.ids.dims[0],
                static_cast<int>(tile_h),
                static_cast<int>(tile_w),
                true,
                static_cast<const uint32_t*>(shared.words.data)};
  args.last_outputs = layers[n - 1].kernel.dims[3];
  const char* const reason = shared.x.given() ? MaskedConvStackReason(args) : nullptr;
  if (reason != nullptr) return Invalid(kOp, reason);
  for (size_t l = 0; l < n; ++l) {
    const cudaError_t placed = PlaceBase(layers[l].base, layers[l].out, stream);
    if (placed != cudaSuccess) return CudaStatus(kOp, placed);
  }
  if (!shared.x.given()) return ffi::Error::Success();
  return CudaStatus(kOp, LaunchMaskedConvStack(args, stream));
}

ffi::Error MaskedConvStackInit() { return CudaStatus(kOp, PrepareMaskedConvStack()); }

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskedConvStackCuda, jaxsparse::MaskedConvStack,
                              jaxsparse::BindPlainCall()
                                  .Attr<int64_t>("tile_h")
                                  .Attr<int64_t>("tile_w")
                                  .Attr<int64_t>("activations")
                                  .Attr<int64_t>("residuals"),
                              {xla::ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskedConvStackCudaInit, jaxsparse::MaskedConvStackInit,
                              jaxsparse::BindInit());
