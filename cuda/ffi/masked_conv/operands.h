// What the handlers of the masked convolution read of a checked call: the contract keeps every
// coordinate of a tap and every pixel slot of a list in 31 bits; offsets into tensors need not be.
#pragma once

#include "cuda/ffi/common.h"
#include "cuda/kernels/masked_conv/args.h"

namespace jaxsparse {

// What forward and gradient share; nothing is dilated.
template <class Call>
ConvGeometry ReadGeometry(const Call& c) {
  ConvGeometry g = {};
  g.batch = c.batch;
  g.in_h = c.height;
  g.in_w = c.width;
  g.in_c = c.channels;
  g.out_h = c.out_h;
  g.out_w = c.out_w;
  g.out_c = c.outputs;
  g.kernel_h = static_cast<int>(c.kernel_h);
  g.kernel_w = static_cast<int>(c.kernel_w);
  g.stride_h = static_cast<int>(c.stride_h);
  g.stride_w = static_cast<int>(c.stride_w);
  g.pad_top = static_cast<int>(c.pad_top);
  g.pad_left = static_cast<int>(c.pad_left);
  g.dilation_h = static_cast<int>(c.dilation_h);
  g.dilation_w = static_cast<int>(c.dilation_w);
  g.lhs_dilation_h = g.lhs_dilation_w = 1;
  g.groups = static_cast<int>(c.groups);
  return g;
}

template <class Call>
TileList ReadTiles(const Call& c) {
  return {static_cast<const int32_t*>(c.ids.data),
          static_cast<const int32_t*>(c.count.data),
          c.capacity,
          static_cast<int>(c.tile_h),
          static_cast<int>(c.tile_w),
          c.ids.rank == 1,
          static_cast<const uint32_t*>(c.mask_words.data)};
}

// Everything but the variant; the list is the first one.
template <class Call>
MaskedConvArgs ReadForward(const Call& c) {
  MaskedConvArgs args = {};
  args.geometry = ReadGeometry(c);
  args.geometry.lhs_dilation_h = static_cast<int>(c.lhs_dilation_h);
  args.geometry.lhs_dilation_w = static_cast<int>(c.lhs_dilation_w);
  args.tiles = ReadTiles(c);
  args.in_type = ToDType(c.x.type);
  args.out_type = ToDType(c.out.type);
  args.activation = static_cast<Activation>(c.activation);
  args.highest = c.precision == 1;
  args.x = c.x.data;
  args.kernel = c.kernel.data;
  args.x_words = c.x_words.template as<uint32_t>();
  args.bias = c.bias.template as<float>();
  args.zero_fill = !c.base.given();
  args.out = c.out.data;
  args.scratch = c.scratch.data;
  args.scratch_bytes = c.scratch_bytes;
  args.residual = c.residual.template as<void>();
  return args;
}

// What is wrong with the buffers' places, or nullptr.
template <class Call>
const char* PlacesReason(const Call& c) {
  if (c.residual.given() && c.residual.data == c.out.data) {
    return "residual must be in a buffer of its own";
  }
  for (const contract::Array* array : {&c.x, &c.kernel, &c.bias, &c.residual, &c.out}) {
    if (!IsAligned(*array)) return "x, kernel, bias, residual and out must be aligned to 16 bytes";
  }
  return nullptr;
}

}  // namespace jaxsparse
