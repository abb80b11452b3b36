// Handlers of jaxsparse_pack_mask and jaxsparse_unpack_mask (docs/contract.md).
#include "cuda/bits/pack.h"
#include "cuda/ffi/common.h"
#include "xla/ffi/api/ffi.h"

namespace jaxsparse {
namespace {

bool Fits(ffi::BufferR2<ffi::PRED>::Dimensions mask, ffi::BufferR2<ffi::U32>::Dimensions words) {
  return mask[0] == words[0] && words[1] == (mask[1] + 31) / 32;
}

ffi::Error Pack(cudaStream_t stream, ffi::BufferR2<ffi::PRED> mask,
                ffi::ResultBufferR2<ffi::U32> words) {
  if (!Fits(mask.dimensions(), words->dimensions())) {
    return ffi::Error::InvalidArgument("pack_mask: words must be u32[rows, ceil(n/32)]");
  }
  return CudaStatus("pack_mask",
                    PackMask(static_cast<const uint8_t*>(mask.untyped_data()), mask.dimensions()[0],
                             mask.dimensions()[1], words->typed_data(), stream));
}

ffi::Error Unpack(cudaStream_t stream, ffi::BufferR2<ffi::U32> words,
                  ffi::ResultBufferR2<ffi::PRED> mask) {
  if (!Fits(mask->dimensions(), words.dimensions())) {
    return ffi::Error::InvalidArgument("unpack_mask: words must be u32[rows, ceil(n/32)]");
  }
  return CudaStatus("unpack_mask",
                    UnpackMask(words.typed_data(), mask->dimensions()[0], mask->dimensions()[1],
                               static_cast<uint8_t*>(mask->untyped_data()), stream));
}

}  // namespace
}  // namespace jaxsparse

namespace ffi = ::xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparsePackMaskCuda, jaxsparse::Pack,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<cudaStream_t>>()
                                  .Arg<ffi::BufferR2<ffi::PRED>>()
                                  .Ret<ffi::BufferR2<ffi::U32>>(),
                              {ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseUnpackMaskCuda, jaxsparse::Unpack,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<cudaStream_t>>()
                                  .Arg<ffi::BufferR2<ffi::U32>>()
                                  .Ret<ffi::BufferR2<ffi::PRED>>(),
                              {ffi::Traits::kCmdBufferCompatible});
