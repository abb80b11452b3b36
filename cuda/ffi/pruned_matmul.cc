// Handlers of jaxsparse_pruned_matmul on CUDA (docs/kernels/contract.md).
#include "cuda/ffi/pruned_decode.h"

namespace jaxsparse {
namespace {

ffi::Error PrunedMatmul(cudaStream_t stream, ffi::AnyBuffer x, ffi::AnyBuffer values,
                        ffi::BufferR1<ffi::F32> bias, ffi::BufferR1<ffi::S32> starts,
                        ffi::AnyBuffer indices, ffi::BufferR1<ffi::S32> rows,
                        ffi::BufferR1<ffi::U8> extra, ffi::Result<ffi::AnyBuffer> out,
                        ffi::ResultBufferR1<ffi::U8>, int64_t executor, int64_t activation, int64_t,
                        int64_t tile, int64_t block, int64_t parts, int64_t code) {
  const auto xs = x.dimensions(), os = out->dimensions();
  if (xs.size() != 2 || os.size() != 2 || xs[0] != os[0]) {
    return Invalid("pruned_matmul", "x must be [m, k] and the result [m, n]");
  }
  PrunedArgs args = {};
  args.m = xs[0];
  args.k = xs[1];
  args.n = os[1];
  return RunPruned("pruned_matmul", stream,
                   {x, values, bias, starts, indices, rows, extra, out, executor, activation, tile,
                    block, parts, code},
                   args);
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparsePrunedMatmulCudaInit, jaxsparse::InitPruned,
                              xla::ffi::Ffi::Bind<xla::ffi::ExecutionStage::kInitialize>().Attrs());

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparsePrunedMatmulCuda, jaxsparse::PrunedMatmul,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::PlatformStream<cudaStream_t>>()
                                  .Arg<xla::ffi::AnyBuffer>()                // x
                                  .Arg<xla::ffi::AnyBuffer>()                // values
                                  .Arg<xla::ffi::BufferR1<xla::ffi::F32>>()  // bias
                                  .Arg<xla::ffi::BufferR1<xla::ffi::S32>>()  // starts
                                  .Arg<xla::ffi::AnyBuffer>()                // indices
                                  .Arg<xla::ffi::BufferR1<xla::ffi::S32>>()  // rows
                                  .Arg<xla::ffi::BufferR1<xla::ffi::U8>>()   // extra
                                  .Ret<xla::ffi::AnyBuffer>()                // out
                                  .Ret<xla::ffi::BufferR1<xla::ffi::U8>>()   // scratch
                                  .Attr<int64_t>("executor")
                                  .Attr<int64_t>("activation")
                                  .Attr<int64_t>("precision")
                                  .Attr<int64_t>("tile")
                                  .Attr<int64_t>("block")
                                  .Attr<int64_t>("parts")
                                  .Attr<int64_t>("code"),
                              {xla::ffi::Traits::kCmdBufferCompatible});
