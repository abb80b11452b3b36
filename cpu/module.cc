// The module jaxsparse._cpu: one registrations() dictionary of FFI handlers, and the FFI version
// they were built against.
#include <nanobind/nanobind.h>

#include "cpu/core/isa.h"
#include "cpu/ffi/pruned/runs_bind.h"
#include "cpu/workspace.h"
#include "xla/ffi/api/ffi.h"

namespace nb = nanobind;

XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparsePackMaskCpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseUnpackMaskCpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseTileIndexCpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseComponentIndexCpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseMaskIndexCpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparsePortfolioIndexCpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseReachIndexCpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseBlockListsCpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseMaskedConvCpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseMaskedConvDeviceCpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseMaskedConvDkernelCpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseRecordSegmentsCpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseBoundedMatmulCpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseBoundedNetworkCpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseRouteCpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseTopExpertsCpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseGroupedMatmulCpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseGroupedMatmulDrhsCpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseMaskedMatmulCpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseSparseAttentionCpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseSparseAttentionGradCpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseSparseFfnCpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparseSparseFfnProductCpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparsePrunedMatmulCpu);
XLA_FFI_DECLARE_HANDLER_SYMBOL(JaxsparsePrunedConvCpu);

namespace {

nb::capsule Capsule(XLA_FFI_Handler* handler) {
  return nb::capsule(reinterpret_cast<void*>(handler), "xla._CUSTOM_CALL_TARGET");
}

nb::dict Registrations() {
  nb::dict targets;
  targets["jaxsparse_pack_mask"] = Capsule(JaxsparsePackMaskCpu);
  targets["jaxsparse_unpack_mask"] = Capsule(JaxsparseUnpackMaskCpu);
  targets["jaxsparse_tile_index"] = Capsule(JaxsparseTileIndexCpu);
  targets["jaxsparse_component_index"] = Capsule(JaxsparseComponentIndexCpu);
  targets["jaxsparse_mask_index"] = Capsule(JaxsparseMaskIndexCpu);
  targets["jaxsparse_portfolio_index"] = Capsule(JaxsparsePortfolioIndexCpu);
  targets["jaxsparse_reach_index"] = Capsule(JaxsparseReachIndexCpu);
  targets["jaxsparse_block_lists"] = Capsule(JaxsparseBlockListsCpu);
  targets["jaxsparse_masked_conv"] = Capsule(JaxsparseMaskedConvCpu);
  targets["jaxsparse_masked_conv_device"] = Capsule(JaxsparseMaskedConvDeviceCpu);
  targets["jaxsparse_masked_conv_dkernel"] = Capsule(JaxsparseMaskedConvDkernelCpu);
  targets["jaxsparse_record_segments"] = Capsule(JaxsparseRecordSegmentsCpu);
  targets["jaxsparse_bounded_matmul"] = Capsule(JaxsparseBoundedMatmulCpu);
  targets["jaxsparse_bounded_network"] = Capsule(JaxsparseBoundedNetworkCpu);
  targets["jaxsparse_route"] = Capsule(JaxsparseRouteCpu);
  targets["jaxsparse_top_experts"] = Capsule(JaxsparseTopExpertsCpu);
  targets["jaxsparse_grouped_matmul"] = Capsule(JaxsparseGroupedMatmulCpu);
  targets["jaxsparse_grouped_matmul_drhs"] = Capsule(JaxsparseGroupedMatmulDrhsCpu);
  targets["jaxsparse_masked_matmul"] = Capsule(JaxsparseMaskedMatmulCpu);
  targets["jaxsparse_sparse_attention"] = Capsule(JaxsparseSparseAttentionCpu);
  targets["jaxsparse_sparse_attention_grad"] = Capsule(JaxsparseSparseAttentionGradCpu);
  targets["jaxsparse_sparse_ffn"] = Capsule(JaxsparseSparseFfnCpu);
  targets["jaxsparse_sparse_ffn_product"] = Capsule(JaxsparseSparseFfnProductCpu);
  targets["jaxsparse_pruned_matmul"] = Capsule(JaxsparsePrunedMatmulCpu);
  targets["jaxsparse_pruned_conv"] = Capsule(JaxsparsePrunedConvCpu);
  return targets;
}

// The instruction set that the kernels take on this machine.
const char* InstructionSet() {
  if (!jaxsparse::IsaError().empty()) throw nb::value_error(jaxsparse::IsaError().c_str());
  return jaxsparse::NameOf(jaxsparse::ChosenIsa());
}

}  // namespace

NB_MODULE(_cpu, m) {
  m.doc() = "CPU handlers of jaxsparse";
  m.def("registrations", &Registrations, "FFI targets and their handlers");
  m.def("instruction_set", &InstructionSet, "the instruction set chosen at run time");
  jaxsparse::BindWorkspace(m);
  jaxsparse::BindRunsPack(m);
  m.attr("ffi_api_version") = nb::make_tuple(XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR);
}
