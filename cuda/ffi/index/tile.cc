// Handlers of jaxsparse_tile_index and jaxsparse_component_index on CUDA (contracts/index.toml).
#include "contracts/component_index.gen.h"
#include "contracts/tile_index.gen.h"
#include "cuda/ffi/common.h"
#include "cuda/index/tile_index.h"

namespace jaxsparse {
namespace {

template <class Call>
TileIndexArgs ArgsOf(const Call& c) {
  return {c.mask_words.template as<uint32_t>(),
          c.lists,
          c.batch,
          c.height,
          c.width,
          c.tile_h,
          c.tile_w,
          c.capacity,
          c.ordered != 0,
          c.ids.template as<int32_t>(),
          c.count.template as<int32_t>(),
          c.overflow.template as<bool>(),
          c.scratch.template as<int32_t>()};
}

ffi::Error Tiles(cudaStream_t stream, contract::tile_index::Attributes attributes,
                 ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::tile_index::Decode(attributes, operands, results);
  if (call.has_error()) return call.error();
  if (call->nothing()) return ffi::Error::Success();
  const TileIndexArgs args = ArgsOf(*call);
  const int64_t needed = TileIndexScratch(args), found = call->scratch_size;
  if (found < needed) return TooSmall("tile_index", found, needed, "entries");
  return CudaStatus("tile_index", TileIndex(args, stream));
}

ffi::Error Components(cudaStream_t stream, contract::component_index::Attributes attributes,
                      ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::component_index::Decode(attributes, operands, results);
  if (call.has_error()) return call.error();
  if (call->nothing()) return ffi::Error::Success();
  const TileIndexArgs args = ArgsOf(*call);
  const int64_t needed = ComponentIndexScratch(args), found = call->scratch_size;
  if (found < needed) return TooSmall("component_index", found, needed, "entries");
  return CudaStatus("component_index", ComponentIndex(args, stream));
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseTileIndexCuda, jaxsparse::Tiles,
                              jaxsparse::BindCall<jaxsparse::contract::tile_index::Attributes>(),
                              {xla::ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JaxsparseComponentIndexCuda, jaxsparse::Components,
    jaxsparse::BindCall<jaxsparse::contract::component_index::Attributes>(),
    {xla::ffi::Traits::kCmdBufferCompatible});
