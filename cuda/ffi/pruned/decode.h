// What the two handlers of frozen weights read of a checked call.
#pragma once

#include "cuda/ffi/common.h"
#include "cuda/tile/pruned_args.h"

namespace jaxsparse {

enum class PrunedExecutor : int64_t {
  kRows = 16,
  kBitmap = 17,
  kVectors = 18,
  kCode = 19,
  kLanes = 20,
  kPairs = 21,
  kRuns = 23,
  kWindows = 24,
  kSplit = 25,
};

// What says how the packed arrays are read.
struct PrunedWay {
  PrunedExecutor executor;
  ffi::DataType x, values, indices;
  int64_t tile, block, parts, code;
};

// Loads every kernel, and the code that the call names; runs before every execution.
ffi::Error InitPruned(ffi::Dictionary attributes);

// Launches the executor, or says that the packed arrays are not its.
ffi::Error LaunchPruned(const char* op, const PrunedArgs& args, const PrunedWay& way,
                        cudaStream_t stream);

// Fills everything but m, k and the image, then launches the executor.
template <class Call>
ffi::Error RunPruned(const char* op, const Call& c, PrunedArgs args, cudaStream_t stream) {
  if (c.nothing()) return ffi::Error::Success();
  args.n = c.n_out;
  args.in_type = ToDType(c.x.type);
  args.out_type = ToDType(c.out.type);
  args.activation = static_cast<Activation>(c.activation);
  args.x = c.x.data;
  args.values = c.values.data;
  args.bias = c.bias.template as<float>();
  args.starts = c.starts.template as<int32_t>();
  args.indices = c.indices.data;
  args.rows = c.visits.template as<int32_t>();
  args.extra = c.extra.template as<uint8_t>();
  args.entries = c.values.size;
  args.num_starts = c.starts.size;
  args.num_indices = c.indices.size;
  args.num_rows = c.visits.size;
  args.num_extra = c.extra.size;
  args.out = c.out.data;
  const PrunedWay way = {static_cast<PrunedExecutor>(c.executor),
                         c.x.type,
                         c.values.type,
                         c.indices.type,
                         c.tile,
                         c.block,
                         c.parts,
                         c.code};
  return LaunchPruned(op, args, way, stream);
}

// InitPruned is given all attributes, whichever they are.
inline auto BindPrunedInit() { return BindInit().Attrs(); }

}  // namespace jaxsparse
