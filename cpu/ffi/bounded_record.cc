// The handler of jaxsparse_record_segments on the CPU (docs/kernels/contract.md).
#include <algorithm>
#include <memory>

#include "cpu/core/workers.h"
#include "cpu/ffi/bounded_decode.h"
#include "cpu/kernels/bounded_record_job.h"

namespace jaxsparse {
namespace {

namespace ffi = xla::ffi;

ffi::Future RecordSegments(ffi::ThreadPool pool, ffi::AnyBuffer values,
                           ffi::ResultBufferR2<ffi::U8> codes, int64_t segment,
                           int64_t upper_bits) {
  const auto vs = values.dimensions(), cs = codes->dimensions();
  const auto type = values.element_type();
  const bool half = type == ffi::DataType::BF16 || type == ffi::DataType::F16;
  if (!(half || type == ffi::DataType::F32) || vs.size() != 2 || segment < 1 || cs[0] != vs[0] ||
      cs[1] != (vs[1] + segment - 1) / segment) {
    return BoundedFailed("record_segments: operand, result and attributes disagree");
  }
  BoundedRecordArgs args = {};
  args.rows = vs[0];
  args.n = vs[1];
  args.segment = segment;
  args.segments = cs[1];
  args.values = values.untyped_data();
  args.bytes = half ? 2 : 4;
  args.upper = static_cast<uint32_t>(upper_bits);
  args.codes = codes->typed_data();
  const int64_t most = std::max<int64_t>(args.rows * args.n / (1 << 15), 1);
  return RunWorkers(pool, std::min(PoolWorkers(pool), most),
                    std::make_shared<BoundedRecordJob>(args));
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseRecordSegmentsCpu, jaxsparse::RecordSegments,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::AnyBuffer>()               // values
                                  .Ret<xla::ffi::BufferR2<xla::ffi::U8>>()  // codes
                                  .Attr<int64_t>("segment")
                                  .Attr<int64_t>("upper_bits"));
