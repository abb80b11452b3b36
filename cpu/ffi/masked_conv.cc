// The handler of jaxsparse_masked_conv on the CPU.
#include "cpu/ffi/masked_conv_decode.h"
#include "cpu/ffi/masked_conv_operands.h"

namespace jaxsparse {
namespace {

namespace ffi = xla::ffi;

ffi::Future MaskedConv(ffi::ThreadPool pool, ffi::AnyBuffer x, ffi::AnyBuffer kernel,
                       ffi::Buffer<ffi::S32> ids, ffi::BufferR0<ffi::S32> count,
                       ffi::BufferR3<ffi::U32> words, ffi::Buffer<ffi::U32> x_words,
                       ffi::BufferR1<ffi::F32> bias, ffi::AnyBuffer base, ffi::AnyBuffer residual,
                       ffi::Result<ffi::AnyBuffer> out, ffi::Result<ffi::BufferR1<ffi::U8>> scratch,
                       int64_t stride_h, int64_t stride_w, int64_t pad_top, int64_t pad_left,
                       int64_t dilation_h, int64_t dilation_w, int64_t lhs_dilation_h,
                       int64_t lhs_dilation_w, int64_t groups, int64_t tile_h, int64_t tile_w,
                       int64_t activation, int64_t precision, int64_t variant) {
  static_cast<void>(precision);  // products are float32 either way
  auto args =
      DecodeOperands(x, kernel, ids, count, words, x_words, bias, base, residual, out, scratch);
  if (args.has_error()) return FailedFuture(args.error());
  const ConvWindow window = {stride_h,   stride_w,   pad_top,        pad_left,
                             dilation_h, dilation_w, lhs_dilation_h, lhs_dilation_w,
                             groups,     tile_h,     tile_w,         activation};
  if (!SetWindow(window, variant, &*args)) {
    return FailedFuture("masked_conv: an attribute is out of range");
  }
  return RunConv(pool, *args);
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskedConvCpu, jaxsparse::MaskedConv,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::AnyBuffer>()                // x
                                  .Arg<xla::ffi::AnyBuffer>()                // kernel
                                  .Arg<xla::ffi::Buffer<xla::ffi::S32>>()    // ids
                                  .Arg<xla::ffi::BufferR0<xla::ffi::S32>>()  // count
                                  .Arg<xla::ffi::BufferR3<xla::ffi::U32>>()  // words
                                  .Arg<xla::ffi::Buffer<xla::ffi::U32>>()    // x_words
                                  .Arg<xla::ffi::BufferR1<xla::ffi::F32>>()  // bias
                                  .Arg<xla::ffi::AnyBuffer>()                // base
                                  .Arg<xla::ffi::AnyBuffer>()                // residual
                                  .Ret<xla::ffi::AnyBuffer>()                // out
                                  .Ret<xla::ffi::BufferR1<xla::ffi::U8>>()   // scratch
                                  .Attr<int64_t>("stride_h")
                                  .Attr<int64_t>("stride_w")
                                  .Attr<int64_t>("pad_top")
                                  .Attr<int64_t>("pad_left")
                                  .Attr<int64_t>("dilation_h")
                                  .Attr<int64_t>("dilation_w")
                                  .Attr<int64_t>("lhs_dilation_h")
                                  .Attr<int64_t>("lhs_dilation_w")
                                  .Attr<int64_t>("groups")
                                  .Attr<int64_t>("tile_h")
                                  .Attr<int64_t>("tile_w")
                                  .Attr<int64_t>("activation")
                                  .Attr<int64_t>("precision")
                                  .Attr<int64_t>("variant"));
