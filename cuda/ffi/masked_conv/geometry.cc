// Checks of a convolution's shapes and attributes, made before any kernel sees them.
#include "cuda/ffi/masked_conv/geometry.h"

#include <algorithm>

namespace jaxsparse {
namespace {

constexpr int64_t kMaxCoordinate = int64_t{1} << 30;

bool InRange(int64_t value, int64_t low) { return value >= low && value <= kMaxCoordinate; }

std::string CheckWindow(const WindowAttrs& a) {
  for (const int64_t value : {a.stride_h, a.stride_w, a.dilation_h, a.dilation_w, a.lhs_dilation_h,
                              a.lhs_dilation_w, a.groups, a.tile_h, a.tile_w}) {
    if (!InRange(value, 1)) return "strides, dilations, groups and tile sizes must be at least 1";
  }
  if (!InRange(a.pad_top, -kMaxCoordinate) || !InRange(a.pad_left, -kMaxCoordinate)) {
    return "padding is out of range";
  }
  return "";
}

// The farthest row or column that a tap of any output pixel can name.
bool ReachFits(int64_t out, int64_t stride, int64_t kernel, int64_t dilation, int64_t pad) {
  return out * stride <= kMaxCoordinate / 2 && kernel * dilation <= kMaxCoordinate / 2 &&
         std::max(pad, -pad) <= kMaxCoordinate / 2;
}

std::string CheckSizes(const ConvGeometry& g, const WindowAttrs& a) {
  for (const int64_t size : {g.batch, g.in_h, g.in_w, g.in_c, g.out_h, g.out_w, g.out_c}) {
    if (!InRange(size, 0)) return "a dimension is larger than 2^30";
  }
  if (!ReachFits(g.out_h, a.stride_h, g.kernel_h, a.dilation_h, a.pad_top) ||
      !ReachFits(g.out_w, a.stride_w, g.kernel_w, a.dilation_w, a.pad_left)) {
    return "size * stride, kernel * dilation or padding is larger than 2^29";
  }
  if (g.in_c % g.groups != 0 || g.out_c % g.groups != 0) {
    return "channels in and out must be multiples of groups";
  }
  return "";
}

}  // namespace

std::string ReadGeometry(const ffi::AnyBuffer& x, const int64_t (&kernel)[4],
                         const int64_t (&out)[4], const ffi::AnyBuffer& ids,
                         const ffi::AnyBuffer& count, const ffi::AnyBuffer& words,
                         const WindowAttrs& a, ConvGeometry* geometry, TileList* tiles) {
  std::string wrong = CheckWindow(a);
  if (!wrong.empty()) return wrong;
  if (!InRange(kernel[0], 0) || !InRange(kernel[1], 0)) return "kernel is too large";
  const auto in = x.dimensions();
  ConvGeometry& g = *geometry;
  g.batch = in[0];
  g.in_h = in[1];
  g.in_w = in[2];
  g.in_c = in[3];
  g.out_h = out[1];
  g.out_w = out[2];
  g.out_c = out[3];
  g.kernel_h = static_cast<int>(kernel[0]);
  g.kernel_w = static_cast<int>(kernel[1]);
  g.stride_h = static_cast<int>(a.stride_h);
  g.stride_w = static_cast<int>(a.stride_w);
  g.pad_top = static_cast<int>(a.pad_top);
  g.pad_left = static_cast<int>(a.pad_left);
  g.dilation_h = static_cast<int>(a.dilation_h);
  g.dilation_w = static_cast<int>(a.dilation_w);
  g.lhs_dilation_h = static_cast<int>(a.lhs_dilation_h);
  g.lhs_dilation_w = static_cast<int>(a.lhs_dilation_w);
  g.groups = static_cast<int>(a.groups);
  wrong = CheckSizes(g, a);
  if (!wrong.empty()) return wrong;
  if (out[0] != g.batch) return "batch sizes differ";
  if (kernel[2] * g.groups != g.in_c || kernel[3] != g.out_c) {
    return "kernel must be [kh, kw, C/groups, O]";
  }
  if (!HasShape(words, {g.batch, g.out_h, (g.out_w + 31) / 32}) ||
      words.element_type() != ffi::DataType::U32) {
    return "words must be u32[B, Ho, ceil(Wo/32)]";
  }
  const auto list = ids.dimensions();
  if (ids.element_type() != ffi::DataType::S32 || list.size() < 1 || list.size() > 2 ||
      (list.size() == 2 && list[1] != 3)) {
    return "ids must be s32[capacity] or s32[capacity, 3]";
  }
  if (count.element_type() != ffi::DataType::S32 || count.element_count() != 1) {
    return "count must be s32[]";
  }
  const int64_t tile_pixels = a.tile_h * a.tile_w;
  if (tile_pixels > kMaxCoordinate || list[0] > kMaxCoordinate ||
      list[0] * tile_pixels > kMaxCoordinate) {
    return "capacity * tile_h * tile_w is larger than 2^30";
  }
  tiles->ids = static_cast<const int32_t*>(ids.untyped_data());
  tiles->count = static_cast<const int32_t*>(count.untyped_data());
  tiles->capacity = list[0];
  tiles->tile_h = static_cast<int>(a.tile_h);
  tiles->tile_w = static_cast<int>(a.tile_w);
  tiles->grid_aligned = list.size() == 1;
  tiles->words = static_cast<const uint32_t*>(words.untyped_data());
  return "";
}

}  // namespace jaxsparse
