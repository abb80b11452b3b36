// The handler of jaxsparse_record_segments on CUDA (contracts/bounded.toml).
#include "cuda/recorder/record.h"

#include "contracts/record_segments.gen.h"
#include "cuda/ffi/common.h"

namespace jaxsparse {
namespace {

ffi::Error RecordSegments(cudaStream_t stream, contract::record_segments::Attributes attributes,
                          ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::record_segments::Decode(attributes, operands, results);
  if (call.has_error()) return call.error();
  if (call->nothing()) return ffi::Error::Success();
  BoundedRecordArgs args = {};
  args.rows = call->rows;
  args.n = call->n;
  args.segment = call->segment;
  args.segments = call->codes.dims[1];
  args.values = call->values.data;
  args.bytes = ElementBytes(ToDType(call->values.type));
  args.upper = static_cast<uint32_t>(call->upper_bits);
  args.codes = call->codes.as<uint8_t>();
  return CudaStatus("record_segments", LaunchBoundedRecord(args, stream));
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JaxsparseRecordSegmentsCuda, jaxsparse::RecordSegments,
    jaxsparse::BindCall<jaxsparse::contract::record_segments::Attributes>(),
    {xla::ffi::Traits::kCmdBufferCompatible});
