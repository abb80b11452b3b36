// The handler of jaxsparse_bounded_matmul on the CPU (docs/kernels/contract.md).
#include <memory>

#include "cpu/core/workers.h"
#include "cpu/ffi/bounded_decode.h"
#include "cpu/kernels/bounded_matmul_job.h"

namespace jaxsparse {
namespace {

namespace ffi = xla::ffi;

ffi::Future BoundedMatmul(ffi::ThreadPool pool, ffi::BufferR2<ffi::F32> values,
                          ffi::BufferR2<ffi::U8> codes, ffi::BufferR1<ffi::S32> starts,
                          ffi::AnyBuffer indices, ffi::BufferR1<ffi::F32> weights,
                          ffi::BufferR1<ffi::F32> bias, ffi::BufferR1<ffi::S32> expand,
                          ffi::ResultBufferR2<ffi::F32> out, ffi::ResultBufferR2<ffi::U8> out_codes,
                          ffi::ResultBufferR1<ffi::U8> scratch, int64_t segment_in, float upper_in,
                          int64_t segment, float upper, int64_t record, int64_t zero_stays,
                          int64_t keeps_upper, int64_t dataflow) {
  static_cast<void>(dataflow);  // one way here: vectorised over images
  const auto vs = values.dimensions(), cs = codes.dimensions(), os = out->dimensions();
  const auto rs = out_codes->dimensions();
  const int64_t distinct = static_cast<int64_t>(bias.element_count());
  const int64_t entries = static_cast<int64_t>(weights.element_count());
  if (!BoundedIndexType(indices) || static_cast<int64_t>(indices.element_count()) != entries ||
      static_cast<int64_t>(starts.element_count()) != distinct + 1 || cs[0] != vs[0] ||
      os[0] != vs[0] || rs[0] != vs[0] || segment_in < 1 || segment < 1 ||
      cs[1] != (vs[1] + segment_in - 1) / segment_in || rs[1] != (os[1] + segment - 1) / segment ||
      !BoundedExpandFits(expand, os[1], distinct)) {
    return BoundedFailed("bounded_matmul: operands, results and attributes disagree");
  }
  BoundedMatmulArgs args = {};
  args.layer = {vs[1],
                distinct,
                entries,
                starts.typed_data(),
                indices.untyped_data(),
                BoundedIndexIsWide(indices),
                false,
                weights.typed_data(),
                bias.typed_data(),
                upper};
  args.batch = vs[0];
  args.n_out = os[1];
  args.values = values.typed_data();
  args.codes = codes.typed_data();
  args.segment_in = segment_in;
  args.segments_in = cs[1];
  args.upper_in = upper_in;
  args.expand = expand.element_count() > 0 ? expand.typed_data() : nullptr;
  args.segment = segment;
  args.segments = rs[1];
  args.record = record != 0;
  args.zero_stays = zero_stays != 0;
  args.keeps_upper = keeps_upper != 0;
  args.out = out->typed_data();
  args.out_codes = out_codes->typed_data();
  args.scratch = scratch->typed_data();
  args.scratch_bytes = static_cast<int64_t>(scratch->element_count());
  auto job = std::make_shared<BoundedMatmulJob>(args, PoolWorkers(pool));
  if (job->workers() == 0) return BoundedFailed("bounded_matmul: scratch is too small");
  return RunWorkers(pool, job->workers(), job);
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseBoundedMatmulCpu, jaxsparse::BoundedMatmul,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::BufferR2<xla::ffi::F32>>()  // values
                                  .Arg<xla::ffi::BufferR2<xla::ffi::U8>>()   // codes
                                  .Arg<xla::ffi::BufferR1<xla::ffi::S32>>()  // starts
                                  .Arg<xla::ffi::AnyBuffer>()                // indices
                                  .Arg<xla::ffi::BufferR1<xla::ffi::F32>>()  // weights
                                  .Arg<xla::ffi::BufferR1<xla::ffi::F32>>()  // bias
                                  .Arg<xla::ffi::BufferR1<xla::ffi::S32>>()  // expand
                                  .Ret<xla::ffi::BufferR2<xla::ffi::F32>>()  // out
                                  .Ret<xla::ffi::BufferR2<xla::ffi::U8>>()   // codes
                                  .Ret<xla::ffi::BufferR1<xla::ffi::U8>>()   // scratch
                                  .Attr<int64_t>("segment_in")
                                  .Attr<float>("upper_in")
                                  .Attr<int64_t>("segment")
                                  .Attr<float>("upper")
                                  .Attr<int64_t>("record")
                                  .Attr<int64_t>("zero_stays")
                                  .Attr<int64_t>("keeps_upper")
                                  .Attr<int64_t>("dataflow"));
