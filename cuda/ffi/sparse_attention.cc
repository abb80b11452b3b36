// Handlers of jaxsparse_sparse_attention and jaxsparse_sparse_attention_grad on CUDA
// (contracts/sparse_attention.toml).
#include "contracts/sparse_attention.gen.h"
#include "contracts/sparse_attention_grad.gen.h"
#include "cuda/core/device.h"
#include "cuda/core/launch.h"
#include "cuda/ffi/common.h"
#include "cuda/kernels/sparse_attention/args.h"
#include "cuda/kernels/sparse_attention/delta.h"
#include "cuda/kernels/sparse_attention/mma/launch.h"
#include "cuda/kernels/sparse_attention/split/launch.h"
#include "cuda/kernels/sparse_attention/wgmma/grad/launch.h"
#include "cuda/kernels/sparse_attention/wgmma/launch.h"
#include "cuda/kernels/sparse_attention/wgmma/reduce/launch.h"

namespace jaxsparse {
namespace {

constexpr char kOp[] = "sparse_attention";
constexpr char kGradOp[] = "sparse_attention_grad";
// mma.sync, on every device; the others are Hopper's. `kReduce` differs in the gradient alone.
constexpr int64_t kMma = 0, kWgmma = 1, kSplit = 2, kReduce = 3;
constexpr int64_t kCounterBytes = sizeof(int), kAlign = 256;

// The lists of one direction.
template <class Call>
AttentionMask MaskOf(const Call& c, const contract::Array& counts, const contract::Array& blocks,
                     const contract::Array& slots) {
  AttentionMask mask = {};
  mask.counts = counts.as<int32_t>();
  mask.blocks = blocks.as<int32_t>();
  mask.slots = slots.as<int32_t>();
  mask.words = c.words.template as<uint32_t>();
  mask.word_rows = c.slots;
  mask.batch = static_cast<int>(blocks.dims[0]);
  mask.heads = static_cast<int>(blocks.dims[1]);
  mask.rows = static_cast<int>(blocks.dims[2]);
  mask.columns = static_cast<int>(blocks.dims[3]);
  mask.block_q = static_cast<int>(c.block_q);
  mask.block_kv = static_cast<int>(c.block_kv);
  return mask;
}

// What both handlers know of the forward call; `out` and `lse` are operands of the gradient.
template <class Call>
AttentionArgs ArgsOf(const Call& c) {
  AttentionArgs a = {};
  a.q = c.q.data;
  a.k = c.k.data;
  a.v = c.v.data;
  a.out = c.out.data;
  a.lse = c.lse.template as<float>();
  a.slopes = c.slopes.template as<float>();
  if (c.bias.given()) {
    a.bias = c.bias.data;
    a.bias_f32 = c.bias.type == ffi::DataType::F32;
    int64_t stride = 1;
    for (int axis = 3; axis >= 0; --axis) {
      a.bias_strides[axis] = c.bias.dims[axis] == 1 ? 0 : stride;
      stride *= c.bias.dims[axis];
    }
  }
  a.precision = c.precision == 1 ? Precision::kHighest : Precision::kDefault;
  a.batch = static_cast<int>(c.batch);
  a.q_len = static_cast<int>(c.q_len);
  a.kv_len = static_cast<int>(c.kv_len);
  a.heads = static_cast<int>(c.heads);
  a.kv_heads = static_cast<int>(c.kv_heads);
  a.depth = static_cast<int>(c.depth);
  a.v_depth = static_cast<int>(c.v_depth);
  a.scale = c.scale;
  a.soft_cap = c.soft_cap > 0.0f ? c.soft_cap : 0.0f;
  a.mask = MaskOf(c, c.kv_counts, c.kv_blocks, c.kv_slots);
  return a;
}

constexpr char kAlignment[] = "the arrays must be aligned to 16 bytes";
constexpr char kNoVariant[] =
    "variant must be 0 (mma.sync), 1 (wgmma), 2 (split keys) or 3 (wgmma, dq added up)";

// Why `variant` cannot run this problem, or nullptr when it can. No other family is tried in its
// place.
const char* VariantReason(const AttentionArgs& a, DType dtype, int64_t variant) {
  if (variant == kMma) return AttentionMmaReason(a);
  if (variant == kSplit) return AttentionSplitReason(a, dtype);
  if (variant == kReduce && HopperReduceSizes(a) != nullptr) return HopperReduceSizes(a);
  return variant == kWgmma || variant == kReduce ? HopperAttentionReason(a, dtype) : kNoVariant;
}

const char* GradReason(const AttentionGradArgs& g, DType dtype, int64_t variant) {
  if (variant == kMma) return AttentionMmaReason(g.forward);
  if (variant == kSplit) return "it computes no gradients";
  if (variant == kReduce) return HopperReduceReason(g, dtype);
  return variant == kWgmma ? HopperBackwardReason(g, dtype) : kNoVariant;
}

ffi::Error SparseAttention(cudaStream_t stream, contract::sparse_attention::Attributes attributes,
                           ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::sparse_attention::Decode(attributes, operands, results);
  if (call.has_error()) return call.error();
  const auto& c = *call;
  if (c.nothing()) return ffi::Error::Success();
  const AttentionArgs args = ArgsOf(c);
  const DType dtype = ToDType(c.q.type);
  if (const char* reason = VariantReason(args, dtype, c.variant)) return Invalid(kOp, reason);
  for (const contract::Array* array : {&c.q, &c.k, &c.v, &c.out}) {
    if (!IsAligned(*array)) return Invalid(kOp, kAlignment);
  }
  if (c.variant == kMma) return CudaStatus(kOp, LaunchAttentionMma(args, dtype, stream));
  if (c.variant == kSplit) {
    if (!IsAligned(c.scratch)) return Invalid(kOp, kAlignment);
    return CudaStatus(kOp,
                      LaunchAttentionSplit(args, dtype, c.scratch.data, c.scratch_bytes, stream));
  }
  if (c.scratch_bytes < kCounterBytes)
    return TooSmall(kOp, c.scratch_bytes, kCounterBytes, "bytes");
  return CudaStatus(kOp, LaunchHopper(args, dtype, stream, c.scratch.as<int>()));
}

ffi::Error SparseAttentionGrad(cudaStream_t stream,
                               contract::sparse_attention_grad::Attributes attributes,
                               ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::sparse_attention_grad::Decode(attributes, operands, results);
  if (call.has_error()) return call.error();
  const auto& c = *call;
  if (c.nothing()) return ffi::Error::Success();
  AttentionGradArgs grad = {};
  grad.forward = ArgsOf(c);
  grad.gout = c.gout.data;
  grad.glse = c.glse.as<float>();
  grad.delta = c.scratch.as<float>();
  grad.dq = c.dq.data;
  grad.dk = c.dk.data;
  grad.dv = c.dv.data;
  grad.transposed = MaskOf(c, c.q_counts, c.q_blocks, c.q_slots);
  const DType dtype = ToDType(c.q.type);
  if (const char* reason = GradReason(grad, dtype, c.variant)) return Invalid(kGradOp, reason);
  for (const contract::Array* array :
       {&c.q, &c.k, &c.v, &c.out, &c.gout, &c.dq, &c.dk, &c.dv, &c.scratch}) {
    if (!IsAligned(*array)) return Invalid(kGradOp, kAlignment);
  }
  // Deltas, two counters, and where dq is added up its sums from the next multiple of kAlign on.
  const int64_t delta = AttentionDeltaBytes(grad.forward), counted = delta + 2 * kCounterBytes;
  const bool reduces = c.variant == kReduce;
  const int64_t sums = CeilDiv(counted, kAlign) * kAlign;
  const int64_t needed = reduces ? sums + AttentionSumBytes(grad.forward) : counted;
  if (c.scratch_bytes < needed) return TooSmall(kGradOp, c.scratch_bytes, needed, "bytes");
  if (c.variant == kMma) return CudaStatus(kGradOp, LaunchAttentionMmaGrad(grad, dtype, stream));
  int* const counters = reinterpret_cast<int*>(c.scratch.as<char>() + delta);
  if (reduces) {
    float* const to = reinterpret_cast<float*>(c.scratch.as<char>() + sums);
    return CudaStatus(kGradOp, LaunchHopperReduce(grad, dtype, stream, to, counters));
  }
  return CudaStatus(kGradOp, LaunchHopperBackward(grad, dtype, stream, counters));
}

ffi::Error SparseAttentionInit() {
  static OncePerDevice* once = new OncePerDevice;
  return CudaStatus(kOp, once->Run([](int /*device*/) {
    cudaError_t status = PrepareAttentionDelta();
    if (status == cudaSuccess) status = PrepareAttentionMma();
    if (status == cudaSuccess) status = PrepareAttentionSplit();
    if (status != cudaSuccess || !OnHopper()) return status;
    status = PrepareHopperAttention();
    if (status == cudaSuccess) status = PrepareHopperBackward();
    return status == cudaSuccess ? PrepareHopperReduce() : status;
  }));
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JaxsparseSparseAttentionCuda, jaxsparse::SparseAttention,
    jaxsparse::BindCall<jaxsparse::contract::sparse_attention::Attributes>(),
    {xla::ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JaxsparseSparseAttentionGradCuda, jaxsparse::SparseAttentionGrad,
    jaxsparse::BindCall<jaxsparse::contract::sparse_attention_grad::Attributes>(),
    {xla::ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseSparseAttentionCudaInit, jaxsparse::SparseAttentionInit,
                              jaxsparse::BindInit());
