// The handler of jaxsparse_bounded_network on the CPU (docs/kernels/contract.md).
#include <memory>

#include "cpu/core/workers.h"
#include "cpu/ffi/bounded_decode.h"
#include "cpu/kernels/bounded_network_job.h"

namespace jaxsparse {
namespace {

namespace ffi = xla::ffi;

// How much of each packed array there is.
struct Sizes {
  int64_t starts, indices, weights, biases;
};

// Whether the table stays inside the arrays and its layers chain.
bool Chains(const BoundedNetworkArgs& args, const Sizes& sizes) {
  int64_t width = args.n_in;
  for (int64_t l = 0; l < args.depth; ++l) {
    const uint32_t* row = args.table + l * kBoundedTableColumns;
    const int64_t distinct = row[4], rows = row[7];
    if ((rows != 1 && rows != kBundle) || distinct % rows != 0) return false;
    const int64_t units = distinct / rows;
    if (row[3] != width || distinct > args.widest || row[0] + units + 1 > sizes.starts ||
        row[2] + distinct > sizes.biases) {
      return false;
    }
    const int64_t entries = args.starts[row[0] + units];
    if (4 * static_cast<int64_t>(row[1]) + entries > sizes.indices ||
        4 * static_cast<int64_t>(row[6]) + rows * entries > sizes.weights) {
      return false;
    }
    width = distinct;
  }
  return true;
}

ffi::Future BoundedNetwork(ffi::ThreadPool pool, ffi::BufferR2<ffi::F32> x,
                           ffi::BufferR2<ffi::U32> table, ffi::BufferR1<ffi::S32> starts,
                           ffi::AnyBuffer indices, ffi::BufferR1<ffi::F32> weights,
                           ffi::BufferR1<ffi::F32> bias, ffi::BufferR1<ffi::F32> uppers,
                           ffi::BufferR1<ffi::S32> expand, ffi::ResultBufferR2<ffi::F32> out,
                           ffi::ResultBufferR2<ffi::U8> codes, ffi::ResultBufferR1<ffi::U8> scratch,
                           int64_t first, int64_t widest, int64_t decides, int64_t bundles) {
  static_cast<void>(decides);  // a worker's tile always drops decided rows
  static_cast<void>(bundles);  // the table says it
  const auto xs = x.dimensions(), ts = table.dimensions(), os = out->dimensions();
  const Sizes sizes = {
      static_cast<int64_t>(starts.element_count()), static_cast<int64_t>(indices.element_count()),
      static_cast<int64_t>(weights.element_count()), static_cast<int64_t>(bias.element_count())};
  BoundedNetworkArgs args = {};
  args.batch = xs[0];
  args.n_in = xs[1];
  args.n_out = os[1];
  args.depth = ts[0];
  args.widest = widest;
  args.x = x.typed_data();
  args.table = table.typed_data();
  args.starts = starts.typed_data();
  args.indices = indices.untyped_data();
  args.wide = BoundedIndexIsWide(indices);
  args.weights = weights.typed_data();
  args.bias = bias.typed_data();
  args.uppers = uppers.typed_data();
  args.expand = expand.element_count() > 0 ? expand.typed_data() : nullptr;
  args.out = out->typed_data();
  args.codes = codes->typed_data();
  args.scratch = scratch->typed_data();
  args.scratch_bytes = static_cast<int64_t>(scratch->element_count());
  if (!BoundedIndexType(indices) || ts[1] != kBoundedTableColumns || ts[0] < 1 || os[0] != xs[0] ||
      static_cast<int64_t>(codes->element_count()) != xs[0] ||
      static_cast<int64_t>(uppers.element_count()) != ts[0] || first > widest ||
      !Chains(args, sizes) ||
      !BoundedExpandFits(expand, os[1], args.table[(args.depth - 1) * kBoundedTableColumns + 4])) {
    return BoundedFailed("bounded_network: operands, results and attributes disagree");
  }
  auto job = std::make_shared<BoundedNetworkJob>(args, PoolWorkers(pool));
  if (job->workers() == 0) return BoundedFailed("bounded_network: scratch is too small");
  return RunWorkers(pool, job->workers(), job);
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseBoundedNetworkCpu, jaxsparse::BoundedNetwork,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
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
                                  .Attr<int64_t>("bundles"));
