// Handlers of jaxsparse_bounded_matmul on CUDA (docs/contract.md).
#include "cuda/kernels/bounded_matmul/launch.h"

#include "cuda/ffi/bounded/decode.h"
#include "cuda/ffi/common.h"

namespace jaxsparse {
namespace {

ffi::Error InitBoundedMatmul() {
  static OncePerDevice once;
  return CudaStatus("bounded_matmul", once.Run([](int) { return PrepareBoundedMatmul(); }));
}

ffi::Error BoundedMatmul(cudaStream_t stream, ffi::BufferR2<ffi::F32> values,
                         ffi::BufferR2<ffi::U8> codes, ffi::BufferR1<ffi::S32> starts,
                         ffi::AnyBuffer indices, ffi::BufferR1<ffi::F32> weights,
                         ffi::BufferR1<ffi::F32> bias, ffi::BufferR1<ffi::S32> expand,
                         ffi::ResultBufferR2<ffi::F32> out, ffi::ResultBufferR2<ffi::U8> out_codes,
                         ffi::ResultBufferR1<ffi::U8> scratch, int64_t segment_in, float upper_in,
                         int64_t segment, float upper, int64_t record, int64_t zero_stays,
                         int64_t keeps_upper, int64_t dataflow) {
  const auto vs = values.dimensions(), cs = codes.dimensions(), os = out->dimensions();
  const auto rs = out_codes->dimensions();
  const int64_t distinct = static_cast<int64_t>(bias.element_count());
  const int64_t entries = static_cast<int64_t>(weights.element_count());
  const int64_t expanded = static_cast<int64_t>(expand.element_count());
  const bool column = dataflow >= static_cast<int64_t>(BoundedDataflow::kColumn);
  if (!BoundedIndexType(indices) || static_cast<int64_t>(indices.element_count()) != entries ||
      static_cast<int64_t>(starts.element_count()) != distinct + 1 || cs[0] != vs[0] ||
      os[0] != vs[0] || rs[0] != vs[0] || segment_in < 1 || segment < 1 ||
      (cs[1] != 0 && cs[1] != (vs[1] + segment_in - 1) / segment_in) ||
      rs[1] != (os[1] + segment - 1) / segment ||
      (expanded == 0 ? os[1] != distinct : expanded != os[1]) || dataflow < 0 || dataflow > 3 ||
      (column && static_cast<int64_t>(scratch->element_count()) < 4 * (vs[0] + 2))) {
    return ffi::Error::InvalidArgument("bounded_matmul: operands, results and attributes disagree");
  }
  if (vs[0] == 0 || os[1] == 0) return ffi::Error::Success();
  BoundedMatmulArgs args = {};
  args.batch = vs[0];
  args.n_in = vs[1];
  args.n_out = os[1];
  args.distinct = distinct;
  args.entries = entries;
  args.values = values.typed_data();
  args.codes = codes.typed_data();
  args.starts = starts.typed_data();
  args.indices = indices.untyped_data();
  args.wide = indices.element_type() == ffi::DataType::S32;
  args.weights = weights.typed_data();
  args.bias = bias.typed_data();
  args.expand = expanded > 0 ? expand.typed_data() : nullptr;
  args.segment_in = segment_in;
  args.segments_in = cs[1];
  args.segment = segment;
  args.segments = rs[1];
  args.upper_in = upper_in;
  args.upper = upper;
  args.record = record != 0;
  args.zero_stays = zero_stays != 0;
  args.keeps_upper = keeps_upper != 0;
  args.out = out->typed_data();
  args.out_codes = out_codes->typed_data();
  args.scratch = static_cast<uint32_t*>(scratch->untyped_data());
  const cudaError_t error =
      LaunchBoundedMatmul(static_cast<BoundedDataflow>(dataflow), args, stream);
  return CudaStatus("bounded_matmul", error);
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseBoundedMatmulCudaInit, jaxsparse::InitBoundedMatmul,
                              xla::ffi::Ffi::Bind<xla::ffi::ExecutionStage::kInitialize>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseBoundedMatmulCuda, jaxsparse::BoundedMatmul,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::PlatformStream<cudaStream_t>>()
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
                                  .Attr<int64_t>("dataflow"),
                              {xla::ffi::Traits::kCmdBufferCompatible});
