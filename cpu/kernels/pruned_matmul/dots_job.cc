#include "cpu/kernels/pruned_matmul/dots_job.h"

#include <algorithm>

#include "cpu/core/scratch.h"
#include "cpu/tile/conv/isa.h"

namespace jaxsparse {

PrunedDotsJob::PrunedDotsJob(const PrunedDotsArgs& args, int64_t pool_workers)
    : args_(args), isa_(PrunedIsaInUse()) {
  const Checked inputs = Checked(args_.rows) * args_.inputs;
  const bool converts = args_.in_type != DType::kF32;
  ScratchCarver carver(args_.scratch);
  sums_ = carver.Take<float>(Checked(args_.rows) * args_.outputs);
  float* converted = carver.Take<float>(converts ? inputs : Checked(0));
  if (args_.scratch_bytes < carver.used().or_max()) return;
  x_ = static_cast<const float*>(args_.x);
  if (converts) {
    MaskedConvIsa().to_f32(args_.in_type, args_.x, inputs.or_max(), converted);
    x_ = converted;
  }
  items_.emplace(args_.parts);
  workers_ = std::clamp<int64_t>(args_.parts, 1, pool_workers);
}

void PrunedDotsJob::Run(int64_t worker) {
  for (int64_t part; items_->Next(worker, &part);) RunPart(part);
}

void PrunedDotsJob::RunPart(int64_t part) const {
  const int64_t first = std::clamp<int64_t>(args_.bounds[part], 0, args_.outputs);
  const int64_t last = std::clamp<int64_t>(args_.bounds[part + 1], first, args_.outputs);
  for (int64_t row = 0; row < args_.rows; ++row) {
    float* sums = sums_ + row * args_.outputs;
    isa_.multiply_dots({x_ + row * args_.inputs, args_.inputs, first, last - first, args_.starts,
                        args_.starts + args_.outputs, args_.entries, args_.values, args_.columns,
                        sums});
    void* out = static_cast<char*>(args_.out) + row * args_.outputs * SizeOf(args_.out_type);
    FinishTile tile = {};
    tile.sums = sums + first;
    tile.rows = 1;
    tile.width = last - first;
    tile.bias = args_.bias;
    tile.pixels = &out;
    tile.out_offset = first;
    tile.out_type = args_.out_type;
    tile.activation = args_.activation;
    MaskedConvIsa().finish(tile);
  }
}

}  // namespace jaxsparse
