// Handlers of jaxsparse_tile_index and jaxsparse_component_index (docs/kernels/contract.md). Both
// list in order whatever `ordered` says, and need no scratch. They run inline: a list of 64 K tiles
// takes less time than waking a thread.
#include <algorithm>

#include "cpu/index/component_index.h"
#include "cpu/index/tile_index.h"
#include "xla/ffi/api/ffi.h"

namespace jaxsparse::cpu {
namespace {

namespace ffi = ::xla::ffi;

using Words = ffi::BufferR4<ffi::U32>;
using Counts = ffi::ResultBufferR1<ffi::S32>;
using Flags = ffi::ResultBufferR1<ffi::PRED>;
using Scratch = ffi::ResultBufferR1<ffi::S32>;

// `list(mask, capacity, ids)` once for each of the independent lists; an entry of `ids` is `fields`
// integers.
template <class List>
ffi::Error ForEachList(const Words& words, int64_t width, int64_t tile_h, int64_t tile_w,
                       int64_t capacity, int64_t fields, int32_t* ids, Counts& count,
                       Flags& overflow, List list) {
  const auto dims = words.dimensions();
  if (width < 0 || dims[3] != (width + 31) / 32 || tile_h < 1 || tile_w < 1 ||
      static_cast<int64_t>(count->element_count()) != dims[0] ||
      static_cast<int64_t>(overflow->element_count()) != dims[0]) {
    return ffi::Error::InvalidArgument("tile index: operands, results and attributes disagree");
  }
  const int64_t size = dims[1] * dims[2] * dims[3];
  for (int64_t l = 0; l < dims[0]; ++l) {
    const TiledMask mask{words.typed_data() + l * size, dims[1], dims[2], width, tile_h, tile_w};
    const int64_t found = list(mask, capacity, ids + l * capacity * fields);
    count->typed_data()[l] = static_cast<int32_t>(found);
    overflow->typed_data()[l] = found > capacity;
  }
  return ffi::Error::Success();
}

ffi::Error TileIndex(Words words, ffi::ResultBufferR2<ffi::S32> ids, Counts count, Flags overflow,
                     Scratch, int64_t width, int64_t tile_h, int64_t tile_w, int64_t) {
  return ForEachList(words, width, tile_h, tile_w, ids->dimensions()[1], 1, ids->typed_data(),
                     count, overflow, ListTiles);
}

ffi::Error ComponentIndex(Words words, ffi::ResultBufferR3<ffi::S32> ids, Counts count,
                          Flags overflow, Scratch, int64_t width, int64_t tile_h, int64_t tile_w,
                          int64_t) {
  if (ids->dimensions()[2] != 3) {
    return ffi::Error::InvalidArgument("component index: ids must be s32[L, capacity, 3]");
  }
  return ForEachList(words, width, tile_h, tile_w, ids->dimensions()[1], 3, ids->typed_data(),
                     count, overflow, ListComponentTiles);
}

}  // namespace
}  // namespace jaxsparse::cpu

namespace ffi = ::xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseTileIndexCpu, jaxsparse::cpu::TileIndex,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::BufferR4<ffi::U32>>()
                                  .Ret<ffi::BufferR2<ffi::S32>>()
                                  .Ret<ffi::BufferR1<ffi::S32>>()
                                  .Ret<ffi::BufferR1<ffi::PRED>>()
                                  .Ret<ffi::BufferR1<ffi::S32>>()
                                  .Attr<int64_t>("width")
                                  .Attr<int64_t>("tile_h")
                                  .Attr<int64_t>("tile_w")
                                  .Attr<int64_t>("ordered"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseComponentIndexCpu, jaxsparse::cpu::ComponentIndex,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::BufferR4<ffi::U32>>()
                                  .Ret<ffi::BufferR3<ffi::S32>>()
                                  .Ret<ffi::BufferR1<ffi::S32>>()
                                  .Ret<ffi::BufferR1<ffi::PRED>>()
                                  .Ret<ffi::BufferR1<ffi::S32>>()
                                  .Attr<int64_t>("width")
                                  .Attr<int64_t>("tile_h")
                                  .Attr<int64_t>("tile_w")
                                  .Attr<int64_t>("ordered"));
