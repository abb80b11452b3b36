// The handler of jaxsparse_block_lists on CUDA (contracts/block_lists.toml).
#include "cuda/index/blocks/block_lists.h"
#include "contracts/block_lists.gen.h"
#include "cuda/ffi/common.h"

namespace jaxsparse {
namespace {

constexpr char kOp[] = "block_lists";

ffi::Error BothLists(cudaStream_t stream, ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::block_lists::Decode(operands, results);
  if (call.has_error()) return call.error();
  const auto& c = *call;
  if (c.nothing()) return ffi::Error::Success();
  BlockListsArgs args = {};
  const bool active = c.codes.type == ffi::DataType::PRED;
  if (active) {
    args.active = c.codes.as<uint8_t>();
  } else {
    args.codes = c.codes.as<int32_t>();
  }
  args.images = c.batch * c.heads;
  args.rows = c.rows;
  args.columns = c.columns;
  args.by_row = {c.kv_counts.as<int32_t>(), c.kv_blocks.as<int32_t>(), c.kv_slots.as<int32_t>()};
  args.by_column = {c.q_counts.as<int32_t>(), c.q_blocks.as<int32_t>(), c.q_slots.as<int32_t>()};
  return CudaStatus(kOp, active ? ListActive(args, stream) : ListBlocks(args, stream));
}

ffi::Error BlockListsInit() {
  static OncePerDevice* once = new OncePerDevice;
  return CudaStatus(kOp, once->Run([](int) {
    const cudaError_t status = PrepareListBlocks();
    return status == cudaSuccess ? PrepareListActive() : status;
  }));
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseBlockListsCuda, jaxsparse::BothLists,
                              jaxsparse::BindPlainCall(), {xla::ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseBlockListsCudaInit, jaxsparse::BlockListsInit,
                              jaxsparse::BindInit());
