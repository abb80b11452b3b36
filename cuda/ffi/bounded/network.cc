// Handlers of jaxsparse_bounded_network on CUDA (docs/contract.md).
#include "cuda/kernels/bounded_network/launch.h"

#include "cuda/ffi/bounded/decode.h"
#include "cuda/ffi/common.h"

namespace jaxsparse {
namespace {

constexpr int64_t kTableColumns = 8;

ffi::Error InitBoundedNetwork() {
  static OncePerDevice once;
  return CudaStatus("bounded_network", once.Run([](int) { return PrepareBoundedNetwork(); }));
}

ffi::Error BoundedNetwork(cudaStream_t stream, ffi::BufferR2<ffi::F32> x,
                          ffi::BufferR2<ffi::U32> table, ffi::BufferR1<ffi::S32> starts,
                          ffi::AnyBuffer indices, ffi::BufferR1<ffi::F32> weights,
                          ffi::BufferR1<ffi::F32> bias, ffi::BufferR1<ffi::F32> uppers,
                          ffi::BufferR1<ffi::S32> expand, ffi::ResultBufferR2<ffi::F32> out,
                          ffi::ResultBufferR2<ffi::U8> codes, ffi::ResultBufferR1<ffi::U8> scratch,
                          int64_t first, int64_t widest, int64_t decides, int64_t bundles) {
  const auto xs = x.dimensions(), ts = table.dimensions(), os = out->dimensions();
  const int64_t expanded = static_cast<int64_t>(expand.element_count());
  if (!BoundedIndexType(indices) || (bundles != 0 && xs[1] > widest) || ts[1] != kTableColumns ||
      ts[0] < (bundles != 0 ? 1 : 2) || os[0] != xs[0] || first < 0 || first > widest ||
      static_cast<int64_t>(codes->element_count()) != xs[0] ||
      static_cast<int64_t>(uppers.element_count()) != ts[0] || (expanded && expanded != os[1]) ||
      static_cast<int64_t>(scratch->element_count()) <
          BoundedNetworkScratch(xs[0], widest, ts[0], bundles > 1)) {
    return ffi::Error::InvalidArgument(
        "bounded_network: operands, results and attributes disagree");
  }
  if (xs[0] == 0 || os[1] == 0) return ffi::Error::Success();
  BoundedNetworkArgs args = {};
  args.batch = xs[0];
  args.n_in = xs[1];
  args.n_out = os[1];
  args.depth = ts[0];
  args.first = first;
  args.widest = widest;
  args.regroup = decides != 0;
  args.bundles = bundles != 0;
  args.panels = bundles > 1;
  args.rows = bundles > 2;
  args.x = x.typed_data();
  args.table = table.typed_data();
  args.starts = starts.typed_data();
  args.indices = indices.untyped_data();
  args.wide = indices.element_type() == ffi::DataType::S32;
  args.weights = weights.typed_data();
  args.entries = static_cast<int64_t>(indices.element_count());
  args.weighed = static_cast<int64_t>(weights.element_count());
  args.bias = bias.typed_data();
  args.uppers = uppers.typed_data();
  args.expand = expanded > 0 ? expand.typed_data() : nullptr;
  args.out = out->typed_data();
  args.codes = codes->typed_data();
  args.scratch = scratch->untyped_data();
  const cudaError_t error = LaunchBoundedNetwork(args, stream);
  return CudaStatus("bounded_network", error);
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseBoundedNetworkCudaInit, jaxsparse::InitBoundedNetwork,
                              xla::ffi::Ffi::Bind<xla::ffi::ExecutionStage::kInitialize>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseBoundedNetworkCuda, jaxsparse::BoundedNetwork,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::PlatformStream<cudaStream_t>>()
                                  .Arg<xla::ffi::BufferR2<xla::ffi::F32>>()  // x
                                  .Arg<xla::ffi::BufferR2<xla::ffi::U32>>()  // table
                                  .Arg<xla::ffi::BufferR1<xla::ffi::S32>>()  // starts
                                  .Arg<xla::ffi::AnyBuffer>()                // indices
                                  .Arg<xla::ffi::BufferR1<xla::ffi::F32>>()  // weights
                                  .Arg<xla::ffi::BufferR1<xla::ffi::F32>>()  // bias
                                  .Arg<xla::ffi::BufferR1<xla::ffi::F32>>()  // uppers
                                  .Arg<xla::ffi::BufferR1<xla::ffi::S32>>()  // expand
                                  .Ret<xla::ffi::BufferR2<xla::ffi::F32>>()  // out
                                  .Ret<xla::ffi::BufferR2<xla::ffi::U8>>()   // codes
                                  .Ret<xla::ffi::BufferR1<xla::ffi::U8>>()   // scratch
                                  .Attr<int64_t>("first")
                                  .Attr<int64_t>("widest")
                                  .Attr<int64_t>("decides")
                                  .Attr<int64_t>("bundles"),
                              {xla::ffi::Traits::kCmdBufferCompatible});
