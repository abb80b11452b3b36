// Handlers of jaxsparse_pack_mask and jaxsparse_unpack_mask (contracts/bits.toml).
#include "contracts/pack_mask.gen.h"
#include "contracts/unpack_mask.gen.h"
#include "cpu/bits/pack.h"

namespace jaxsparse::cpu {
namespace {

namespace ffi = ::xla::ffi;

ffi::Error Pack(ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::pack_mask::Decode(operands, results);
  if (call.has_error()) return call.error();
  if (call->nothing()) return ffi::Error::Success();
  PackMask(call->mask.as<uint8_t>(), call->rows, call->n, call->packed.as<uint32_t>());
  return ffi::Error::Success();
}

ffi::Error Unpack(ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::unpack_mask::Decode(operands, results);
  if (call.has_error()) return call.error();
  if (call->nothing()) return ffi::Error::Success();
  UnpackMask(call->packed.as<uint32_t>(), call->rows, call->n, call->mask.as<uint8_t>());
  return ffi::Error::Success();
}

}  // namespace
}  // namespace jaxsparse::cpu

namespace ffi = ::xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparsePackMaskCpu, jaxsparse::cpu::Pack,
                              ffi::Ffi::Bind().RemainingArgs().RemainingRets());

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseUnpackMaskCpu, jaxsparse::cpu::Unpack,
                              ffi::Ffi::Bind().RemainingArgs().RemainingRets());
