// The handler of jaxsparse_masked_conv on the CPU.
#include <memory>
#include <optional>
#include <string>

#include "cpu/core/workers.h"
#include "cpu/ffi/masked_conv_decode.h"
#include "cpu/kernels/masked_conv_job.h"

namespace jaxsparse {
namespace {

namespace ffi = xla::ffi;

ffi::ErrorOr<MaskedConvArgs> Decode(ffi::AnyBuffer x, ffi::AnyBuffer kernel,
                                    ffi::Buffer<ffi::S32> ids, ffi::BufferR0<ffi::S32> count,
                                    ffi::BufferR3<ffi::U32> words, ffi::Buffer<ffi::U32> x_words,
                                    ffi::BufferR1<ffi::F32> bias, ffi::AnyBuffer base,
                                    ffi::Result<ffi::AnyBuffer> out,
                                    ffi::Result<ffi::BufferR1<ffi::U8>> scratch) {
  const std::optional<DType> in_type = DTypeOf(x.element_type());
  const std::optional<DType> out_type = DTypeOf(out->element_type());
  if (!in_type || !out_type || kernel.element_type() != x.element_type()) {
    return ffi::Unexpected(ffi::Error::InvalidArgument("masked_conv: unsupported element type"));
  }
  const auto xs = x.dimensions(), ks = kernel.dimensions(), os = out->dimensions();
  const auto is = ids.dimensions();
  if (xs.size() != 4 || ks.size() != 4 || os.size() != 4 || is.size() < 1 || is.size() > 2) {
    return ffi::Unexpected(
        ffi::Error::InvalidArgument("masked_conv: an operand has the wrong rank"));
  }
  if (base.element_count() > 0 && base.untyped_data() != out->untyped_data()) {
    return ffi::Unexpected(
        ffi::Error::InvalidArgument("masked_conv: base is not aliased to the result"));
  }
  MaskedConvArgs args = {};
  args.geometry.batch = xs[0];
  args.geometry.in_h = xs[1];
  args.geometry.in_w = xs[2];
  args.geometry.in_c = xs[3];
  args.geometry.out_h = os[1];
  args.geometry.out_w = os[2];
  args.geometry.out_c = os[3];
  args.geometry.kernel_h = ks[0];
  args.geometry.kernel_w = ks[1];
  args.tiles.ids = ids.typed_data();
  args.tiles.count = *count.typed_data();
  args.tiles.capacity = is[0];
  args.tiles.grid_aligned = is.size() == 1;
  args.tiles.words = words.typed_data();
  args.in_type = *in_type;
  args.out_type = *out_type;
  args.x = x.untyped_data();
  args.kernel = kernel.untyped_data();
  args.x_words = x_words.element_count() > 0 ? x_words.typed_data() : nullptr;
  args.bias = bias.element_count() > 0 ? bias.typed_data() : nullptr;
  args.zero_fill = base.element_count() == 0;
  args.out = out->untyped_data();
  args.scratch = scratch->typed_data();
  args.scratch_bytes = static_cast<int64_t>(scratch->element_count());
  return args;
}

ffi::Future MaskedConv(ffi::ThreadPool pool, ffi::AnyBuffer x, ffi::AnyBuffer kernel,
                       ffi::Buffer<ffi::S32> ids, ffi::BufferR0<ffi::S32> count,
                       ffi::BufferR3<ffi::U32> words, ffi::Buffer<ffi::U32> x_words,
                       ffi::BufferR1<ffi::F32> bias, ffi::AnyBuffer base,
                       ffi::Result<ffi::AnyBuffer> out, ffi::Result<ffi::BufferR1<ffi::U8>> scratch,
                       int64_t stride_h, int64_t stride_w, int64_t pad_top, int64_t pad_left,
                       int64_t dilation_h, int64_t dilation_w, int64_t lhs_dilation_h,
                       int64_t lhs_dilation_w, int64_t groups, int64_t tile_h, int64_t tile_w,
                       int64_t activation, int64_t precision, int64_t variant) {
  static_cast<void>(precision);  // products are float32 either way
  auto decoded = Decode(x, kernel, ids, count, words, x_words, bias, base, out, scratch);
  if (decoded.has_error()) return FailedFuture(decoded.error());
  MaskedConvArgs args = *decoded;
  ConvGeometry& g = args.geometry;
  g.stride_h = stride_h;
  g.stride_w = stride_w;
  g.pad_top = pad_top;
  g.pad_left = pad_left;
  g.dilation_h = dilation_h;
  g.dilation_w = dilation_w;
  g.lhs_dilation_h = lhs_dilation_h;
  g.lhs_dilation_w = lhs_dilation_w;
  g.groups = groups;
  args.tiles.tile_h = tile_h;
  args.tiles.tile_w = tile_w;
  args.activation = static_cast<Activation>(activation);
  args.variant = variant;
  const bool known = activation >= 0 && activation <= static_cast<int64_t>(Activation::kGelu);
  if (!known || !ValidGeometry(g) || !ValidTiles(args.tiles, variant)) {
    return FailedFuture("masked_conv: an attribute is out of range");
  }
  auto job = std::make_shared<MaskedConvJob>(args, PoolWorkers(pool));
  if (job->workers() == 0) {
    return FailedFuture("masked_conv: scratch is smaller than " +
                        std::to_string(MaskedConvJob::ScratchBytes(g, args.in_type, 1)) + " bytes");
  }
  return RunWorkers(pool, job->workers(), job);
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
