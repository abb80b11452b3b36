// Handlers of jaxsparse_pruned_matmul on CUDA (docs/contract.md).
#include "cuda/ffi/pruned/decode.h"

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
                              jaxsparse::BindPrunedInit());

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparsePrunedMatmulCuda, jaxsparse::PrunedMatmul,
                              jaxsparse::BindPruned(), {xla::ffi::Traits::kCmdBufferCompatible});
