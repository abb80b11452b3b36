// The handler of jaxsparse_pruned_matmul on the CPU (docs/kernels/contract.md).
#include "cpu/ffi/pruned_decode.h"

namespace jaxsparse {
namespace {

namespace ffi = xla::ffi;

ffi::Future PrunedMatmul(ffi::ThreadPool pool, ffi::AnyBuffer x, ffi::BufferR1<ffi::F32> values,
                         ffi::BufferR1<ffi::F32> bias, ffi::Buffer<ffi::S32> starts,
                         ffi::BufferR1<ffi::U16> indices, ffi::BufferR1<ffi::S32> rows,
                         ffi::BufferR1<ffi::U8> extra, ffi::Result<ffi::AnyBuffer> out,
                         ffi::Result<ffi::BufferR1<ffi::U8>> scratch, int64_t executor,
                         int64_t activation, int64_t precision, int64_t tile, int64_t block,
                         int64_t parts, int64_t code) {
  static_cast<void>(extra);
  static_cast<void>(precision);  // products are float32 either way
  static_cast<void>(code);
  const auto xs = x.dimensions(), os = out->dimensions();
  if (xs.size() != 2 || os.size() != 2 || xs[0] != os[0]) {
    return FailedFuture("pruned_matmul: x or the result has the wrong shape");
  }
  PrunedArgs args = {};
  ConvGeometry& g = args.geometry;
  g.batch = g.in_h = g.out_h = g.kernel_h = g.kernel_w = g.groups = 1;
  g.stride_h = g.stride_w = g.dilation_h = g.dilation_w = g.lhs_dilation_h = g.lhs_dilation_w = 1;
  g.in_w = g.out_w = xs[0];
  g.in_c = xs[1];
  g.out_c = os[1];
  const PrunedPacked packed = {values,   bias,       starts, indices, rows,
                               executor, activation, tile,   block,   parts};
  if (!DecodePruned(packed, x, out, scratch, &args)) {
    return FailedFuture("pruned_matmul: operands, results and attributes disagree");
  }
  return RunPruned(pool, args, "pruned_matmul: scratch is too small");
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparsePrunedMatmulCpu, jaxsparse::PrunedMatmul,
                              jaxsparse::BindPruned());
