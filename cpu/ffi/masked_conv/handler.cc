// The handler of jaxsparse_masked_conv on the CPU (contracts/masked_conv.toml).
#include "contracts/masked_conv.gen.h"
#include "cpu/ffi/masked_conv/operands.h"

namespace jaxsparse {
namespace {

namespace ffi = xla::ffi;
using contract::masked_conv::Attributes;

ffi::Future MaskedConv(ffi::ThreadPool pool, Attributes attributes, ffi::RemainingArgs operands,
                       ffi::RemainingRets results) {
  const auto call = contract::masked_conv::Decode(attributes, operands, results);
  if (call.has_error()) return contract::Failed(call.error());
  const std::string wrong = CheckAliases(*call);
  if (!wrong.empty()) return contract::Failed("masked_conv: " + wrong);
  if (call->nothing()) return contract::Done();
  MaskedConvArgs args = ReadForward(*call);
  args.variant = call->variant;
  return RunConv("masked_conv", pool, args);
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskedConvCpu, jaxsparse::MaskedConv,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Attrs<jaxsparse::contract::masked_conv::Attributes>()
                                  .RemainingArgs()
                                  .RemainingRets());
