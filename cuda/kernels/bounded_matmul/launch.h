// One saturated layer with its recorder. No FFI and no device headers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace jaxsparse {

// kChosen: the one that suits the sizes.
enum class BoundedDataflow : int { kRow, kSlab, kColumn, kChosen };

struct BoundedMatmulArgs {
  int64_t batch, n_in, n_out, distinct, entries;
  const float* values;   // [batch, n_in]
  const uint8_t* codes;  // [batch, segments_in]; segments_in 0: nothing is under a code
  const int32_t* starts;
  const void* indices;
  bool wide;  // int32 indices
  const float* weights;
  const float* bias;
  const int32_t* expand;  // [n_out], or nullptr
  int64_t segment_in, segments_in, segment, segments;
  float upper_in, upper;
  bool record, zero_stays, keeps_upper;
  float* out;          // [batch, n_out]
  uint8_t* out_codes;  // [batch, segments]
  uint32_t* scratch;   // column and chosen: [2 + batch]
};

// Once per device, before the first launch: raises the shared-memory limits.
cudaError_t PrepareBoundedMatmul();

cudaError_t LaunchBoundedMatmul(BoundedDataflow dataflow, const BoundedMatmulArgs& args,
                                cudaStream_t stream);

}  // namespace jaxsparse
