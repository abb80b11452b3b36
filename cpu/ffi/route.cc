// The handler of jaxsparse_route on the CPU (contracts/route.toml). It runs inline: 256 K
// assignments take less than a millisecond.
#include "cpu/kernels/route/route.h"

#include "contracts/route.gen.h"

namespace jaxsparse {
namespace {

namespace ffi = xla::ffi;

ffi::Error Route(contract::route::Attributes attributes, ffi::RemainingArgs operands,
                 ffi::RemainingRets results) {
  const auto call = contract::route::Decode(attributes, operands, results);
  if (call.has_error()) return call.error();
  const auto& c = *call;
  if (c.nothing()) return ffi::Error::Success();
  for (int64_t l = 0; l < c.lists; ++l) {
    const int64_t first = l * c.assignments;
    RouteList(c.expert_ids.as<int32_t>() + first, c.assignments, c.experts, c.top_k,
              c.order.as<int32_t>() + first, c.source.as<int32_t>() + first,
              c.group_sizes.as<int32_t>() + l * c.experts, c.scratch.as<int32_t>());
  }
  return ffi::Error::Success();
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseRouteCpu, jaxsparse::Route,
                              xla::ffi::Ffi::Bind()
                                  .Attrs<jaxsparse::contract::route::Attributes>()
                                  .RemainingArgs()
                                  .RemainingRets());
