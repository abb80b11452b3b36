// AttentionScore: from q.k to the score of a position, and its derivative.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/core/element.cuh"
#include "cuda/kernels/sparse_attention/args.h"
#include "cuda/kernels/sparse_attention/mma/registers.cuh"

namespace jaxsparse {

inline constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

// Of one batch and head. Element: of the operands.
template <class Element>
class AttentionScore {
 public:
  __device__ AttentionScore(const AttentionArgs& a, int batch, int head)
      : a_(a),
        slope_(a.slopes == nullptr ? 0.0f : __ldg(a.slopes + head)),
        bias_(batch * a.bias_strides[0] + head * a.bias_strides[1]),
        plain_(a.slopes == nullptr && a.bias == nullptr && a.soft_cap == 0.0f && a.scale > 0.0f) {}

  // Whether the score is `scale` times the product, with a scale above 0.
  __device__ bool plain() const { return plain_; }

  // The score of query `q` and key `kv`; `derivative`: by the product, over `scale`. The bias of a
  // position that does not count is not read.
  __device__ __forceinline__ float Score(float product, int q, int kv, bool counts,
                                         float* derivative) const {
    float score = product * a_.scale;
    *derivative = 1.0f;
    if (a_.soft_cap != 0.0f) {
      const float t = tanhf(score / a_.soft_cap);  // exact near 0: the cap may be high
      score = a_.soft_cap * t;
      *derivative = 1.0f - t * t;
    }
    if (a_.slopes != nullptr) score += slope_ * static_cast<float>(kv - q);
    if (a_.bias != nullptr && counts) score += Bias(min(q, a_.q_len - 1), min(kv, a_.kv_len - 1));
    return score;
  }

 private:
  __device__ __forceinline__ float Bias(int q, int kv) const {
    const int64_t at = bias_ + q * a_.bias_strides[2] + kv * a_.bias_strides[3];
    if (a_.bias_f32) return __ldg(static_cast<const float*>(a_.bias) + at);
    return simt::ToFloat(static_cast<const Element*>(a_.bias)[at]);
  }

  const AttentionArgs& a_;
  float slope_;
  int64_t bias_;
  bool plain_;
};

}  // namespace jaxsparse
