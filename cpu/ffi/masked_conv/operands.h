// What the two forward handlers of the masked convolution read of a checked call.
#pragma once

#include <string>

#include "contracts/call.h"
#include "cpu/ffi/dtype.h"
#include "cpu/ffi/run_job.h"
#include "cpu/kernels/masked_conv/args.h"
#include "cpu/kernels/masked_conv/job.h"

namespace jaxsparse {

// Everything but the variant; the list is the first one.
template <class Call>
MaskedConvArgs ReadForward(const Call& c) {
  MaskedConvArgs args = {};
  args.geometry = {c.batch,          c.height,         c.width,    c.channels,   c.out_h,
                   c.out_w,          c.outputs,        c.kernel_h, c.kernel_w,   c.stride_h,
                   c.stride_w,       c.pad_top,        c.pad_left, c.dilation_h, c.dilation_w,
                   c.lhs_dilation_h, c.lhs_dilation_w, c.groups};
  args.tiles = {c.ids.template as<int32_t>(),
                *c.count.template as<int32_t>(),
                c.capacity,
                c.tile_h,
                c.tile_w,
                c.ids.rank == 1,
                c.mask_words.template as<uint32_t>(),
                false};
  args.in_type = ToDType(c.x.type);
  args.out_type = ToDType(c.out.type);
  args.activation = static_cast<Activation>(c.activation);
  args.x = c.x.data;
  args.kernel = c.kernel.data;
  args.x_words = c.x_words.template as<uint32_t>();
  args.bias = c.bias.template as<float>();
  args.residual = c.residual.template as<void>();
  args.zero_fill = !c.base.given();
  args.out = c.out.data;
  args.scratch = c.scratch.data;
  args.scratch_bytes = c.scratch_bytes;
  return args;
}

// What is wrong with the buffers' places, or an empty string.
template <class Call>
std::string CheckAliases(const Call& c) {
  if (c.base.given() && c.base.data != c.out.data) return "base is not aliased to the result";
  if (c.residual.given() && c.residual.data == c.out.data) {
    return "residual must be in a buffer of its own";
  }
  return "";
}

inline xla::ffi::Future RunConv(const char* handler, xla::ffi::ThreadPool& pool,
                                const MaskedConvArgs& args) {
  return RunJob<MaskedConvJob>(handler, pool, args);
}

}  // namespace jaxsparse
