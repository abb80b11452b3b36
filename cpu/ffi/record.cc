// The handler of jaxsparse_record_segments on the CPU (contracts/bounded.toml).
#include <algorithm>
#include <memory>

#include "contracts/record_segments.gen.h"
#include "cpu/core/workers.h"
#include "cpu/recorder/record_job.h"

namespace jaxsparse {
namespace {

namespace ffi = xla::ffi;

ffi::Future RecordSegments(ffi::ThreadPool pool, contract::record_segments::Attributes attributes,
                           ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::record_segments::Decode(attributes, operands, results);
  if (call.has_error()) return contract::Failed(call.error());
  if (call->nothing()) return contract::Done();
  BoundedRecordArgs args = {};
  args.rows = call->rows;
  args.n = call->n;
  args.segment = call->segment;
  args.segments = call->codes.dims[1];
  args.values = call->values.data;
  args.bytes = static_cast<int>(ffi::ByteWidth(call->values.type));
  args.upper = static_cast<uint32_t>(call->upper_bits);
  args.codes = call->codes.as<uint8_t>();
  const int64_t most = std::max<int64_t>(args.rows * args.n / (1 << 15), 1);
  return RunWorkers(pool, std::min(PoolWorkers(pool), most),
                    std::make_shared<BoundedRecordJob>(args));
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseRecordSegmentsCpu, jaxsparse::RecordSegments,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Attrs<jaxsparse::contract::record_segments::Attributes>()
                                  .RemainingArgs()
                                  .RemainingRets());
