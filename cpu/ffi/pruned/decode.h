// What the two handlers of frozen weights read of a checked call.
#pragma once

#include <algorithm>
#include <cstdint>

#include "contracts/call.h"
#include "cpu/ffi/dtype.h"
#include "cpu/ffi/run_job.h"
#include "cpu/kernels/pruned_conv/job.h"

namespace jaxsparse {

// What every executor reads.
template <class Call, class Args>
void FillPruned(const Call& c, Args* args) {
  args->in_type = ToDType(c.x.type);
  args->out_type = ToDType(c.out.type);
  args->activation = static_cast<Activation>(c.activation);
  args->x = c.x.data;
  args->values = c.values.template as<float>();
  args->bias = c.bias.template as<float>();
  args->out = c.out.data;
  args->scratch = c.scratch.data;
  args->scratch_bytes = c.scratch_bytes;
}

// Strips: fills what both handlers share, all but `args->geometry`, and runs it.
template <class Call>
xla::ffi::Future RunStrips(const char* handler, xla::ffi::ThreadPool& pool, const Call& c,
                           PrunedArgs* args) {
  args->tile = {c.tile & 0xff, c.tile >> 8 & 0xffffff, c.tile >> 32 & 0xffff,
                (c.tile >> 48 & 1) != 0, std::max<int64_t>(c.tile >> 49 & 0xff, 1)};
  const PrunedTile& tile = args->tile;
  if (tile.vectors < 1 || tile.vectors > kPrunedVectors || tile.pitch < 1 || tile.rows < 1 ||
      (tile.shared && tile.bands > 1) || args->columns() < 1 ||
      (tile.rows - 1) * tile.pitch + std::min(args->columns(), args->width()) >
          tile.vectors * kPrunedLanes) {
    return contract::Failed(std::string(handler) + ": tile does not hold what it says");
  }
  if (c.nothing()) return contract::Done();
  FillPruned(c, args);
  args->block = c.block;
  args->parts = c.parts;
  args->entries = c.entries;
  args->windows = c.indices.template as<uint16_t>();
  args->starts = c.starts.template as<int32_t>();
  args->rows = c.visits.template as<int32_t>();
  return RunJob<PrunedJob>(handler, pool, *args);
}

}  // namespace jaxsparse
