// Handlers of jaxsparse_sparse_ffn_lists and jaxsparse_sparse_ffn_listed on CUDA
// (contracts/sparse_ffn.toml).
#include "contracts/sparse_ffn_listed.gen.h"
#include "contracts/sparse_ffn_lists.gen.h"
#include "cuda/ffi/common.h"
#include "cuda/kernels/sparse_ffn/many/launch.h"

namespace jaxsparse {
namespace {

constexpr char kLists[] = "sparse_ffn_lists", kListed[] = "sparse_ffn_listed";

ffi::Error SparseFfnLists(cudaStream_t stream, contract::sparse_ffn_lists::Attributes attributes,
                          ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::sparse_ffn_lists::Decode(attributes, operands, results);
  if (call.has_error()) return call.error();
  const auto& c = *call;
  if (c.nothing()) return ffi::Error::Success();
  for (const contract::Array* array : {&c.a, &c.ids, &c.values, &c.counts}) {
    if (!IsAligned(*array)) return Invalid(kLists, "an array is not aligned to 16 bytes");
  }
  ListArgs args = {};
  args.a = c.a.data;
  args.ids = c.ids.as<uint16_t>();
  args.values = c.values.data;
  args.counts = c.counts.as<int>();
  args.rows = static_cast<int>(c.rows);
  args.depth = static_cast<int>(c.depth);
  args.type = ToDType(c.a.type);
  args.rectified = c.rectified;
  args.squared = c.squared;
  return CudaStatus(kLists, LaunchLists(args, stream));
}

ffi::Error SparseFfnListed(cudaStream_t stream, ffi::RemainingArgs operands,
                           ffi::RemainingRets results) {
  const auto call = contract::sparse_ffn_listed::Decode(operands, results);
  if (call.has_error()) return call.error();
  const auto& c = *call;
  if (c.nothing()) return ffi::Error::Success();
  if (c.hidden == 0) {
    const size_t bytes = static_cast<size_t>(c.y.bytes());
    return CudaStatus(kListed, cudaMemsetAsync(c.y.data, 0, bytes, stream));
  }
  for (const contract::Array* array :
       {&c.ids, &c.values, &c.counts, &c.w_down, &c.x, &c.w_up_t, &c.y, &c.products}) {
    if (!IsAligned(*array)) return Invalid(kListed, "an array is not aligned to 16 bytes");
  }
  if (!ListedFits()) {
    return Invalid(kListed, "the device has less than 128 KiB of shared memory for a block");
  }
  ListedArgs args = {};
  args.ids = c.ids.as<const uint16_t>();
  args.values = c.values.data;
  args.counts = c.counts.as<const int>();
  args.w_down = c.w_down.data;
  args.x = c.x.as<const void>();
  args.w_up = c.w_up_t.as<const void>();
  args.y = c.y.data;
  args.products = c.products.data;
  args.tokens = static_cast<int>(c.tokens);
  args.depth = static_cast<int>(c.depth);
  args.hidden = static_cast<int>(c.hidden);
  args.outputs = static_cast<int>(c.outputs);
  args.type = ToDType(c.values.type);
  return CudaStatus(kListed, LaunchListed(args, stream));
}

ffi::Error SparseFfnListsInit() {
  static OncePerDevice* once = new OncePerDevice;
  return CudaStatus(kLists, once->Run([](int) { return PrepareLists(); }));
}

ffi::Error SparseFfnListedInit() {
  static OncePerDevice* once = new OncePerDevice;
  return CudaStatus(kListed, once->Run([](int) { return PrepareListed(); }));
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JaxsparseSparseFfnListsCuda, jaxsparse::SparseFfnLists,
    jaxsparse::BindCall<jaxsparse::contract::sparse_ffn_lists::Attributes>(),
    {xla::ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseSparseFfnListsCudaInit, jaxsparse::SparseFfnListsInit,
                              jaxsparse::BindInit());

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseSparseFfnListedCuda, jaxsparse::SparseFfnListed,
                              jaxsparse::BindPlainCall(), {xla::ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseSparseFfnListedCudaInit, jaxsparse::SparseFfnListedInit,
                              jaxsparse::BindInit());
