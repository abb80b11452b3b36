// Handlers of jaxsparse_bounded_network on CUDA (contracts/bounded.toml).
#include "contracts/bounded_network.gen.h"
#include "cuda/ffi/common.h"
#include "cuda/kernels/bounded_network/launch.h"

namespace jaxsparse {
namespace {

constexpr char kOp[] = "bounded_network";

ffi::Error InitBoundedNetwork() {
  static OncePerDevice once;
  return CudaStatus(kOp, once.Run([](int) { return PrepareBoundedNetwork(); }));
}

ffi::Error BoundedNetwork(cudaStream_t stream, contract::bounded_network::Attributes attributes,
                          ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::bounded_network::Decode(attributes, operands, results);
  if (call.has_error()) return call.error();
  const auto& c = *call;
  const int64_t needed = BoundedNetworkScratch(c.batch, c.widest, c.depth, c.bundles > 1);
  if (c.scratch_bytes < needed) return TooSmall(kOp, c.scratch_bytes, needed, "bytes");
  if (!c.out.given()) return ffi::Error::Success();
  BoundedNetworkArgs args = {};
  args.batch = c.batch;
  args.n_in = c.n_in;
  args.n_out = c.n_out;
  args.depth = c.depth;
  args.first = c.first;
  args.widest = c.widest;
  args.regroup = c.decides != 0;
  args.bundles = c.bundles != 0;
  args.panels = c.bundles > 1;
  args.rows = c.bundles > 2;
  args.x = c.x.as<float>();
  args.table = c.table.as<uint32_t>();
  args.starts = c.starts.as<int32_t>();
  args.starts_size = c.starts_size;
  args.indices = c.indices.data;
  args.wide = c.indices.type == ffi::DataType::S32;
  args.weights = c.weights.as<float>();
  args.entries = c.indices_size;
  args.weighed = c.weights_size;
  args.bias = c.bias.as<float>();
  args.bias_size = c.bias_size;
  args.uppers = c.uppers.as<float>();
  args.expand = c.expand.as<int32_t>();
  args.out = c.out.as<float>();
  args.codes = c.codes.as<uint8_t>();
  args.scratch = c.scratch.data;
  return CudaStatus(kOp, LaunchBoundedNetwork(args, stream));
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseBoundedNetworkCudaInit, jaxsparse::InitBoundedNetwork,
                              jaxsparse::BindInit());

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JaxsparseBoundedNetworkCuda, jaxsparse::BoundedNetwork,
    jaxsparse::BindCall<jaxsparse::contract::bounded_network::Attributes>(),
    {xla::ffi::Traits::kCmdBufferCompatible});
