#include "cpu/kernels/bounded_network/job.h"

#include <algorithm>
#include <utility>

namespace jaxsparse {
BoundedNetworkJob::BoundedNetworkJob(const BoundedNetworkArgs& args, int64_t pool_workers)
    : args_(args), isa_(BoundedIsaOfMachine()) {
  Plan(args_.batch, args_.widest, args_.scratch, args_.scratch_bytes, pool_workers);
}

BoundedNetworkJob::Worker BoundedNetworkJob::Take(ScratchCarver& carver) const {
  Worker worker;
  worker.in = carver.Take<float>(args_.widest * tile());
  worker.out = carver.Take<float>(args_.widest * tile());
  worker.block = carver.Take<float>(args_.n_in * kBoundedBlock);
  worker.lowest = carver.Take<float>(tile());
  worker.highest = carver.Take<float>(tile());
  worker.taint = carver.Take<float>(tile());
  worker.rows = carver.Take<int32_t>(tile());
  worker.kept = carver.Take<int32_t>(tile());
  return worker;
}

BoundedLayer BoundedNetworkJob::Layer(int64_t depth) const {
  const BoundedNetworkRow& row = args_.table[depth];
  const int64_t entry = 4 * static_cast<int64_t>(row.index_quads);
  const int32_t* starts = args_.starts + row.starts;
  const char* indices = static_cast<const char*>(args_.indices) + entry * (args_.wide ? 4 : 2);
  BoundedLayer layer = {};
  layer.n_in = row.inputs;
  layer.distinct = row.distinct;
  layer.entries = starts[row.distinct / row.unit_rows];
  layer.starts = starts;
  layer.indices = indices;
  layer.wide = args_.wide;
  layer.bundled = row.unit_rows == kBundle;
  layer.weights = args_.weights + 4 * static_cast<int64_t>(row.weight_quads);
  layer.bias = args_.bias + row.biases;
  layer.upper = args_.uppers[depth];
  return layer;
}

void BoundedNetworkJob::RunTile(int64_t first, int64_t count, Worker worker) const {
  for (int64_t c = 0; c < count; ++c) worker.rows[c] = static_cast<int32_t>(first + c);
  FirstLayer(count, worker);
  int64_t live = Settle(0, count, worker);
  for (int64_t depth = 1; depth < args_.depth && live > 0; ++depth) {
    std::swap(worker.in, worker.out);
    isa_.multiply({Layer(depth), worker.in, tile(), worker.out, tile(), BoundedBlockUp(live),
                   worker.lowest, worker.highest, worker.taint});
    live = Settle(depth, live, worker);
  }
  for (int64_t c = 0; c < live; ++c) WriteRow(worker.rows[c], worker.out + c);
}

// Sixteen images at a time are transposed: the raw inputs are wider than the folded state.
void BoundedNetworkJob::FirstLayer(int64_t count, const Worker& worker) const {
  const BoundedLayer layer = Layer(0);
  for (int64_t first = 0; first < count; first += kBoundedBlock) {
    const int64_t images = std::min(kBoundedBlock, count - first);
    const float* rows = args_.x + static_cast<int64_t>(worker.rows[first]) * args_.n_in;
    for (int64_t i = 0; i < args_.n_in; ++i) {
      float* line = worker.block + i * kBoundedBlock;
      for (int64_t c = 0; c < images; ++c) line[c] = rows[c * args_.n_in + i];
      for (int64_t c = images; c < kBoundedBlock; ++c) line[c] = 0.0f;
    }
    isa_.multiply({layer, worker.block, kBoundedBlock, worker.out + first, tile(), kBoundedBlock,
                   worker.lowest + first, worker.highest + first, worker.taint + first});
  }
}

// Decided columns leave with their code, the others move to the front; returns how many there are.
int64_t BoundedNetworkJob::Settle(int64_t depth, int64_t live, const Worker& worker) const {
  const BoundedNetworkRow& row = args_.table[depth];
  const float upper = args_.uppers[depth];
  int64_t kept = 0;
  for (int64_t c = 0; c < live; ++c) {
    const bool clean = worker.taint[c] == 0.0f;
    const bool zero = clean && worker.highest[c] == 0.0f && (row.retires & kRetireZero);
    const bool full = clean && worker.lowest[c] == upper && (row.retires & kRetireUpper);
    if (zero || full) {
      args_.codes[worker.rows[c]] = zero ? kZero : kUpper;
      continue;
    }
    worker.kept[kept] = static_cast<int32_t>(c);
    worker.rows[kept++] = worker.rows[c];
  }
  if (kept == live) return kept;
  for (int64_t o = 0; o < static_cast<int64_t>(row.distinct); ++o) {
    float* line = worker.out + o * tile();
    for (int64_t c = 0; c < kept; ++c) line[c] = line[worker.kept[c]];
  }
  return kept;
}

void BoundedNetworkJob::WriteRow(int64_t row, const float* column) const {
  args_.codes[row] = kMixed;
  float* out = args_.out + row * args_.n_out;
  for (int64_t n = 0; n < args_.n_out; ++n) {
    out[n] = column[(args_.expand ? args_.expand[n] : n) * tile()];
  }
}

}  // namespace jaxsparse
