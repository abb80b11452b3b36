// Handlers of jaxsparse_tile_index and jaxsparse_component_index (contracts/index.toml). Both list
// in order whatever `ordered` says, and need no scratch. They run inline: a list of 64 K tiles
// takes less time than waking a thread.
#include "contracts/component_index.gen.h"
#include "contracts/tile_index.gen.h"
#include "cpu/index/component_index.h"
#include "cpu/index/tile_index.h"

namespace jaxsparse::cpu {
namespace {

namespace ffi = ::xla::ffi;

// `list(mask, capacity, ids)` once for each of the independent lists; an entry of `ids` is `fields`
// integers.
template <class Call, class List>
ffi::Error ForEachList(const Call& c, int64_t fields, List list) {
  const int64_t size = c.lists > 0 ? c.mask_words.size / c.lists : 0;
  for (int64_t l = 0; l < c.lists; ++l) {
    const TiledMask mask{c.mask_words.template as<uint32_t>() + l * size,
                         c.batch,
                         c.height,
                         c.width,
                         c.tile_h,
                         c.tile_w};
    const int64_t found =
        list(mask, c.capacity, c.ids.template as<int32_t>() + l * c.capacity * fields);
    c.count.template as<int32_t>()[l] = static_cast<int32_t>(found);
    c.overflow.template as<bool>()[l] = found > c.capacity;
  }
  return ffi::Error::Success();
}

ffi::Error TileIndex(contract::tile_index::Attributes attributes, ffi::RemainingArgs operands,
                     ffi::RemainingRets results) {
  const auto call = contract::tile_index::Decode(attributes, operands, results);
  return call.has_error() ? call.error() : ForEachList(*call, 1, ListTiles);
}

ffi::Error ComponentIndex(contract::component_index::Attributes attributes,
                          ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::component_index::Decode(attributes, operands, results);
  return call.has_error() ? call.error() : ForEachList(*call, 3, ListComponentTiles);
}

}  // namespace
}  // namespace jaxsparse::cpu

namespace ffi = ::xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseTileIndexCpu, jaxsparse::cpu::TileIndex,
                              ffi::Ffi::Bind()
                                  .Attrs<jaxsparse::contract::tile_index::Attributes>()
                                  .RemainingArgs()
                                  .RemainingRets());

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseComponentIndexCpu, jaxsparse::cpu::ComponentIndex,
                              ffi::Ffi::Bind()
                                  .Attrs<jaxsparse::contract::component_index::Attributes>()
                                  .RemainingArgs()
                                  .RemainingRets());
