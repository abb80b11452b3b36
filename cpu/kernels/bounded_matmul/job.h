// One saturated layer with its recorder: the work of one call, shared by the workers of a pool.
//
// Floor: bytes of the undecided rows in and out, one multiply-add an entry and image
// (cpu/tile/bounded/product.h). Tile: up to 512 rows as columns of a transposed buffer. Rows that
// the codes and the layer's proofs decide are left out before anything is read; segments under a
// code are filled, not read.
#pragma once

#include <cstdint>

#include "cpu/tile/bounded/job.h"

namespace jaxsparse {

struct BoundedMatmulArgs {
  BoundedLayer layer;
  int64_t batch, n_out;
  const float* values;   // [batch, n_in]
  const uint8_t* codes;  // [batch, segments_in]
  int64_t segment_in, segments_in;
  float upper_in;
  const int32_t* expand;  // [n_out], or nullptr: one to one
  int64_t segment, segments;
  bool record, zero_stays, keeps_upper;
  float* out;          // [batch, n_out]
  uint8_t* out_codes;  // [batch, segments]
  void* scratch;
  int64_t scratch_bytes;
};

class BoundedMatmulJob : public BoundedJob<BoundedMatmulJob> {
 public:
  BoundedMatmulJob(const BoundedMatmulArgs& args, int64_t pool_workers);

 private:
  friend class BoundedJob<BoundedMatmulJob>;
  struct Worker {
    float *in, *out, *lowest, *highest, *taint;
    int32_t* rows;
  };
  Worker Take(ScratchCarver& carver) const;
  void RunTile(int64_t first, int64_t count, const Worker& worker) const;
  uint8_t Decided(int64_t row) const;
  void WriteDecided(int64_t row, uint8_t code) const;
  void Read(const Worker& worker, int64_t count, int64_t images) const;
  void Write(const Worker& worker, int64_t first, int64_t count) const;

  BoundedMatmulArgs args_;
  const BoundedIsa& isa_;
};

}  // namespace jaxsparse
