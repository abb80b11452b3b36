#include "cpu/ffi/masked_conv_operands.h"

#include <memory>
#include <optional>
#include <string>

#include "cpu/core/workers.h"
#include "cpu/ffi/masked_conv_decode.h"
#include "cpu/kernels/masked_conv_job.h"

namespace jaxsparse {

namespace ffi = xla::ffi;

ffi::ErrorOr<MaskedConvArgs> DecodeOperands(
    ffi::AnyBuffer x, ffi::AnyBuffer kernel, ffi::Buffer<ffi::S32> ids,
    ffi::BufferR0<ffi::S32> count, ffi::BufferR3<ffi::U32> words, ffi::Buffer<ffi::U32> x_words,
    ffi::BufferR1<ffi::F32> bias, ffi::AnyBuffer base, ffi::AnyBuffer residual,
    ffi::Result<ffi::AnyBuffer> out, ffi::Result<ffi::BufferR1<ffi::U8>> scratch) {
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
  if (residual.element_count() > 0 && (residual.untyped_data() == out->untyped_data() ||
                                       residual.element_type() != out->element_type() ||
                                       residual.element_count() != out->element_count())) {
    return ffi::Unexpected(ffi::Error::InvalidArgument(
        "masked_conv: residual must be like the result, in a buffer of its own"));
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
  args.residual = residual.element_count() > 0 ? residual.untyped_data() : nullptr;
  args.zero_fill = base.element_count() == 0;
  args.out = out->untyped_data();
  args.scratch = scratch->typed_data();
  args.scratch_bytes = static_cast<int64_t>(scratch->element_count());
  return args;
}

bool SetWindow(const ConvWindow& w, int64_t variant, MaskedConvArgs* args) {
  ConvGeometry& g = args->geometry;
  g.stride_h = w.stride_h;
  g.stride_w = w.stride_w;
  g.pad_top = w.pad_top;
  g.pad_left = w.pad_left;
  g.dilation_h = w.dilation_h;
  g.dilation_w = w.dilation_w;
  g.lhs_dilation_h = w.lhs_dilation_h;
  g.lhs_dilation_w = w.lhs_dilation_w;
  g.groups = w.groups;
  args->tiles.tile_h = w.tile_h;
  args->tiles.tile_w = w.tile_w;
  args->activation = static_cast<Activation>(w.activation);
  args->variant = variant;
  const bool known = w.activation >= 0 && w.activation <= static_cast<int64_t>(Activation::kGelu);
  return known && ValidGeometry(g) && ValidTiles(args->tiles, variant);
}

ffi::Future RunConv(ffi::ThreadPool& pool, const MaskedConvArgs& args) {
  auto job = std::make_shared<MaskedConvJob>(args, PoolWorkers(pool));
  if (job->workers() == 0) {
    return FailedFuture(
        "masked_conv: scratch is smaller than " +
        std::to_string(MaskedConvJob::ScratchBytes(args.geometry, args.in_type, 1)) + " bytes");
  }
  return RunWorkers(pool, job->workers(), job);
}

}  // namespace jaxsparse
