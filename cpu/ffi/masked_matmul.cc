// The handler of jaxsparse_masked_matmul on the CPU.
#include "cpu/kernels/masked_matmul.h"

#include <memory>
#include <optional>
#include <string>

#include "cpu/core/workers.h"
#include "cpu/ffi/matmul_decode.h"
#include "cpu/kernels/masked_matmul_job.h"

namespace jaxsparse {
namespace {

namespace ffi = xla::ffi;

using Words = ffi::BufferR3<ffi::U32>;

int64_t Blocks(int64_t size, int64_t block) { return (size + block - 1) / block; }

// Empty where the words do not describe a matrix of rows x columns, `lists` times or once.
std::optional<BlockBits> Decode(const Words& words, int64_t lists, int64_t rows, int64_t columns,
                                int64_t row_size, int64_t col_size) {
  if (row_size < 1 || col_size < 1) return std::nullopt;
  if (words.element_count() == 0) return BlockBits{nullptr, 1, 0, 0, row_size, col_size};
  const auto dims = words.dimensions();
  if ((dims[0] != 1 && dims[0] != lists) || dims[1] != Blocks(rows, row_size) ||
      dims[2] != Blocks(Blocks(columns, col_size), 32)) {
    return std::nullopt;
  }
  return BlockBits{words.typed_data(), dims[0], dims[1], dims[2], row_size, col_size};
}

ffi::Future MaskedMatmul(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::AnyBuffer b, Words a_words,
                         Words b_words, Words out_words, ffi::Result<ffi::AnyBuffer> out,
                         ffi::Result<ffi::BufferR1<ffi::U8>> scratch, int64_t a_rows,
                         int64_t a_cols, int64_t b_rows, int64_t b_cols, int64_t out_rows,
                         int64_t out_cols, int64_t precision, int64_t variant) {
  static_cast<void>(precision);  // products are float32 either way
  const auto in_type = DTypeOf(a.element_type()), out_type = DTypeOf(out->element_type());
  const auto as = a.dimensions(), bs = b.dimensions(), os = out->dimensions();
  if (!in_type || !out_type || b.element_type() != a.element_type() || as.size() != 3 ||
      bs.size() != 3 || os.size() != 3) {
    return FailedProduct("masked_matmul: an operand has the wrong type or rank");
  }
  MaskedMatmulArgs args = {};
  args.lists = os[0];
  args.rows = os[1];
  args.depth = as[2];
  args.columns = os[2];
  args.a_lists = as[0];
  args.b_lists = bs[0];
  const auto a_bits = Decode(a_words, args.lists, args.rows, args.depth, a_rows, a_cols);
  const auto b_bits = Decode(b_words, args.lists, args.depth, args.columns, b_rows, b_cols);
  const auto out_bits = Decode(out_words, args.lists, args.rows, args.columns, out_rows, out_cols);
  const bool shapes = as[1] == os[1] && bs[1] == as[2] && bs[2] == os[2] &&
                      (as[0] == 1 || as[0] == os[0]) && (bs[0] == 1 || bs[0] == os[0]);
  if (!shapes || !a_bits || !b_bits || !out_bits || variant < 0 || variant >= kMaskedVariantCount ||
      args.depth > INT32_MAX / (2 * kMaxProductRows)) {
    return FailedProduct("masked_matmul: operands and attributes disagree");
  }
  args.a_bits = *a_bits;
  args.b_bits = *b_bits;
  args.out_bits = *out_bits;
  args.in_type = *in_type;
  args.out_type = *out_type;
  args.variant = variant;
  args.a = a.untyped_data();
  args.b = b.untyped_data();
  args.out = out->untyped_data();
  args.scratch = scratch->typed_data();
  args.scratch_bytes = static_cast<int64_t>(scratch->element_count());
  auto job = std::make_shared<MaskedMatmulJob>(args, PoolWorkers(pool));
  if (job->workers() == 0) {
    return FailedProduct("masked_matmul: scratch needs at least " +
                         std::to_string(MaskedMatmulJob::ScratchBytes(args, 1)) + " bytes");
  }
  return RunWorkers(pool, job->workers(), job);
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskedMatmulCpu, jaxsparse::MaskedMatmul,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::AnyBuffer>()                // a
                                  .Arg<xla::ffi::AnyBuffer>()                // b
                                  .Arg<xla::ffi::BufferR3<xla::ffi::U32>>()  // a_words
                                  .Arg<xla::ffi::BufferR3<xla::ffi::U32>>()  // b_words
                                  .Arg<xla::ffi::BufferR3<xla::ffi::U32>>()  // out_words
                                  .Ret<xla::ffi::AnyBuffer>()                // out
                                  .Ret<xla::ffi::BufferR1<xla::ffi::U8>>()   // scratch
                                  .Attr<int64_t>("a_rows")
                                  .Attr<int64_t>("a_cols")
                                  .Attr<int64_t>("b_rows")
                                  .Attr<int64_t>("b_cols")
                                  .Attr<int64_t>("out_rows")
                                  .Attr<int64_t>("out_cols")
                                  .Attr<int64_t>("precision")
                                  .Attr<int64_t>("variant"));
