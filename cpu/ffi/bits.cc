// Handlers of jaxsparse_pack_mask and jaxsparse_unpack_mask (docs/kernels/contract.md).
#include "cpu/bits/pack.h"
#include "xla/ffi/api/ffi.h"

namespace jaxsparse::cpu {
namespace {

namespace ffi = ::xla::ffi;

bool Fits(ffi::BufferR2<ffi::PRED>::Dimensions mask, ffi::BufferR2<ffi::U32>::Dimensions words) {
  return mask[0] == words[0] && words[1] == (mask[1] + 31) / 32;
}

ffi::Error Pack(ffi::BufferR2<ffi::PRED> mask, ffi::ResultBufferR2<ffi::U32> words) {
  if (!Fits(mask.dimensions(), words->dimensions())) {
    return ffi::Error::InvalidArgument("pack_mask: words must be u32[rows, ceil(n/32)]");
  }
  PackMask(static_cast<const uint8_t*>(mask.untyped_data()), mask.dimensions()[0],
           mask.dimensions()[1], words->typed_data());
  return ffi::Error::Success();
}

ffi::Error Unpack(ffi::BufferR2<ffi::U32> words, ffi::ResultBufferR2<ffi::PRED> mask) {
  if (!Fits(mask->dimensions(), words.dimensions())) {
    return ffi::Error::InvalidArgument("unpack_mask: words must be u32[rows, ceil(n/32)]");
  }
  UnpackMask(words.typed_data(), mask->dimensions()[0], mask->dimensions()[1],
             static_cast<uint8_t*>(mask->untyped_data()));
  return ffi::Error::Success();
}

}  // namespace
}  // namespace jaxsparse::cpu

namespace ffi = ::xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JaxsparsePackMaskCpu, jaxsparse::cpu::Pack,
    ffi::Ffi::Bind().Arg<ffi::BufferR2<ffi::PRED>>().Ret<ffi::BufferR2<ffi::U32>>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JaxsparseUnpackMaskCpu, jaxsparse::cpu::Unpack,
    ffi::Ffi::Bind().Arg<ffi::BufferR2<ffi::U32>>().Ret<ffi::BufferR2<ffi::PRED>>());
