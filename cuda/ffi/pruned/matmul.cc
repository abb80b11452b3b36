// Handlers of jaxsparse_pruned_matmul on CUDA (contracts/pruned.toml).
#include "contracts/pruned_matmul.gen.h"
#include "cuda/ffi/pruned/decode.h"

namespace jaxsparse {
namespace {

ffi::Error PrunedMatmul(cudaStream_t stream, contract::pruned_matmul::Attributes attributes,
                        ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::pruned_matmul::Decode(attributes, operands, results);
  if (call.has_error()) return call.error();
  PrunedArgs args = {};
  args.m = call->rows_of_x;
  args.k = call->n_in;
  return RunPruned("pruned_matmul", *call, args, stream);
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparsePrunedMatmulCudaInit, jaxsparse::InitPruned,
                              jaxsparse::BindPrunedInit());

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparsePrunedMatmulCuda, jaxsparse::PrunedMatmul,
                              jaxsparse::BindCall<jaxsparse::contract::pruned_matmul::Attributes>(),
                              {xla::ffi::Traits::kCmdBufferCompatible});
