// The handlers of jaxsparse_sparse_ffn and of the products of its gradient on the CPU
// (contracts/sparse_ffn.toml).
#include "contracts/sparse_ffn.gen.h"

#include <memory>
#include <string>

#include "contracts/sparse_ffn_product.gen.h"
#include "cpu/core/workers.h"
#include "cpu/ffi/dtype.h"
#include "cpu/kernels/sparse_ffn/network.h"
#include "cpu/kernels/sparse_ffn/product.h"

namespace jaxsparse {
namespace {

namespace ffi = xla::ffi;

template <class Job, class Args>
ffi::Future RunOn(const char* handler, ffi::ThreadPool& pool, const Args& args) {
  auto job = std::make_shared<Job>(args, PoolWorkers(pool));
  if (job->workers() == 0) {
    return contract::Failed(std::string(handler) + ": too little memory for one worker");
  }
  return RunWorkers(pool, job->workers(), job);
}

ffi::Future SparseFfn(ffi::ThreadPool pool, contract::sparse_ffn::Attributes attributes,
                      ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::sparse_ffn::Decode(attributes, operands, results);
  if (call.has_error()) return contract::Failed(call.error());
  const auto& c = *call;
  if (c.nothing()) return contract::Done();
  FfnArgs args = {};
  args.tokens = c.tokens;
  args.depth = c.depth;
  args.hidden = c.hidden;
  args.outputs = c.outputs;
  args.type = ToDType(c.x.type);
  args.squared = c.squared;
  args.top_k = c.top_k;
  args.x = c.x.data;
  args.w_up = c.w_up.as<const void>();
  args.w_up_t = c.w_up_t.as<const void>();
  args.w_gate = c.w_gate.as<const void>();
  args.w_down = c.w_down.data;
  args.y = c.y.data;
  return RunOn<FfnJob>("sparse_ffn", pool, args);
}

ffi::Future SparseFfnProduct(ffi::ThreadPool pool, ffi::RemainingArgs operands,
                             ffi::RemainingRets results) {
  const auto call = contract::sparse_ffn_product::Decode(operands, results);
  if (call.has_error()) return contract::Failed(call.error());
  const auto& c = *call;
  if (c.nothing()) return contract::Done();
  const FfnProductArgs args = {c.rows,   c.depth,  c.outputs, ToDType(c.a.type),
                               c.a.data, c.b.data, c.out.data};
  return RunOn<FfnProductJob>("sparse_ffn_product", pool, args);
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseSparseFfnCpu, jaxsparse::SparseFfn,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Attrs<jaxsparse::contract::sparse_ffn::Attributes>()
                                  .RemainingArgs()
                                  .RemainingRets());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JaxsparseSparseFfnProductCpu, jaxsparse::SparseFfnProduct,
    xla::ffi::Ffi::Bind().Ctx<xla::ffi::ThreadPool>().RemainingArgs().RemainingRets());
