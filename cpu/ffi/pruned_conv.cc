// The handler of jaxsparse_pruned_conv on the CPU (docs/kernels/contract.md).
#include "cpu/ffi/pruned_decode.h"

namespace jaxsparse {
namespace {

namespace ffi = xla::ffi;

ffi::Future PrunedConv(ffi::ThreadPool pool, ffi::AnyBuffer x, ffi::BufferR1<ffi::F32> values,
                       ffi::BufferR1<ffi::F32> bias, ffi::Buffer<ffi::S32> starts,
                       ffi::BufferR1<ffi::U16> indices, ffi::BufferR1<ffi::S32> rows,
                       ffi::BufferR1<ffi::U8> extra, ffi::Result<ffi::AnyBuffer> out,
                       ffi::Result<ffi::BufferR1<ffi::U8>> scratch, int64_t executor,
                       int64_t activation, int64_t precision, int64_t tile, int64_t block,
                       int64_t parts, int64_t code, int64_t channels_first, int64_t kernel_h,
                       int64_t kernel_w, int64_t stride_h, int64_t stride_w, int64_t pad_top,
                       int64_t pad_left, int64_t dilation_h, int64_t dilation_w,
                       int64_t lhs_dilation_h, int64_t lhs_dilation_w) {
  static_cast<void>(extra);
  static_cast<void>(precision);  // products are float32 either way
  static_cast<void>(code);
  const auto xs = x.dimensions(), os = out->dimensions();
  if (xs.size() != 4 || os.size() != 4 || xs[0] != os[0]) {
    return FailedFuture("pruned_conv: x or the result has the wrong shape");
  }
  const size_t height = channels_first ? 2 : 1, channel = channels_first ? 1 : 3;
  PrunedArgs args = {};
  args.channels_first = channels_first != 0;
  args.geometry = {
      xs[0],       xs[height], xs[height + 1], xs[channel],    os[height],     os[height + 1],
      os[channel], kernel_h,   kernel_w,       stride_h,       stride_w,       pad_top,
      pad_left,    dilation_h, dilation_w,     lhs_dilation_h, lhs_dilation_w, 1};
  const PrunedPacked packed = {values,   bias,       starts, indices, rows,
                               executor, activation, tile,   block,   parts};
  if (kernel_h < 0 || kernel_w < 0 || !ValidGeometry(args.geometry) ||
      !DecodePruned(packed, x, out, scratch, &args)) {
    return FailedFuture("pruned_conv: operands, results and attributes disagree");
  }
  return RunPruned(pool, args, "pruned_conv: scratch is too small");
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparsePrunedConvCpu, jaxsparse::PrunedConv,
                              jaxsparse::BindPruned()
                                  .Attr<int64_t>("channels_first")
                                  .Attr<int64_t>("kernel_h")
                                  .Attr<int64_t>("kernel_w")
                                  .Attr<int64_t>("stride_h")
                                  .Attr<int64_t>("stride_w")
                                  .Attr<int64_t>("pad_top")
                                  .Attr<int64_t>("pad_left")
                                  .Attr<int64_t>("dilation_h")
                                  .Attr<int64_t>("dilation_w")
                                  .Attr<int64_t>("lhs_dilation_h")
                                  .Attr<int64_t>("lhs_dilation_w"));
