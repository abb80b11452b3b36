// The handler of jaxsparse_record_segments on CUDA (docs/contract.md).
#include "cuda/recorder/record.h"

#include "cuda/ffi/common.h"

namespace jaxsparse {
namespace {

ffi::Error RecordSegments(cudaStream_t stream, ffi::AnyBuffer values,
                          ffi::ResultBufferR2<ffi::U8> codes, int64_t segment, int64_t upper_bits) {
  const auto vs = values.dimensions(), cs = codes->dimensions();
  if (!ToDType(values.element_type()) || vs.size() != 2 || segment < 1 || cs[0] != vs[0] ||
      cs[1] != (vs[1] + segment - 1) / segment) {
    return ffi::Error::InvalidArgument("record_segments: operand, result and attributes disagree");
  }
  BoundedRecordArgs args = {};
  args.rows = vs[0];
  args.n = vs[1];
  args.segment = segment;
  args.segments = cs[1];
  args.values = values.untyped_data();
  args.bytes = values.element_type() == ffi::DataType::F32 ? 4 : 2;
  args.upper = static_cast<uint32_t>(upper_bits);
  args.codes = codes->typed_data();
  return CudaStatus("record_segments", LaunchBoundedRecord(args, stream));
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseRecordSegmentsCuda, jaxsparse::RecordSegments,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::PlatformStream<cudaStream_t>>()
                                  .Arg<xla::ffi::AnyBuffer>()               // values
                                  .Ret<xla::ffi::BufferR2<xla::ffi::U8>>()  // codes
                                  .Attr<int64_t>("segment")
                                  .Attr<int64_t>("upper_bits"),
                              {xla::ffi::Traits::kCmdBufferCompatible});
