// The handler of jaxsparse_fill_rows on CUDA (docs/contract.md).
#include "cuda/kernels/bounded_fill/launch.h"

#include "cuda/ffi/common.h"

namespace jaxsparse {
namespace {

ffi::Error FillRows(cudaStream_t stream, ffi::AnyBuffer base, ffi::AnyBuffer table,
                    ffi::BufferR1<ffi::S32> select, ffi::Result<ffi::AnyBuffer> out) {
  const auto os = out->dimensions(), ts = table.dimensions();
  const bool based = base.element_count() != 0;
  if (!ToDType(out->element_type()) || table.element_type() != out->element_type() ||
      os.size() != 2 || ts.size() != 2 || ts[1] != os[1] || select.dimensions()[0] != os[0] ||
      (based && (base.element_type() != out->element_type() || !HasShape(base, {os[0], os[1]})))) {
    return ffi::Error::InvalidArgument("fill_rows: operands and result disagree");
  }
  if (based && base.untyped_data() != out->untyped_data()) {
    const cudaError_t error = cudaMemcpyAsync(out->untyped_data(), base.untyped_data(),
                                              out->size_bytes(), cudaMemcpyDeviceToDevice, stream);
    if (error != cudaSuccess) return CudaStatus("fill_rows", error);
  }
  BoundedFillArgs args = {};
  args.rows = os[0];
  args.bytes = os[1] * (out->element_type() == ffi::DataType::F32 ? 4 : 2);
  args.entries = ts[0];
  args.table = table.untyped_data();
  args.select = select.typed_data();
  args.out = out->untyped_data();
  return CudaStatus("fill_rows", LaunchBoundedFill(args, stream));
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseFillRowsCuda, jaxsparse::FillRows,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::PlatformStream<cudaStream_t>>()
                                  .Arg<xla::ffi::AnyBuffer>()                // base
                                  .Arg<xla::ffi::AnyBuffer>()                // table
                                  .Arg<xla::ffi::BufferR1<xla::ffi::S32>>()  // select
                                  .Ret<xla::ffi::AnyBuffer>(),
                              {xla::ffi::Traits::kCmdBufferCompatible});
