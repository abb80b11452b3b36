// Handler of jaxsparse_sparse_ffn on CUDA (contracts/sparse_ffn.toml).
#include "contracts/sparse_ffn.gen.h"
#include "cuda/ffi/common.h"
#include "cuda/kernels/sparse_ffn/launch.h"

namespace jaxsparse {
namespace {

constexpr char kOp[] = "sparse_ffn";

ffi::Error SparseFfn(cudaStream_t stream, contract::sparse_ffn::Attributes attributes,
                     ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::sparse_ffn::Decode(attributes, operands, results);
  if (call.has_error()) return call.error();
  const auto& c = *call;
  if (c.nothing()) return ffi::Error::Success();
  const int64_t needed = FfnScratchBytes(c.tokens, c.hidden, c.outputs);
  if (c.scratch_bytes < needed) return TooSmall(kOp, c.scratch_bytes, needed, "bytes");
  for (const contract::Array* array : {&c.x, &c.w_up, &c.w_gate, &c.w_down, &c.scratch}) {
    if (!IsAligned(*array)) return Invalid(kOp, "an array is not aligned to 16 bytes");
  }
  FfnArgs args = {};
  args.x = c.x.data;
  args.w_up = c.w_up.data;
  args.w_gate = c.w_gate.given() ? c.w_gate.data : nullptr;
  args.w_down = c.w_down.data;
  args.y = c.y.data;
  args.tokens = static_cast<int>(c.tokens);
  args.depth = static_cast<int>(c.depth);
  args.hidden = static_cast<int>(c.hidden);
  args.outputs = static_cast<int>(c.outputs);
  args.type = ToDType(c.x.type);
  args.squared = c.squared;
  args.scratch = c.scratch.data;
  return CudaStatus(kOp, LaunchFfn(args, stream));
}

ffi::Error SparseFfnInit() {
  static OncePerDevice* once = new OncePerDevice;
  return CudaStatus(kOp, once->Run([](int) { return PrepareFfn(); }));
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseSparseFfnCuda, jaxsparse::SparseFfn,
                              jaxsparse::BindCall<jaxsparse::contract::sparse_ffn::Attributes>(),
                              {xla::ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseSparseFfnCudaInit, jaxsparse::SparseFfnInit,
                              jaxsparse::BindInit());
