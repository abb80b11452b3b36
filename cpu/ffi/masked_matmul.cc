// The handler of jaxsparse_masked_matmul on the CPU (contracts/masked_matmul.toml). Products are
// float32 at either precision.
#include "contracts/masked_matmul.gen.h"
#include "cpu/ffi/dtype.h"
#include "cpu/ffi/run_job.h"
#include "cpu/kernels/masked_matmul/args.h"
#include "cpu/kernels/masked_matmul/job.h"

namespace jaxsparse {
namespace {

namespace ffi = xla::ffi;

BlockBits BitsOf(const contract::Array& words, int64_t row_size, int64_t col_size) {
  if (!words.given()) return {nullptr, 1, 0, 0, row_size, col_size};
  return {words.as<uint32_t>(), words.dims[0], words.dims[1], words.dims[2], row_size, col_size};
}

ffi::Future MaskedMatmul(ffi::ThreadPool pool, contract::masked_matmul::Attributes attributes,
                         ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::masked_matmul::Decode(attributes, operands, results);
  if (call.has_error()) return contract::Failed(call.error());
  const auto& c = *call;
  if (c.nothing()) return contract::Done();
  MaskedMatmulArgs args = {};
  args.lists = c.lists;
  args.rows = c.rows;
  args.depth = c.depth;
  args.columns = c.columns;
  args.a_lists = c.a_lists;
  args.b_lists = c.b_lists;
  args.a_bits = BitsOf(c.a_words, c.a_rows, c.a_cols);
  args.b_bits = BitsOf(c.b_words, c.b_rows, c.b_cols);
  args.out_bits = BitsOf(c.out_words, c.out_rows, c.out_cols);
  args.in_type = ToDType(c.a.type);
  args.out_type = ToDType(c.out.type);
  args.variant = c.variant;
  args.a = c.a.data;
  args.b = c.b.data;
  args.out = c.out.data;
  args.scratch = c.scratch.data;
  args.scratch_bytes = c.scratch_bytes;
  return RunJob<MaskedMatmulJob>("masked_matmul", pool, args);
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskedMatmulCpu, jaxsparse::MaskedMatmul,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Attrs<jaxsparse::contract::masked_matmul::Attributes>()
                                  .RemainingArgs()
                                  .RemainingRets());
