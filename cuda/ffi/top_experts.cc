// Handler of jaxsparse_top_experts (docs/contract.md).
#include "cuda/kernels/top_experts/launch.h"

#include "cuda/ffi/common.h"

namespace jaxsparse {
namespace {

constexpr char kOp[] = "jaxsparse_top_experts";

ffi::Error TopExperts(cudaStream_t stream, ffi::BufferR3<ffi::F32> logits,
                      ffi::BufferR2<ffi::PRED> counts, ffi::Result<ffi::BufferR3<ffi::S32>> ids,
                      ffi::Result<ffi::BufferR3<ffi::F32>> weights,
                      ffi::Result<ffi::BufferR3<ffi::F32>> sums, bool normalize) {
  const auto shape = logits.dimensions();
  TopExpertsArgs args = {};
  args.lists = shape[0];
  args.tokens = shape[1];
  args.experts = shape[2];
  args.top_k = ids->dimensions()[2];
  args.parts = sums->dimensions()[1];
  args.normalize = normalize;
  args.logits = logits.typed_data();
  args.counts = counts.element_count() > 0 ? counts.typed_data() : nullptr;
  args.ids = ids->typed_data();
  args.weights = weights->typed_data();
  args.sums = sums->typed_data();
  const auto fits = [&](auto& result, int64_t middle, int64_t last) {
    const auto dims = result->dimensions();
    return dims[0] == args.lists && dims[1] == middle && dims[2] == last;
  };
  if (!fits(ids, args.tokens, args.top_k) || !fits(weights, args.tokens, args.top_k) ||
      !fits(sums, args.parts, args.experts) ||
      (args.counts != nullptr &&
       (counts.dimensions()[0] != args.lists || counts.dimensions()[1] != args.tokens))) {
    return Invalid(kOp, "operands, results and attributes disagree");
  }
  if (args.experts < 1 || args.experts > kMostTopExperts || args.top_k < 1 ||
      args.top_k > args.experts || args.parts < 1 || args.parts > INT32_MAX) {
    return Invalid(kOp, "it takes 1 to 1024 experts, and 1 to all of them of a token");
  }
  return CudaStatus(kOp, LaunchTopExperts(args, stream));
}

ffi::Error TopExpertsInit() {
  static OncePerDevice* once = new OncePerDevice;
  return CudaStatus(kOp, once->Run([](int) { return PrepareTopExperts(); }));
}

}  // namespace
}  // namespace jaxsparse

namespace ffi = ::xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseTopExpertsCuda, jaxsparse::TopExperts,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<cudaStream_t>>()
                                  .Arg<ffi::BufferR3<ffi::F32>>()   // logits
                                  .Arg<ffi::BufferR2<ffi::PRED>>()  // counts
                                  .Ret<ffi::BufferR3<ffi::S32>>()   // ids
                                  .Ret<ffi::BufferR3<ffi::F32>>()   // weights
                                  .Ret<ffi::BufferR3<ffi::F32>>()   // sums
                                  .Attr<bool>("normalize"),
                              {ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseTopExpertsCudaInit, jaxsparse::TopExpertsInit,
                              ffi::Ffi::Bind<ffi::ExecutionStage::kInitialize>());
