// Handler of jaxsparse_top_experts on CUDA (contracts/route.toml).
#include "contracts/top_experts.gen.h"
#include "cuda/ffi/common.h"
#include "cuda/kernels/top_experts/launch.h"

namespace jaxsparse {
namespace {

constexpr char kOp[] = "top_experts";

ffi::Error TopExperts(cudaStream_t stream, contract::top_experts::Attributes attributes,
                      ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::top_experts::Decode(attributes, operands, results);
  if (call.has_error()) return call.error();
  const auto& c = *call;
  if (c.nothing()) return ffi::Error::Success();
  TopExpertsArgs args = {};
  args.lists = c.lists;
  args.tokens = c.tokens;
  args.experts = c.experts;
  args.top_k = c.top_k;
  args.parts = c.parts;
  args.normalize = c.normalize;
  args.logits = c.logits.as<float>();
  args.counts = c.counts.as<bool>();
  args.ids = c.ids.as<int32_t>();
  args.weights = c.weights.as<float>();
  args.sums = c.sums.as<float>();
  return CudaStatus(kOp, LaunchTopExperts(args, stream));
}

ffi::Error TopExpertsInit() {
  static OncePerDevice* once = new OncePerDevice;
  return CudaStatus(kOp, once->Run([](int) { return PrepareTopExperts(); }));
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseTopExpertsCuda, jaxsparse::TopExperts,
                              jaxsparse::BindCall<jaxsparse::contract::top_experts::Attributes>(),
                              {xla::ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseTopExpertsCudaInit, jaxsparse::TopExpertsInit,
                              jaxsparse::BindInit());
