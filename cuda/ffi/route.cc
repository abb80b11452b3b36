// Handler of jaxsparse_route (docs/contract.md).
#include "cuda/kernels/route/launch.h"

#include "cuda/ffi/common.h"

namespace jaxsparse {
namespace {

constexpr char kOp[] = "jaxsparse_route";

ffi::Error Route(cudaStream_t stream, ffi::BufferR2<ffi::S32> ids,
                 ffi::Result<ffi::BufferR2<ffi::S32>> order,
                 ffi::Result<ffi::BufferR2<ffi::S32>> source,
                 ffi::Result<ffi::BufferR2<ffi::S32>> sizes,
                 ffi::Result<ffi::BufferR1<ffi::S32>> scratch, int64_t top_k) {
  RouteArgs args = {};
  args.ids = ids.typed_data();
  args.lists = ids.dimensions()[0];
  args.assignments = ids.dimensions()[1];
  args.experts = sizes->dimensions()[1];
  args.top_k = top_k;
  args.order = order->typed_data();
  args.source = source->typed_data();
  args.group_sizes = sizes->typed_data();
  args.scratch = scratch->typed_data();
  args.scratch_words = static_cast<int64_t>(scratch->element_count());
  const auto fits = [&](auto& result, int64_t width) {
    return result->dimensions()[0] == args.lists && result->dimensions()[1] == width;
  };
  if (top_k < 1 || top_k > INT32_MAX || args.assignments > INT32_MAX || args.experts >= INT32_MAX ||
      !fits(order, args.assignments) || !fits(source, args.assignments) ||
      !fits(sizes, args.experts)) {
    return Invalid(kOp, "operands, results and attributes disagree");
  }
  if (args.scratch_words < RouteScratchWords(args.lists, args.assignments, args.experts)) {
    return Invalid(kOp, "scratch is too small");
  }
  return CudaStatus(kOp, LaunchRoute(args, stream));
}

ffi::Error RouteInit() {
  static OncePerDevice* once = new OncePerDevice;
  return CudaStatus(kOp, once->Run([](int) { return PrepareRoute(); }));
}

}  // namespace
}  // namespace jaxsparse

namespace ffi = ::xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseRouteCuda, jaxsparse::Route,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<cudaStream_t>>()
                                  .Arg<ffi::BufferR2<ffi::S32>>()  // expert_ids
                                  .Ret<ffi::BufferR2<ffi::S32>>()  // order
                                  .Ret<ffi::BufferR2<ffi::S32>>()  // source
                                  .Ret<ffi::BufferR2<ffi::S32>>()  // group_sizes
                                  .Ret<ffi::BufferR1<ffi::S32>>()  // scratch
                                  .Attr<int64_t>("top_k"),
                              {ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseRouteCudaInit, jaxsparse::RouteInit,
                              ffi::Ffi::Bind<ffi::ExecutionStage::kInitialize>());
