// Handler of jaxsparse_masked_matmul (docs/contract.md): checks, then one kernel family.
#include "cuda/kernels/masked_matmul/launch.h"

#include <string>

#include "cuda/ffi/common.h"
#include "cuda/kernels/masked_matmul/sampled/launch.h"

namespace jaxsparse {

struct MaskedMatmulAttrs {
  int64_t a_rows, a_cols, b_rows, b_cols, out_rows, out_cols, precision, variant;
};

}  // namespace jaxsparse

XLA_FFI_REGISTER_STRUCT_ATTR_DECODING(
    jaxsparse::MaskedMatmulAttrs, ::xla::ffi::StructMember<int64_t>("a_rows"),
    ::xla::ffi::StructMember<int64_t>("a_cols"), ::xla::ffi::StructMember<int64_t>("b_rows"),
    ::xla::ffi::StructMember<int64_t>("b_cols"), ::xla::ffi::StructMember<int64_t>("out_rows"),
    ::xla::ffi::StructMember<int64_t>("out_cols"), ::xla::ffi::StructMember<int64_t>("precision"),
    ::xla::ffi::StructMember<int64_t>("variant"));

namespace jaxsparse {
namespace {

constexpr char kOp[] = "jaxsparse_masked_matmul";
constexpr int64_t kDirect = 0, kSampled = 5, kTurned = 6, kLast = 8;  // others: 1 + StripChoice

int64_t Blocks(int64_t size, int64_t block) { return (size + block - 1) / block; }

// Whether `words` describe a matrix of rows x columns, `lists` times or once; fills `bits`.
bool Decode(const ffi::AnyBuffer& words, int64_t lists, int64_t rows, int64_t columns,
            int64_t row_size, int64_t col_size, BlockBits* bits) {
  if (row_size < 1 || col_size < 1) return false;
  if (row_size > UINT32_MAX || col_size > UINT32_MAX) return false;
  *bits = {nullptr, 1, 0, 0, row_size, col_size};
  if (words.element_count() == 0) return true;
  const auto dims = words.dimensions();
  const bool bools = words.element_type() == ffi::DataType::PRED;
  const int64_t blocks = Blocks(columns, col_size), row_words = Blocks(blocks, 32);
  if ((!bools && words.element_type() != ffi::DataType::U32) || dims.size() != 3 ||
      (dims[0] != 1 && dims[0] != lists) || dims[1] != Blocks(rows, row_size) ||
      dims[2] != (bools ? blocks : row_words)) {
    return false;
  }
  *bits = {static_cast<const uint32_t*>(words.untyped_data()),
           dims[0],
           dims[1],
           row_words,
           row_size,
           col_size,
           bools,
           blocks};
  return true;
}

std::string ReadArgs(const MaskedMatmulAttrs& attrs, const ffi::AnyBuffer& a,
                     const ffi::AnyBuffer& b, const ffi::AnyBuffer& a_words,
                     const ffi::AnyBuffer& b_words, const ffi::AnyBuffer& out_words,
                     const ffi::AnyBuffer& out, const ffi::AnyBuffer& scratch,
                     MaskedMatmulArgs* args) {
  const auto in_type = ToDType(a.element_type()), out_type = ToDType(out.element_type());
  if (!in_type || b.element_type() != a.element_type()) {
    return "a and b must both be f32, bf16 or f16";
  }
  if (!out_type || (*out_type != *in_type && *out_type != DType::kF32)) {
    return "the result must have the dtype of a or f32";
  }
  const auto as = a.dimensions(), bs = b.dimensions(), os = out.dimensions();
  // Which axis of each operand is K.
  const int a_depth = attrs.variant == kTurned ? 1 : 2, b_depth = attrs.variant == kSampled ? 2 : 1;
  if (as.size() != 3 || bs.size() != 3 || os.size() != 3 || as[3 - a_depth] != os[1] ||
      bs[b_depth] != as[a_depth] || bs[3 - b_depth] != os[2] || (as[0] != 1 && as[0] != os[0]) ||
      (bs[0] != 1 && bs[0] != os[0])) {
    return "a, b and the result must be [L or 1, m, k], [L or 1, k, n] and [L, m, n]";
  }
  *args = {};
  args->lists = os[0];
  args->rows = os[1];
  args->depth = as[a_depth];
  args->columns = os[2];
  args->a_lists = as[0];
  args->b_lists = bs[0];
  const MaskedMatmulAttrs& t = attrs;
  if (!Decode(a_words, os[0], os[1], as[a_depth], t.a_rows, t.a_cols, &args->a_bits) ||
      !Decode(b_words, os[0], as[a_depth], os[2], t.b_rows, t.b_cols, &args->b_bits) ||
      !Decode(out_words, os[0], os[1], os[2], t.out_rows, t.out_cols, &args->out_bits)) {
    return "a mask's words do not fit its matrix";
  }
  if (args->b_bits.is_bools || args->out_bits.is_bools ||
      (args->a_bits.is_bools && (t.variant == kDirect || t.variant == kSampled))) {
    return "a mask of bools is taken on a alone, by tensor cores";
  }
  if (os[1] > UINT32_MAX || os[2] > UINT32_MAX || as[a_depth] > UINT32_MAX)
    return "a side passes 2^32";
  args->in_type = *in_type;
  args->out_type = *out_type;
  args->highest = t.precision == 1;
  args->turned = t.variant == kTurned;
  args->a = a.untyped_data();
  args->b = b.untyped_data();
  args->out = out.untyped_data();
  args->scratch = scratch.untyped_data();
  args->scratch_bytes = static_cast<int64_t>(scratch.size_bytes());
  return "";
}

// `b` is [L or 1, n, k] here.
ffi::Error Sampled(const MaskedMatmulArgs& args, cudaStream_t stream) {
  if (args.a_bits.words != nullptr || args.b_bits.words != nullptr) {
    return Invalid(kOp, "sampled products take no mask on an operand");
  }
  if (const char* reason = SampledMatmulReason(args)) return Invalid(kOp, reason);
  if (args.scratch_bytes < SampledMatmulScratchBytes(args)) {
    return Invalid(kOp, "scratch is too small");
  }
  return CudaStatus(kOp, LaunchSampledMatmul(args, stream));
}

ffi::Error MaskedMatmul(cudaStream_t stream, MaskedMatmulAttrs attrs, ffi::AnyBuffer a,
                        ffi::AnyBuffer b, ffi::AnyBuffer a_words, ffi::AnyBuffer b_words,
                        ffi::AnyBuffer out_words, ffi::Result<ffi::AnyBuffer> out,
                        ffi::Result<ffi::AnyBuffer> scratch) {
  MaskedMatmulArgs args;
  const std::string wrong =
      ReadArgs(attrs, a, b, a_words, b_words, out_words, *out, *scratch, &args);
  if (!wrong.empty()) return Invalid(kOp, wrong);
  if (attrs.precision < 0 || attrs.precision > 1) return Invalid(kOp, "precision must be 0 or 1");
  if (attrs.variant < 0 || attrs.variant > kLast) return Invalid(kOp, "no such variant");
  if (out->element_count() == 0) return ffi::Error::Success();
  if (attrs.variant == kDirect) return CudaStatus(kOp, LaunchMaskedMatmulDirect(args, stream));
  if (attrs.variant == kSampled) return Sampled(args, stream);
  if (const char* reason = MaskedMatmulStripsReason(args)) return Invalid(kOp, reason);
  if (args.scratch_bytes < MaskedMatmulStripsScratchBytes(args)) {
    return Invalid(kOp, "scratch is too small");
  }
  const auto tile =
      args.turned ? StripChoice::kPanels : static_cast<StripChoice>(attrs.variant - 1);
  if ((tile == StripChoice::kPieces || tile == StripChoice::kPanels) &&
      !MaskedMatmulTakesPieces(args)) {
    return Invalid(
        kOp,
        "tiles of pieces need a mask on a, of whole 32 rows and 128 bytes, and none on the result");
  }
  if (tile == StripChoice::kSorted && !MaskedMatmulTakesSorted(args)) {
    return Invalid(kOp,
                   "sorted columns need a mask on a alone, of whole 32 rows but not of whole 128 "
                   "bytes of K, and rows of whole 128 bytes in b");
  }
  if (args.a_bits.is_bools && MaskedMatmulTakesSorted(args) && tile != StripChoice::kSorted &&
      tile != StripChoice::kAuto) {
    return Invalid(kOp, "this variant takes such a mask in words");
  }
  return CudaStatus(kOp, LaunchMaskedMatmulStrips(args, tile, stream));
}

ffi::Error MaskedMatmulInit() {
  static OncePerDevice* once = new OncePerDevice;
  return CudaStatus(kOp, once->Run([](int) {
    cudaError_t status = PrepareMaskedMatmulDirect();
    if (status == cudaSuccess) status = PrepareMaskedMatmulStrips();
    return status == cudaSuccess ? PrepareSampledMatmul() : status;
  }));
}

}  // namespace
}  // namespace jaxsparse

namespace ffi = ::xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskedMatmulCuda, jaxsparse::MaskedMatmul,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<cudaStream_t>>()
                                  .Attrs<jaxsparse::MaskedMatmulAttrs>()
                                  .Arg<ffi::AnyBuffer>()   // a
                                  .Arg<ffi::AnyBuffer>()   // b
                                  .Arg<ffi::AnyBuffer>()   // a_words
                                  .Arg<ffi::AnyBuffer>()   // b_words
                                  .Arg<ffi::AnyBuffer>()   // out_words
                                  .Ret<ffi::AnyBuffer>()   // out
                                  .Ret<ffi::AnyBuffer>(),  // scratch
                              {ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskedMatmulCudaInit, jaxsparse::MaskedMatmulInit,
                              ffi::Ffi::Bind<ffi::ExecutionStage::kInitialize>());
