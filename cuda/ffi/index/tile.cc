// Handlers of jaxsparse_tile_index and jaxsparse_component_index (docs/contract.md).
#include <cstdint>
#include <string>

#include "cuda/ffi/common.h"
#include "cuda/ffi/index/limits.h"
#include "cuda/index/tile_index.h"
#include "xla/ffi/api/ffi.h"

namespace jaxsparse {
namespace {

namespace ffi = ::xla::ffi;

template <class Ids>
ffi::Error Run(cudaStream_t stream, ffi::BufferR4<ffi::U32> words, ffi::Result<Ids> ids,
               ffi::ResultBufferR1<ffi::S32> count, ffi::ResultBufferR1<ffi::PRED> overflow,
               ffi::ResultBufferR1<ffi::S32> scratch, int64_t width, int64_t tile_h, int64_t tile_w,
               int64_t ordered, bool per_component) {
  const auto dims = words.dimensions();
  const TileIndexArgs args{words.typed_data(),
                           dims[0],
                           dims[1],
                           dims[2],
                           width,
                           tile_h,
                           tile_w,
                           ids->dimensions()[1],
                           ordered != 0,
                           ids->typed_data(),
                           count->typed_data(),
                           static_cast<bool*>(overflow->untyped_data()),
                           scratch->typed_data()};
  if (width < 0 || dims[3] != (width + 31) / 32 || tile_h < 1 || tile_w < 1 ||
      tile_h > kMaxIndexAxis || tile_w > kMaxIndexAxis ||
      !IndexFits32(dims[1], dims[2], width, per_component ? 1 : tile_h,
                   per_component ? 1 : tile_w) ||
      static_cast<int64_t>(count->element_count()) != dims[0] ||
      static_cast<int64_t>(overflow->element_count()) != dims[0]) {
    return ffi::Error::InvalidArgument("tile index: operands, results and attributes disagree");
  }
  const int64_t needed = per_component ? ComponentIndexScratch(args) : TileIndexScratch(args);
  if (static_cast<int64_t>(scratch->element_count()) < needed) {
    return ffi::Error::InvalidArgument("tile index: scratch needs " + std::to_string(needed) +
                                       " integers");
  }
  const cudaError_t error = per_component ? ComponentIndex(args, stream) : TileIndex(args, stream);
  return CudaStatus("tile index", error);
}

ffi::Error Tiles(cudaStream_t stream, ffi::BufferR4<ffi::U32> words,
                 ffi::ResultBufferR2<ffi::S32> ids, ffi::ResultBufferR1<ffi::S32> count,
                 ffi::ResultBufferR1<ffi::PRED> overflow, ffi::ResultBufferR1<ffi::S32> scratch,
                 int64_t width, int64_t tile_h, int64_t tile_w, int64_t ordered) {
  return Run(stream, words, ids, count, overflow, scratch, width, tile_h, tile_w, ordered, false);
}

ffi::Error Components(cudaStream_t stream, ffi::BufferR4<ffi::U32> words,
                      ffi::ResultBufferR3<ffi::S32> ids, ffi::ResultBufferR1<ffi::S32> count,
                      ffi::ResultBufferR1<ffi::PRED> overflow,
                      ffi::ResultBufferR1<ffi::S32> scratch, int64_t width, int64_t tile_h,
                      int64_t tile_w, int64_t ordered) {
  if (ids->dimensions()[2] != 3) {
    return ffi::Error::InvalidArgument("component index: ids must be s32[L, capacity, 3]");
  }
  return Run(stream, words, ids, count, overflow, scratch, width, tile_h, tile_w, ordered, true);
}

}  // namespace
}  // namespace jaxsparse

namespace ffi = ::xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseTileIndexCuda, jaxsparse::Tiles,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<cudaStream_t>>()
                                  .Arg<ffi::BufferR4<ffi::U32>>()
                                  .Ret<ffi::BufferR2<ffi::S32>>()
                                  .Ret<ffi::BufferR1<ffi::S32>>()
                                  .Ret<ffi::BufferR1<ffi::PRED>>()
                                  .Ret<ffi::BufferR1<ffi::S32>>()
                                  .Attr<int64_t>("width")
                                  .Attr<int64_t>("tile_h")
                                  .Attr<int64_t>("tile_w")
                                  .Attr<int64_t>("ordered"),
                              {ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseComponentIndexCuda, jaxsparse::Components,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<cudaStream_t>>()
                                  .Arg<ffi::BufferR4<ffi::U32>>()
                                  .Ret<ffi::BufferR3<ffi::S32>>()
                                  .Ret<ffi::BufferR1<ffi::S32>>()
                                  .Ret<ffi::BufferR1<ffi::PRED>>()
                                  .Ret<ffi::BufferR1<ffi::S32>>()
                                  .Attr<int64_t>("width")
                                  .Attr<int64_t>("tile_h")
                                  .Attr<int64_t>("tile_w")
                                  .Attr<int64_t>("ordered"),
                              {ffi::Traits::kCmdBufferCompatible});
