// The handler of jaxsparse_bounded_network on the CPU (contracts/bounded.toml). A worker's tile
// always drops decided rows, and the table says which layers have bundles: the attributes about
// that are not needed here.
#include "contracts/bounded_network.gen.h"
#include "cpu/ffi/bounded/decode.h"
#include "cpu/ffi/run_job.h"
#include "cpu/kernels/bounded_network/job.h"

namespace jaxsparse {
namespace {

namespace ffi = xla::ffi;
using contract::bounded_network::Call;

// Whether the table stays inside the packed arrays and its layers chain.
bool Chains(const Call& c) {
  int64_t width = c.n_in;
  for (int64_t l = 0; l < c.depth; ++l) {
    const BoundedNetworkRow& row = c.table.as<BoundedNetworkRow>()[l];
    const int64_t distinct = row.distinct, rows = row.unit_rows;
    if ((rows != 1 && rows != kBundle) || distinct % rows != 0) return false;
    const int64_t units = distinct / rows;
    if (row.inputs != width || distinct > c.widest || row.starts + units + 1 > c.starts_size ||
        row.biases + distinct > c.bias_size) {
      return false;
    }
    const int64_t entries = c.starts.as<int32_t>()[row.starts + units];
    if (4 * static_cast<int64_t>(row.index_quads) + entries > c.indices_size ||
        4 * static_cast<int64_t>(row.weight_quads) + rows * entries > c.weights_size) {
      return false;
    }
    width = distinct;
  }
  return BoundedExpandFits(c.expand, width) && (c.expand.given() || c.n_out == width);
}

ffi::Future BoundedNetwork(ffi::ThreadPool pool, contract::bounded_network::Attributes attributes,
                           ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::bounded_network::Decode(attributes, operands, results);
  if (call.has_error()) return contract::Failed(call.error());
  const Call& c = *call;
  if (!Chains(c)) {
    return contract::Failed("bounded_network: table or expand points outside of the arrays");
  }
  if (c.nothing()) return contract::Done();
  BoundedNetworkArgs args = {};
  args.batch = c.batch;
  args.n_in = c.n_in;
  args.n_out = c.n_out;
  args.depth = c.depth;
  args.widest = c.widest;
  args.x = c.x.as<float>();
  args.table = c.table.as<BoundedNetworkRow>();
  args.starts = c.starts.as<int32_t>();
  args.indices = c.indices.data;
  args.wide = BoundedIndexIsWide(c.indices);
  args.weights = c.weights.as<float>();
  args.bias = c.bias.as<float>();
  args.uppers = c.uppers.as<float>();
  args.expand = c.expand.as<int32_t>();
  args.out = c.out.as<float>();
  args.codes = c.codes.as<uint8_t>();
  args.scratch = c.scratch.data;
  args.scratch_bytes = c.scratch_bytes;
  return RunJob<BoundedNetworkJob>("bounded_network", pool, args);
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseBoundedNetworkCpu, jaxsparse::BoundedNetwork,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Attrs<jaxsparse::contract::bounded_network::Attributes>()
                                  .RemainingArgs()
                                  .RemainingRets());
