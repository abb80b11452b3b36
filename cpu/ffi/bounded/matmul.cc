// The handler of jaxsparse_bounded_matmul on the CPU (contracts/bounded.toml): one dataflow,
// vectorised over images.
#include "contracts/bounded_matmul.gen.h"
#include "cpu/ffi/bounded/decode.h"
#include "cpu/ffi/run_job.h"
#include "cpu/kernels/bounded_matmul/job.h"

namespace jaxsparse {
namespace {

namespace ffi = xla::ffi;

ffi::Future BoundedMatmul(ffi::ThreadPool pool, contract::bounded_matmul::Attributes attributes,
                          ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::bounded_matmul::Decode(attributes, operands, results);
  if (call.has_error()) return contract::Failed(call.error());
  const auto& c = *call;
  if (!BoundedExpandFits(c.expand, c.distinct)) {
    return contract::Failed("bounded_matmul: expand names a row that does not exist");
  }
  if (c.nothing()) return contract::Done();
  BoundedMatmulArgs args = {};
  args.layer = {c.n_in,
                c.distinct,
                c.entries,
                c.starts.as<int32_t>(),
                c.indices.data,
                BoundedIndexIsWide(c.indices),
                false,
                c.weights.as<float>(),
                c.bias.as<float>(),
                c.upper};
  args.batch = c.batch;
  args.n_out = c.n_out;
  args.values = c.values.as<float>();
  args.codes = c.codes.as<uint8_t>();
  args.segment_in = c.segment_in;
  args.segments_in = c.codes.dims[1];
  args.upper_in = c.upper_in;
  args.expand = c.expand.as<int32_t>();
  args.segment = c.segment;
  args.segments = c.out_codes.dims[1];
  args.record = c.record != 0;
  args.zero_stays = c.zero_stays != 0;
  args.keeps_upper = c.keeps_upper != 0;
  args.out = c.out.as<float>();
  args.out_codes = c.out_codes.as<uint8_t>();
  args.scratch = c.scratch.data;
  args.scratch_bytes = c.scratch_bytes;
  return RunJob<BoundedMatmulJob>("bounded_matmul", pool, args);
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseBoundedMatmulCpu, jaxsparse::BoundedMatmul,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Attrs<jaxsparse::contract::bounded_matmul::Attributes>()
                                  .RemainingArgs()
                                  .RemainingRets());
