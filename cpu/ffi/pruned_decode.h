// What the two handlers of frozen weights decode alike.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "cpu/core/workers.h"
#include "cpu/ffi/masked_conv_decode.h"
#include "cpu/kernels/pruned_job.h"

namespace jaxsparse {

constexpr int64_t kStripsExecutor = 0;

// The packed arrays and tunables of executor 0.
struct PrunedPacked {
  xla::ffi::BufferR1<xla::ffi::F32> values;
  xla::ffi::BufferR1<xla::ffi::F32> bias;
  xla::ffi::Buffer<xla::ffi::S32> starts;
  xla::ffi::BufferR1<xla::ffi::U16> indices;
  xla::ffi::BufferR1<xla::ffi::S32> rows;
  int64_t executor, activation, tile, block, parts;
};

// Fills what both handlers share; false when operands and attributes disagree.
inline bool DecodePruned(const PrunedPacked& packed, xla::ffi::AnyBuffer x,
                         xla::ffi::Result<xla::ffi::AnyBuffer> out,
                         xla::ffi::Result<xla::ffi::BufferR1<xla::ffi::U8>> scratch,
                         PrunedArgs* args) {
  const auto in_type = DTypeOf(x.element_type()), out_type = DTypeOf(out->element_type());
  const ConvGeometry& g = args->geometry;
  const auto count = [](const auto& buffer) {
    return static_cast<int64_t>(buffer.element_count());
  };
  if (!in_type || !out_type || packed.executor != kStripsExecutor || packed.block < 1 ||
      packed.parts < 1 || packed.activation < 0 ||
      packed.activation > static_cast<int64_t>(Activation::kGelu)) {
    return false;
  }
  args->tile = {packed.tile & 0xff, packed.tile >> 8 & 0xffffff, packed.tile >> 32 & 0xffff,
                (packed.tile >> 48 & 1) != 0, std::max<int64_t>(packed.tile >> 49 & 0xff, 1)};
  args->block = packed.block;
  args->parts = packed.parts;
  const PrunedTile& tile = args->tile;
  if (args->columns() < 1 || tile.vectors < 1 || tile.vectors > kPrunedVectors || tile.pitch < 1 ||
      tile.rows < 1 || (tile.shared && tile.bands > 1) ||
      (tile.rows - 1) * tile.pitch + std::min(args->columns(), args->width()) >
          tile.vectors * kPrunedLanes) {
    return false;
  }
  args->entries = count(packed.values);
  if (count(packed.indices) != args->entries || count(packed.rows) != g.out_c + args->parts + 1 ||
      count(packed.starts) != g.out_c * (args->blocks() + 1) ||
      (count(packed.bias) != 0 && count(packed.bias) != g.out_c)) {
    return false;
  }
  args->in_type = *in_type;
  args->out_type = *out_type;
  args->activation = static_cast<Activation>(packed.activation);
  args->x = x.untyped_data();
  args->values = packed.values.typed_data();
  args->windows = packed.indices.typed_data();
  args->starts = packed.starts.typed_data();
  args->rows = packed.rows.typed_data();
  args->bias = count(packed.bias) > 0 ? packed.bias.typed_data() : nullptr;
  args->out = out->untyped_data();
  args->scratch = scratch->typed_data();
  args->scratch_bytes = count(*scratch);
  return true;
}

inline xla::ffi::Future RunPruned(xla::ffi::ThreadPool& pool, const PrunedArgs& args,
                                  const char* too_small) {
  auto job = std::make_shared<PrunedJob>(args, PoolWorkers(pool));
  if (job->workers() == 0) return FailedFuture(too_small);
  return RunWorkers(pool, job->workers(), job);
}

// What both handlers bind first: one list of operands, results and attributes.
inline auto BindPruned() {
  return xla::ffi::Ffi::Bind()
      .Ctx<xla::ffi::ThreadPool>()
      .Arg<xla::ffi::AnyBuffer>()                // x
      .Arg<xla::ffi::BufferR1<xla::ffi::F32>>()  // values
      .Arg<xla::ffi::BufferR1<xla::ffi::F32>>()  // bias
      .Arg<xla::ffi::Buffer<xla::ffi::S32>>()    // starts
      .Arg<xla::ffi::BufferR1<xla::ffi::U16>>()  // indices
      .Arg<xla::ffi::BufferR1<xla::ffi::S32>>()  // rows
      .Arg<xla::ffi::BufferR1<xla::ffi::U8>>()   // extra
      .Ret<xla::ffi::AnyBuffer>()                // out
      .Ret<xla::ffi::BufferR1<xla::ffi::U8>>()   // scratch
      .Attr<int64_t>("executor")
      .Attr<int64_t>("activation")
      .Attr<int64_t>("precision")
      .Attr<int64_t>("tile")
      .Attr<int64_t>("block")
      .Attr<int64_t>("parts")
      .Attr<int64_t>("code");
}

}  // namespace jaxsparse
