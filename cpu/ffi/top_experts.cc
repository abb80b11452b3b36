// The handler of jaxsparse_top_experts on the CPU: an item is a part of one list's tokens.
#include "cpu/kernels/top_experts.h"

#include <algorithm>
#include <memory>

#include "cpu/core/work_counter.h"
#include "cpu/core/workers.h"
#include "cpu/ffi/matmul_decode.h"

namespace jaxsparse {
namespace {

namespace ffi = xla::ffi;

struct TopExpertsArgs {
  const float* logits;
  const bool* counts;  // nullptr: every token counts
  int64_t lists, tokens, experts, top_k, parts;
  bool normalize;
  int32_t* ids;
  float *weights, *sums;
};

class TopExpertsJob {
 public:
  explicit TopExpertsJob(const TopExpertsArgs& args) : a_(args), items_(args.lists * args.parts) {}

  void Run(int64_t) {
    for (int64_t item; items_.Next(&item);) RunPart(item / a_.parts, item % a_.parts);
  }

 private:
  void RunPart(int64_t list, int64_t part) const {
    const int64_t width = (a_.tokens + a_.parts - 1) / a_.parts;
    const int64_t end = list * a_.tokens + std::min(a_.tokens, (part + 1) * width);
    float* const sums = a_.sums + (list * a_.parts + part) * a_.experts;
    std::fill(sums, sums + a_.experts, 0.0f);
    for (int64_t t = list * a_.tokens + part * width; t < end; ++t) {
      int32_t* const ids = a_.ids + t * a_.top_k;
      float* const weights = a_.weights + t * a_.top_k;
      if (a_.counts == nullptr || a_.counts[t]) {
        TopExpertsOfToken(a_.logits + t * a_.experts, a_.experts, a_.top_k, a_.normalize, ids,
                          weights, sums);
      } else {
        std::fill(ids, ids + a_.top_k, -1);
        std::fill(weights, weights + a_.top_k, 0.0f);
      }
    }
  }

  const TopExpertsArgs a_;
  WorkCounter items_;
};

ffi::Future TopExperts(ffi::ThreadPool pool, ffi::BufferR3<ffi::F32> logits,
                       ffi::BufferR2<ffi::PRED> counts, ffi::Result<ffi::BufferR3<ffi::S32>> ids,
                       ffi::Result<ffi::BufferR3<ffi::F32>> weights,
                       ffi::Result<ffi::BufferR3<ffi::F32>> sums, bool normalize) {
  const auto shape = logits.dimensions();
  TopExpertsArgs a = {};
  a.lists = shape[0];
  a.tokens = shape[1];
  a.experts = shape[2];
  a.top_k = ids->dimensions()[2];
  a.parts = sums->dimensions()[1];
  a.normalize = normalize;
  a.logits = logits.typed_data();
  a.counts = counts.element_count() > 0 ? counts.typed_data() : nullptr;
  a.ids = ids->typed_data();
  a.weights = weights->typed_data();
  a.sums = sums->typed_data();
  const auto fits = [&](auto& result, int64_t middle, int64_t last) {
    const auto dims = result->dimensions();
    return dims[0] == a.lists && dims[1] == middle && dims[2] == last;
  };
  if (a.top_k < 1 || a.top_k > a.experts || a.experts > INT32_MAX || a.parts < 1 ||
      !fits(ids, a.tokens, a.top_k) || !fits(weights, a.tokens, a.top_k) ||
      !fits(sums, a.parts, a.experts) ||
      (a.counts != nullptr &&
       (counts.dimensions()[0] != a.lists || counts.dimensions()[1] != a.tokens))) {
    return FailedProduct("top_experts: operands, results and attributes disagree");
  }
  const int64_t workers = std::min(PoolWorkers(pool), std::max<int64_t>(1, a.lists * a.parts));
  return RunWorkers(pool, workers, std::make_shared<TopExpertsJob>(a));
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseTopExpertsCpu, jaxsparse::TopExperts,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::BufferR3<xla::ffi::F32>>()   // logits
                                  .Arg<xla::ffi::BufferR2<xla::ffi::PRED>>()  // counts
                                  .Ret<xla::ffi::BufferR3<xla::ffi::S32>>()   // ids
                                  .Ret<xla::ffi::BufferR3<xla::ffi::F32>>()   // weights
                                  .Ret<xla::ffi::BufferR3<xla::ffi::F32>>()   // sums
                                  .Attr<bool>("normalize"));
