// Handlers of jaxsparse_pack_mask and jaxsparse_unpack_mask on CUDA (contracts/bits.toml).
#include "contracts/pack_mask.gen.h"
#include "contracts/unpack_mask.gen.h"
#include "cuda/bits/pack.h"
#include "cuda/ffi/common.h"

namespace jaxsparse {
namespace {

ffi::Error Pack(cudaStream_t stream, ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::pack_mask::Decode(operands, results);
  if (call.has_error()) return call.error();
  if (call->nothing()) return ffi::Error::Success();
  return CudaStatus("pack_mask", PackMask(call->mask.as<uint8_t>(), call->rows, call->n,
                                          call->packed.as<uint32_t>(), stream));
}

ffi::Error Unpack(cudaStream_t stream, ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::unpack_mask::Decode(operands, results);
  if (call.has_error()) return call.error();
  if (call->nothing()) return ffi::Error::Success();
  return CudaStatus("unpack_mask", UnpackMask(call->packed.as<uint32_t>(), call->rows, call->n,
                                              call->mask.as<uint8_t>(), stream));
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparsePackMaskCuda, jaxsparse::Pack, jaxsparse::BindPlainCall(),
                              {xla::ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseUnpackMaskCuda, jaxsparse::Unpack,
                              jaxsparse::BindPlainCall(), {xla::ffi::Traits::kCmdBufferCompatible});
