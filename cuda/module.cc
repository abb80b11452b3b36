// The module jaxsparse._cuda: one registrations() dictionary of FFI handlers, and the FFI version
// they were built against.
#include <cuda_runtime_api.h>
#include <nanobind/nanobind.h>

#include "cuda/ffi/pruned/code.h"
#include "cuda/grouped_workspace.h"
#include "cuda/workspace.h"
#include "xla/ffi/api/ffi.h"

namespace nb = nanobind;

XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparsePackMaskCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseUnpackMaskCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseTileIndexCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseComponentIndexCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseMaskIndexCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparsePortfolioIndexCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseMaskIndexCudaInit);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseReachIndexCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseBlockListsCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseBlockListsCudaInit);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseAffectedIndexCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseAffectedIndexCudaInit);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseMaskedConvCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseMaskedConvCudaInit);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseMaskedConvDeviceCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseMaskedConvDeviceCudaInit);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseMaskedConvStackCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseMaskedConvStackCudaInit);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseMaskedConvDkernelCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseMaskedConvDkernelCudaInit);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseSparseFfnCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseSparseFfnCudaInit);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseSparseFfnListsCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseSparseFfnListsCudaInit);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseSparseFfnListedCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseSparseFfnListedCudaInit);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseRouteCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseRouteCudaInit);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseTopExpertsCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseTopExpertsCudaInit);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseGroupedMatmulCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseGroupedMatmulDrhsCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseGroupedGatedCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseGroupedMatmulCudaInit);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseMaskedMatmulCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseMaskedMatmulCudaInit);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseSparseAttentionCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseSparseAttentionGradCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseSparseAttentionCudaInit);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseRecordSegmentsCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseFillRowsCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseKnownWindowsCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseBoundedMatmulCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseBoundedMatmulCudaInit);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseBoundedNetworkCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseBoundedNetworkCudaInit);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparsePrunedMatmulCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparsePrunedMatmulCudaInit);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparsePrunedConvCuda);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparsePrunedConvCudaInit);

namespace {

nb::capsule Capsule(XLA_FFI_Handler* handler) {
  return nb::capsule(reinterpret_cast<void*>(handler), "xla._CUSTOM_CALL_TARGET");
}

// A handler with a step that runs before every execution (it loads every variant once per device).
nb::dict Staged(XLA_FFI_Handler* initialize, XLA_FFI_Handler* execute) {
  nb::dict stages;
  stages["initialize"] = Capsule(initialize);
  stages["execute"] = Capsule(execute);
  return stages;
}

nb::dict Registrations() {
  nb::dict targets;
  targets["jaxsparse_pack_mask"] = Capsule(JaxsparsePackMaskCuda);
  targets["jaxsparse_unpack_mask"] = Capsule(JaxsparseUnpackMaskCuda);
  targets["jaxsparse_tile_index"] = Capsule(JaxsparseTileIndexCuda);
  targets["jaxsparse_component_index"] = Capsule(JaxsparseComponentIndexCuda);
  targets["jaxsparse_mask_index"] = Staged(JaxsparseMaskIndexCudaInit, JaxsparseMaskIndexCuda);
  targets["jaxsparse_portfolio_index"] =
      Staged(JaxsparseMaskIndexCudaInit, JaxsparsePortfolioIndexCuda);
  targets["jaxsparse_reach_index"] = Staged(JaxsparseMaskIndexCudaInit, JaxsparseReachIndexCuda);
  targets["jaxsparse_block_lists"] = Staged(JaxsparseBlockListsCudaInit, JaxsparseBlockListsCuda);
  targets["jaxsparse_affected_index"] =
      Staged(JaxsparseAffectedIndexCudaInit, JaxsparseAffectedIndexCuda);
  targets["jaxsparse_masked_conv"] = Staged(JaxsparseMaskedConvCudaInit, JaxsparseMaskedConvCuda);
  targets["jaxsparse_masked_conv_device"] =
      Staged(JaxsparseMaskedConvDeviceCudaInit, JaxsparseMaskedConvDeviceCuda);
  targets["jaxsparse_masked_conv_stack"] =
      Staged(JaxsparseMaskedConvStackCudaInit, JaxsparseMaskedConvStackCuda);
  targets["jaxsparse_masked_conv_dkernel"] =
      Staged(JaxsparseMaskedConvDkernelCudaInit, JaxsparseMaskedConvDkernelCuda);
  targets["jaxsparse_sparse_ffn"] = Staged(JaxsparseSparseFfnCudaInit, JaxsparseSparseFfnCuda);
  targets["jaxsparse_sparse_ffn_lists"] =
      Staged(JaxsparseSparseFfnListsCudaInit, JaxsparseSparseFfnListsCuda);
  targets["jaxsparse_sparse_ffn_listed"] =
      Staged(JaxsparseSparseFfnListedCudaInit, JaxsparseSparseFfnListedCuda);
  targets["jaxsparse_route"] = Staged(JaxsparseRouteCudaInit, JaxsparseRouteCuda);
  targets["jaxsparse_top_experts"] = Staged(JaxsparseTopExpertsCudaInit, JaxsparseTopExpertsCuda);
  targets["jaxsparse_grouped_matmul"] =
      Staged(JaxsparseGroupedMatmulCudaInit, JaxsparseGroupedMatmulCuda);
  targets["jaxsparse_grouped_matmul_drhs"] =
      Staged(JaxsparseGroupedMatmulCudaInit, JaxsparseGroupedMatmulDrhsCuda);
  targets["jaxsparse_grouped_gated"] =
      Staged(JaxsparseGroupedMatmulCudaInit, JaxsparseGroupedGatedCuda);
  targets["jaxsparse_masked_matmul"] =
      Staged(JaxsparseMaskedMatmulCudaInit, JaxsparseMaskedMatmulCuda);
  targets["jaxsparse_sparse_attention"] =
      Staged(JaxsparseSparseAttentionCudaInit, JaxsparseSparseAttentionCuda);
  targets["jaxsparse_sparse_attention_grad"] =
      Staged(JaxsparseSparseAttentionCudaInit, JaxsparseSparseAttentionGradCuda);
  targets["jaxsparse_record_segments"] = Capsule(JaxsparseRecordSegmentsCuda);
  targets["jaxsparse_fill_rows"] = Capsule(JaxsparseFillRowsCuda);
  targets["jaxsparse_known_windows"] = Capsule(JaxsparseKnownWindowsCuda);
  targets["jaxsparse_bounded_matmul"] =
      Staged(JaxsparseBoundedMatmulCudaInit, JaxsparseBoundedMatmulCuda);
  targets["jaxsparse_bounded_network"] =
      Staged(JaxsparseBoundedNetworkCudaInit, JaxsparseBoundedNetworkCuda);
  targets["jaxsparse_pruned_matmul"] =
      Staged(JaxsparsePrunedMatmulCudaInit, JaxsparsePrunedMatmulCuda);
  targets["jaxsparse_pruned_conv"] = Staged(JaxsparsePrunedConvCudaInit, JaxsparsePrunedConvCuda);
  return targets;
}

}  // namespace

NB_MODULE(_cuda, m) {
  m.doc() = "CUDA handlers of jaxsparse";
  m.def("registrations", &Registrations, "FFI targets and their handlers");
  jaxsparse::BindWorkspace(m);
  jaxsparse::BindPrunedCode(m);
  jaxsparse::BindGroupedWorkspace(m);
  m.attr("ffi_api_version") = nb::make_tuple(XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR);
  m.attr("runtime_version") = CUDART_VERSION;
  m.attr("architectures") = JAXSPARSE_ARCHITECTURES;
}
