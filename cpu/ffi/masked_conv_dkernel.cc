// The handler of jaxsparse_masked_conv_dkernel on the CPU.
#include <memory>
#include <optional>
#include <string>

#include "cpu/core/workers.h"
#include "cpu/ffi/masked_conv_decode.h"
#include "cpu/kernels/masked_conv_dkernel_job.h"

namespace jaxsparse {
namespace {

namespace ffi = xla::ffi;

ffi::Future MaskedConvDkernel(ffi::ThreadPool pool, ffi::AnyBuffer x, ffi::AnyBuffer gy,
                              ffi::BufferR1<ffi::S32> ids, ffi::BufferR0<ffi::S32> count,
                              ffi::BufferR3<ffi::U32> words,
                              ffi::Result<ffi::BufferR4<ffi::F32>> dkernel,
                              ffi::Result<ffi::BufferR1<ffi::U8>> scratch, int64_t stride_h,
                              int64_t stride_w, int64_t pad_top, int64_t pad_left,
                              int64_t dilation_h, int64_t dilation_w, int64_t groups,
                              int64_t tile_h, int64_t tile_w, int64_t precision, int64_t variant) {
  static_cast<void>(precision);  // products are float32 either way
  const std::optional<DType> x_type = DTypeOf(x.element_type());
  const std::optional<DType> gy_type = DTypeOf(gy.element_type());
  const auto xs = x.dimensions(), gs = gy.dimensions(), ks = dkernel->dimensions();
  if (!x_type || !gy_type || xs.size() != 4 || gs.size() != 4) {
    return FailedFuture("masked_conv_dkernel: an operand has the wrong type or rank");
  }
  MaskedConvDkernelArgs args = {};
  args.geometry = {xs[0],    xs[1],      xs[2],      xs[3],    gs[1],    gs[2],
                   gs[3],    ks[0],      ks[1],      stride_h, stride_w, pad_top,
                   pad_left, dilation_h, dilation_w, 1,        1,        groups};
  args.tiles = {ids.typed_data(),
                *count.typed_data(),
                ids.dimensions()[0],
                tile_h,
                tile_w,
                true,
                words.typed_data(),
                false};
  args.x_type = *x_type;
  args.gy_type = *gy_type;
  args.variant = variant;
  args.x = x.untyped_data();
  args.gy = gy.untyped_data();
  args.dkernel = dkernel->typed_data();
  args.scratch = scratch->typed_data();
  args.scratch_bytes = static_cast<int64_t>(scratch->element_count());
  if (!ValidGeometry(args.geometry) || !ValidTiles(args.tiles, variant)) {
    return FailedFuture("masked_conv_dkernel: an attribute is out of range");
  }
  auto job = std::make_shared<MaskedConvDkernelJob>(args, PoolWorkers(pool));
  if (job->workers() == 0) {
    return FailedFuture(
        "masked_conv_dkernel: scratch is smaller than " +
        std::to_string(MaskedConvDkernelJob::ScratchBytes(args.geometry, *x_type, *gy_type, 1)) +
        " bytes");
  }
  return RunWorkers(pool, job->workers(), job);
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskedConvDkernelCpu, jaxsparse::MaskedConvDkernel,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::AnyBuffer>()                // x
                                  .Arg<xla::ffi::AnyBuffer>()                // gy
                                  .Arg<xla::ffi::BufferR1<xla::ffi::S32>>()  // ids
                                  .Arg<xla::ffi::BufferR0<xla::ffi::S32>>()  // count
                                  .Arg<xla::ffi::BufferR3<xla::ffi::U32>>()  // words
                                  .Ret<xla::ffi::BufferR4<xla::ffi::F32>>()  // dkernel
                                  .Ret<xla::ffi::BufferR1<xla::ffi::U8>>()   // scratch
                                  .Attr<int64_t>("stride_h")
                                  .Attr<int64_t>("stride_w")
                                  .Attr<int64_t>("pad_top")
                                  .Attr<int64_t>("pad_left")
                                  .Attr<int64_t>("dilation_h")
                                  .Attr<int64_t>("dilation_w")
                                  .Attr<int64_t>("groups")
                                  .Attr<int64_t>("tile_h")
                                  .Attr<int64_t>("tile_w")
                                  .Attr<int64_t>("precision")
                                  .Attr<int64_t>("variant"));
