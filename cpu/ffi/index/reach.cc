// Handler of jaxsparse_reach_index (contracts/index.toml). Bits to bits, then the list from the
// bits, which are in the cache by then. It runs inline and lists in order.
#include "cpu/index/reach.h"

#include <cstdint>

#include "contracts/reach_index.gen.h"
#include "cpu/index/tile_index.h"

namespace jaxsparse::cpu {
namespace {

namespace ffi = ::xla::ffi;

ffi::Error ReachIndex(contract::reach_index::Attributes attributes, ffi::RemainingArgs operands,
                      ffi::RemainingRets results) {
  const auto call = contract::reach_index::Decode(attributes, operands, results);
  if (call.has_error()) return call.error();
  const auto& c = *call;
  const ReachAxis rows{c.kernel_h, c.stride_h, c.pad_top, c.dilation_h, c.lhs_dilation_h};
  const ReachAxis columns{c.kernel_w, c.stride_w, c.pad_left, c.dilation_w, c.lhs_dilation_w};
  const ReachShape shape{c.lists * c.batch, c.out_h, c.out_width, c.height, c.width, rows, columns};
  if (c.reached.given()) {
    ReachMask(shape, c.mask_words.as<uint32_t>(), c.keep.as<uint32_t>(), c.reached.as<uint32_t>());
  }
  const int64_t size = c.lists > 0 ? c.reached.size / c.lists : 0;
  for (int64_t l = 0; l < c.lists; ++l) {
    const TiledMask mask{
        c.reached.as<uint32_t>() + l * size, c.batch, c.height, c.width, int64_t{1} << (c.tile / 8),
        int64_t{1} << (c.tile % 8)};
    const int64_t found = ListTiles(mask, c.capacity, c.ids.as<int32_t>() + l * c.capacity);
    c.count.as<int32_t>()[l] = static_cast<int32_t>(found);
    c.overflow.as<bool>()[l] = found > c.capacity;
  }
  return ffi::Error::Success();
}

}  // namespace
}  // namespace jaxsparse::cpu

namespace ffi = ::xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseReachIndexCpu, jaxsparse::cpu::ReachIndex,
                              ffi::Ffi::Bind()
                                  .Attrs<jaxsparse::contract::reach_index::Attributes>()
                                  .RemainingArgs()
                                  .RemainingRets());
