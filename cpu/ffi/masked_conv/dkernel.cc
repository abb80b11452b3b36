// The handler of jaxsparse_masked_conv_dkernel on the CPU (contracts/masked_conv.toml).
#include "contracts/masked_conv_dkernel.gen.h"
#include "cpu/ffi/dtype.h"
#include "cpu/ffi/run_job.h"
#include "cpu/kernels/masked_conv/dkernel_job.h"

namespace jaxsparse {
namespace {

namespace ffi = xla::ffi;
using contract::masked_conv_dkernel::Attributes;

ffi::Future MaskedConvDkernel(ffi::ThreadPool pool, Attributes attributes,
                              ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::masked_conv_dkernel::Decode(attributes, operands, results);
  if (call.has_error()) return contract::Failed(call.error());
  const auto& c = *call;
  if (c.nothing()) return contract::Done();
  MaskedConvDkernelArgs args = {};
  args.geometry = {c.batch,    c.height,     c.width,      c.channels, c.out_h,    c.out_w,
                   c.outputs,  c.kernel_h,   c.kernel_w,   c.stride_h, c.stride_w, c.pad_top,
                   c.pad_left, c.dilation_h, c.dilation_w, 1,          1,          c.groups};
  args.tiles = {c.ids.as<int32_t>(),
                *c.count.as<int32_t>(),
                c.capacity,
                c.tile_h,
                c.tile_w,
                true,
                c.mask_words.as<uint32_t>(),
                false};
  args.x_type = ToDType(c.x.type);
  args.gy_type = ToDType(c.gy.type);
  args.variant = c.variant;
  args.x = c.x.data;
  args.gy = c.gy.data;
  args.dkernel = c.dkernel.as<float>();
  args.scratch = c.scratch.data;
  args.scratch_bytes = c.scratch_bytes;
  return RunJob<MaskedConvDkernelJob>("masked_conv_dkernel", pool, args);
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskedConvDkernelCpu, jaxsparse::MaskedConvDkernel,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Attrs<jaxsparse::contract::masked_conv_dkernel::Attributes>()
                                  .RemainingArgs()
                                  .RemainingRets());
