// A whole stack of saturated layers on folded state: the work of one call, shared by the workers of
// a pool.
//
// Floor: the images read once; one multiply-add per folded entry and image that is still undecided.
// 60,000 images of 1024 pixels: 246 MB and 0.4 G multiply-adds, so reading and transposing the
// images is the work: predicted .05 s on two cores, measured .04 to .08; 4096 pixels .11 s. Tile:
// up to 512 images as columns, two generations of folded state within the worker's cache. After
// every layer the columns that are decided for good leave, and the rest moves together.
#pragma once

#include <cstdint>

#include "contracts/enums.gen.h"
#include "cpu/tile/bounded/job.h"

namespace jaxsparse {

struct BoundedNetworkArgs {
  int64_t batch, n_in, n_out, depth, widest;
  const float* x;                  // [batch, n_in]
  const BoundedNetworkRow* table;  // [depth]
  const int32_t* starts;
  const void* indices;
  bool wide;
  const float* weights;
  const float* bias;
  const float* uppers;
  const int32_t* expand;  // [n_out], or nullptr
  float* out;             // [batch, n_out]
  uint8_t* codes;         // [batch]
  void* scratch;
  int64_t scratch_bytes;
};

class BoundedNetworkJob : public BoundedJob<BoundedNetworkJob> {
 public:
  BoundedNetworkJob(const BoundedNetworkArgs& args, int64_t pool_workers);

 private:
  friend class BoundedJob<BoundedNetworkJob>;
  struct Worker {
    float *in, *out, *block, *lowest, *highest, *taint;
    int32_t *rows, *kept;
  };
  Worker Take(ScratchCarver& carver) const;
  BoundedLayer Layer(int64_t depth) const;
  void RunTile(int64_t first, int64_t count, Worker worker) const;
  void FirstLayer(int64_t count, const Worker& worker) const;
  int64_t Settle(int64_t depth, int64_t live, const Worker& worker) const;
  void WriteRow(int64_t row, const float* column) const;

  BoundedNetworkArgs args_;
  const BoundedIsa& isa_;
};

}  // namespace jaxsparse
