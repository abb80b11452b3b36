// The handler of jaxsparse_top_experts on the CPU (contracts/route.toml): an item is a part of one
// list's tokens.
#include "cpu/kernels/top_experts/job.h"

#include <algorithm>
#include <memory>

#include "contracts/top_experts.gen.h"
#include "cpu/core/work_counter.h"
#include "cpu/core/workers.h"

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

ffi::Future TopExperts(ffi::ThreadPool pool, contract::top_experts::Attributes attributes,
                       ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::top_experts::Decode(attributes, operands, results);
  if (call.has_error()) return contract::Failed(call.error());
  const auto& c = *call;
  if (c.nothing()) return contract::Done();
  TopExpertsArgs a = {};
  a.lists = c.lists;
  a.tokens = c.tokens;
  a.experts = c.experts;
  a.top_k = c.top_k;
  a.parts = c.parts;
  a.normalize = c.normalize;
  a.logits = c.logits.as<float>();
  a.counts = c.counts.as<bool>();
  a.ids = c.ids.as<int32_t>();
  a.weights = c.weights.as<float>();
  a.sums = c.sums.as<float>();
  const int64_t workers = std::min(PoolWorkers(pool), std::max<int64_t>(1, a.lists * a.parts));
  return RunWorkers(pool, workers, std::make_shared<TopExpertsJob>(a));
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseTopExpertsCpu, jaxsparse::TopExperts,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Attrs<jaxsparse::contract::top_experts::Attributes>()
                                  .RemainingArgs()
                                  .RemainingRets());
