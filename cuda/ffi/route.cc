// Handler of jaxsparse_route on CUDA (contracts/route.toml).
#include "contracts/route.gen.h"
#include "cuda/ffi/common.h"
#include "cuda/kernels/route/launch.h"

namespace jaxsparse {
namespace {

constexpr char kOp[] = "route";

ffi::Error Route(cudaStream_t stream, contract::route::Attributes attributes,
                 ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::route::Decode(attributes, operands, results);
  if (call.has_error()) return call.error();
  const auto& c = *call;
  if (c.nothing()) return ffi::Error::Success();
  const int64_t needed = RouteScratchWords(c.lists, c.assignments, c.experts);
  if (c.scratch_size < needed) return TooSmall(kOp, c.scratch_size, needed, "entries");
  RouteArgs args = {};
  args.ids = c.expert_ids.as<int32_t>();
  args.lists = c.lists;
  args.assignments = c.assignments;
  args.experts = c.experts;
  args.top_k = c.top_k;
  args.order = c.order.as<int32_t>();
  args.source = c.source.as<int32_t>();
  args.group_sizes = c.group_sizes.as<int32_t>();
  args.scratch = c.scratch.as<int32_t>();
  args.scratch_words = c.scratch_size;
  return CudaStatus(kOp, LaunchRoute(args, stream));
}

ffi::Error RouteInit() {
  static OncePerDevice* once = new OncePerDevice;
  return CudaStatus(kOp, once->Run([](int) { return PrepareRoute(); }));
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseRouteCuda, jaxsparse::Route,
                              jaxsparse::BindCall<jaxsparse::contract::route::Attributes>(),
                              {xla::ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseRouteCudaInit, jaxsparse::RouteInit, jaxsparse::BindInit());
