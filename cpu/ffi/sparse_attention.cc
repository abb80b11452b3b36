// The handlers of jaxsparse_sparse_attention and its gradient on the CPU
// (contracts/sparse_attention.toml). Products are float32 at either precision, and probabilities
// are not rounded between them.
#include "contracts/sparse_attention.gen.h"

#include <memory>

#include "contracts/sparse_attention_grad.gen.h"
#include "cpu/core/workers.h"
#include "cpu/ffi/dtype.h"
#include "cpu/kernels/sparse_attention/backward.h"
#include "cpu/kernels/sparse_attention/forward.h"

namespace jaxsparse {
namespace {

namespace ffi = xla::ffi;

BiasArray BiasOf(const contract::Array& bias) {
  if (!bias.given()) return {nullptr, DType::kF32, 0, 0, 0, 0};
  const int64_t kv = bias.dims[3], q = bias.dims[2] * kv, heads = bias.dims[1] * q;
  return {bias.data,
          ToDType(bias.type),
          bias.dims[0] == 1 ? 0 : heads,
          bias.dims[1] == 1 ? 0 : q,
          bias.dims[2] == 1 ? 0 : kv,
          bias.dims[3] == 1 ? 0 : 1};
}

// What both contracts name alike; `out` and `lse` are results of the one, and read by the other.
template <typename Call>
AttentionArgs ArgsOf(const Call& c) {
  AttentionArgs args = {};
  args.shape = {c.batch, c.q_len, c.kv_len, c.heads, c.kv_heads, c.depth, c.v_depth};
  args.type = ToDType(c.q.type);
  args.scale = c.scale;
  args.soft_cap = c.soft_cap;
  args.q = c.q.data;
  args.k = c.k.data;
  args.v = c.v.data;
  args.slopes = c.slopes.template as<float>();
  args.bias = BiasOf(c.bias);
  args.by_query = {c.kv_counts.template as<int32_t>(),
                   c.kv_blocks.template as<int32_t>(),
                   c.kv_slots.template as<int32_t>(),
                   c.mask_batch,
                   c.mask_heads,
                   c.kv_blocks.dims[2],
                   c.kv_blocks.dims[3],
                   c.block_q,
                   c.block_kv,
                   false};
  args.words = {c.words.template as<uint32_t>(), c.slots, c.block_q, c.words.dims[2]};
  args.out = c.out.data;
  args.lse = c.lse.template as<float>();
  return args;
}

template <class Job, class Args>
ffi::Future RunIn(const char* handler, ffi::ThreadPool& pool, const Args& args) {
  auto job = std::make_shared<Job>(args, PoolWorkers(pool));
  if (job->workers() == 0) {
    return contract::Failed(std::string(handler) + ": too little memory for one worker");
  }
  return RunWorkers(pool, job->workers(), job);
}

ffi::Future SparseAttention(ffi::ThreadPool pool, contract::sparse_attention::Attributes attributes,
                            ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::sparse_attention::Decode(attributes, operands, results);
  if (call.has_error()) return contract::Failed(call.error());
  if (call->nothing()) return contract::Done();
  return RunIn<AttentionJob>("sparse_attention", pool, ArgsOf(*call));
}

ffi::Future SparseAttentionGrad(ffi::ThreadPool pool,
                                contract::sparse_attention_grad::Attributes attributes,
                                ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::sparse_attention_grad::Decode(attributes, operands, results);
  if (call.has_error()) return contract::Failed(call.error());
  const auto& c = *call;
  if (c.nothing()) return contract::Done();
  AttentionGradArgs args = {};
  args.forward = ArgsOf(c);
  args.by_key = {c.q_counts.as<int32_t>(),
                 c.q_blocks.as<int32_t>(),
                 c.q_slots.as<int32_t>(),
                 c.mask_batch,
                 c.mask_heads,
                 c.q_blocks.dims[2],
                 c.q_blocks.dims[3],
                 c.block_kv,
                 c.block_q,
                 true};
  args.gout = c.gout.data;
  args.glse = c.glse.as<float>();
  args.dq = c.dq.data;
  args.dk = c.dk.data;
  args.dv = c.dv.data;
  return RunIn<AttentionGradJob>("sparse_attention_grad", pool, args);
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseSparseAttentionCpu, jaxsparse::SparseAttention,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Attrs<jaxsparse::contract::sparse_attention::Attributes>()
                                  .RemainingArgs()
                                  .RemainingRets());
XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseSparseAttentionGradCpu, jaxsparse::SparseAttentionGrad,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Attrs<jaxsparse::contract::sparse_attention_grad::Attributes>()
                                  .RemainingArgs()
                                  .RemainingRets());
