// Handler of jaxsparse_reach_index (docs/kernels/contract.md). Bits to bits, then the list from the
// bits, which are in the cache by then. It runs inline and lists in order.
#include <cstdint>

#include "cpu/index/reach.h"
#include "cpu/index/tile_index.h"
#include "xla/ffi/api/ffi.h"

namespace jaxsparse::cpu {
namespace {

namespace ffi = ::xla::ffi;

bool Exists(const ReachAxis& axis) {
  return axis.taps >= 0 && axis.stride >= 1 && axis.dilation >= 1 && axis.lhs_dilation >= 1;
}

ffi::Error ReachIndex(ffi::BufferR4<ffi::U32> words, ffi::AnyBuffer keep,
                      ffi::ResultBufferR4<ffi::U32> out, ffi::ResultBufferR2<ffi::S32> ids,
                      ffi::ResultBufferR1<ffi::S32> count, ffi::ResultBufferR1<ffi::PRED> overflow,
                      ffi::ResultBufferR1<ffi::S32>, ffi::Dictionary attributes) {
  bool known = true;
  const auto attribute = [&](const char* name) {
    const auto value = attributes.get<int64_t>(name);
    known = known && value.has_value();
    return known ? *value : 0;
  };
  const auto from = words.dimensions(), to = out->dimensions();
  const ReachAxis rows{attribute("kernel_h"), attribute("stride_h"), attribute("pad_top"),
                       attribute("dilation_h"), attribute("lhs_dilation_h")};
  const ReachAxis columns{attribute("kernel_w"), attribute("stride_w"), attribute("pad_left"),
                          attribute("dilation_w"), attribute("lhs_dilation_w")};
  const ReachShape shape{to[0] * to[1], from[2], attribute("out_width"), to[2], attribute("width"),
                         rows,          columns};
  const int64_t tile = attribute("tile");
  if (!known || shape.width < 0 || shape.out_width < 0 || !Exists(rows) || !Exists(columns) ||
      from[0] != to[0] || from[1] != to[1] || from[3] != (shape.out_width + 31) / 32 ||
      to[3] != (shape.width + 31) / 32 || ids->dimensions()[0] != to[0] ||
      count->dimensions()[0] != to[0] || overflow->dimensions()[0] != to[0] || tile < 0 ||
      tile / 8 > 5 || tile % 8 > 5 ||
      (keep.element_count() != 0 &&
       (keep.element_type() != ffi::U32 || keep.element_count() != out->element_count()))) {
    return ffi::Error::InvalidArgument("reach index: operands, results and attributes disagree");
  }
  const auto* kept =
      keep.element_count() == 0 ? nullptr : static_cast<const uint32_t*>(keep.untyped_data());
  ReachMask(shape, words.typed_data(), kept, out->typed_data());
  const int64_t capacity = ids->dimensions()[1];
  for (int64_t l = 0; l < to[0]; ++l) {
    const TiledMask mask{out->typed_data() + l * to[1] * to[2] * to[3],
                         to[1],
                         to[2],
                         shape.width,
                         int64_t{1} << (tile / 8),
                         int64_t{1} << (tile % 8)};
    const int64_t found = ListTiles(mask, capacity, ids->typed_data() + l * capacity);
    count->typed_data()[l] = static_cast<int32_t>(found);
    overflow->typed_data()[l] = found > capacity;
  }
  return ffi::Error::Success();
}

}  // namespace
}  // namespace jaxsparse::cpu

namespace ffi = ::xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseReachIndexCpu, jaxsparse::cpu::ReachIndex,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::BufferR4<ffi::U32>>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::BufferR4<ffi::U32>>()
                                  .Ret<ffi::BufferR2<ffi::S32>>()
                                  .Ret<ffi::BufferR1<ffi::S32>>()
                                  .Ret<ffi::BufferR1<ffi::PRED>>()
                                  .Ret<ffi::BufferR1<ffi::S32>>()
                                  .Attrs());
