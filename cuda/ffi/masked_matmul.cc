// Handler of jaxsparse_masked_matmul on CUDA (contracts/masked_matmul.toml): one kernel family.
#include "contracts/masked_matmul.gen.h"
#include "cuda/ffi/common.h"
#include "cuda/kernels/masked_matmul/fine/launch.h"
#include "cuda/kernels/masked_matmul/launch.h"
#include "cuda/kernels/masked_matmul/sampled/launch.h"

namespace jaxsparse {
namespace {

using contract::masked_matmul::Call;

constexpr char kOp[] = "masked_matmul";
constexpr int64_t kDirect = 0, kSampled = 5, kTurned = 6, kFine = 9;  // others: 1 + StripChoice

// `columns` entries are a row of the masked matrix.
BlockBits BitsOf(const contract::Array& words, int64_t columns, int64_t row_size,
                 int64_t col_size) {
  if (!words.given()) return {nullptr, 1, 0, 0, row_size, col_size};
  const bool bools = words.type == ffi::DataType::PRED;
  const int64_t blocks = CeilOf(columns, col_size).or_max();
  return {static_cast<const uint32_t*>(words.data),
          words.dims[0],
          words.dims[1],
          WordsOf(blocks).or_max(),
          row_size,
          col_size,
          bools,
          blocks};
}

MaskedMatmulArgs ArgsOf(const Call& c) {
  MaskedMatmulArgs args = {};
  args.lists = c.lists;
  args.rows = c.rows;
  args.depth = c.depth;
  args.columns = c.columns;
  args.a_lists = c.a_lists;
  args.b_lists = c.b_lists;
  args.a_bits = BitsOf(c.a_words, c.depth, c.a_rows, c.a_cols);
  args.b_bits = BitsOf(c.b_words, c.columns, c.b_rows, c.b_cols);
  args.out_bits = BitsOf(c.out_words, c.columns, c.out_rows, c.out_cols);
  args.in_type = ToDType(c.a.type);
  args.out_type = ToDType(c.out.type);
  args.highest = c.precision == 1;
  args.turned = c.variant == kTurned;
  args.a = c.a.data;
  args.b = c.b.data;
  args.out = c.out.data;
  args.scratch = c.scratch.data;
  args.scratch_bytes = c.scratch_bytes;
  return args;
}

// The last axis of a mask on `a`: words, or its blocks as they are.
const char* MaskReason(const Call& c, const BlockBits& bits) {
  if (!c.a_words.given()) return nullptr;
  if (c.words_or_blocks != (bits.is_bools ? bits.columns : bits.row_words)) {
    return "a_words must be u32[a_masks, ceil(rows, a_rows), words(ceil(depth, a_cols))] or "
           "pred[a_masks, ceil(rows, a_rows), ceil(depth, a_cols)]";
  }
  if (bits.is_bools && (c.variant == kDirect || c.variant == kSampled || c.variant == kFine)) {
    return "this variant takes a_words of u32";
  }
  return nullptr;
}

// `b` is [L or 1, n, k] here.
ffi::Error Sampled(const MaskedMatmulArgs& args, cudaStream_t stream) {
  if (args.a_bits.words != nullptr || args.b_bits.words != nullptr) {
    return Invalid(kOp, "sampled products take no mask on an operand");
  }
  if (const char* reason = SampledMatmulReason(args)) return Invalid(kOp, reason);
  const int64_t needed = SampledMatmulScratchBytes(args);
  if (args.scratch_bytes < needed) return TooSmall(kOp, args.scratch_bytes, needed, "bytes");
  return CudaStatus(kOp, LaunchSampledMatmul(args, stream));
}

ffi::Error Fine(const MaskedMatmulArgs& args, cudaStream_t stream) {
  if (const char* reason = FineMatmulReason(args)) return Invalid(kOp, reason);
  const int64_t needed = FineMatmulScratchBytes(args);
  if (args.scratch_bytes < needed) return TooSmall(kOp, args.scratch_bytes, needed, "bytes");
  return CudaStatus(kOp, LaunchFineMatmul(args, stream));
}

// Why tiles of this kind cannot run, or nullptr.
const char* TileReason(const MaskedMatmulArgs& args, StripChoice tile) {
  if ((tile == StripChoice::kPieces || tile == StripChoice::kPanels) &&
      !MaskedMatmulTakesPieces(args)) {
    return "tiles of pieces need a mask on a, of whole 32 rows and 128 bytes, and none on the "
           "result";
  }
  const bool sorted = MaskedMatmulTakesSorted(args);
  if (tile == StripChoice::kSorted && !sorted) {
    return "sorted columns need a mask on a alone, of whole 32 rows but not of whole 128 bytes of "
           "K, and rows of whole 128 bytes in b";
  }
  if (args.a_bits.is_bools && sorted && tile != StripChoice::kSorted &&
      tile != StripChoice::kAuto) {
    return "this variant takes such a mask in words";
  }
  return nullptr;
}

ffi::Error Strips(const MaskedMatmulArgs& args, int64_t variant, cudaStream_t stream) {
  if (const char* reason = MaskedMatmulStripsReason(args)) return Invalid(kOp, reason);
  const int64_t needed = MaskedMatmulStripsScratchBytes(args);
  if (args.scratch_bytes < needed) return TooSmall(kOp, args.scratch_bytes, needed, "bytes");
  const auto tile = args.turned ? StripChoice::kPanels : static_cast<StripChoice>(variant - 1);
  if (const char* reason = TileReason(args, tile)) return Invalid(kOp, reason);
  return CudaStatus(kOp, LaunchMaskedMatmulStrips(args, tile, stream));
}

ffi::Error MaskedMatmul(cudaStream_t stream, contract::masked_matmul::Attributes attributes,
                        ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::masked_matmul::Decode(attributes, operands, results);
  if (call.has_error()) return call.error();
  const MaskedMatmulArgs args = ArgsOf(*call);
  if (const char* reason = MaskReason(*call, args.a_bits)) return Invalid(kOp, reason);
  if (call->nothing()) return ffi::Error::Success();
  if (call->variant == kDirect) return CudaStatus(kOp, LaunchMaskedMatmulDirect(args, stream));
  if (call->variant == kSampled) return Sampled(args, stream);
  if (call->variant == kFine) return Fine(args, stream);
  return Strips(args, call->variant, stream);
}

ffi::Error MaskedMatmulInit() {
  static OncePerDevice* once = new OncePerDevice;
  return CudaStatus(kOp, once->Run([](int) {
    cudaError_t status = PrepareMaskedMatmulDirect();
    if (status == cudaSuccess) status = PrepareMaskedMatmulStrips();
    if (status == cudaSuccess) status = PrepareFineMatmul();
    return status == cudaSuccess ? PrepareSampledMatmul() : status;
  }));
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskedMatmulCuda, jaxsparse::MaskedMatmul,
                              jaxsparse::BindCall<jaxsparse::contract::masked_matmul::Attributes>(),
                              {xla::ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskedMatmulCudaInit, jaxsparse::MaskedMatmulInit,
                              jaxsparse::BindInit());
