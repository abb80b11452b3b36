// Forward masked convolution: the work of one call, shared by the workers of a pool.
//
// - Floor: 2 * active pixels * taps * C/groups * O FLOPs at the machine's multiply-add rate; bytes
//   are the active rows of x, the weights once per worker, the output once.
// - Tile: a block of up to 12 active pixels, wherever they lie, times a panel of output channels,
//   over all taps and channels in registers. Blocks of a chunk share the panels, which a range
//   keeps within the second-level cache.
// - Pipeline: gather addresses -> multiply -> finish, per block; chunks are pulled from a counter,
//   for tiles differ in cost.
// - Predicted: the rate of cpu/tile/conv/product.h less the gather, 85 % of peak. Measured on one
// core
//   of an AVX-512 server, full 3x3 mask, float32: 166 / 193 / 200 / 196 GFLOP/s for 128x128x32,
//   64x64x64, 56x56x128, 28x28x256, where multiply-adds without loads reach 218-240; at a third of
//   the pixels 142 / 185 / 180 / 165.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "cpu/core/work_counter.h"
#include "cpu/kernels/masked_conv/gather.h"
#include "cpu/kernels/masked_conv/panels.h"
#include "cpu/kernels/masked_conv/variants.h"

namespace jaxsparse {

class MaskedConvJob {
 public:
  MaskedConvJob(const MaskedConvArgs& args, int64_t pool_workers);

  // Workspace that a call with these shapes needs; the most, over all variants and machines.
  static int64_t ScratchBytes(const ConvGeometry& geometry, DType in_type, int64_t workers);

  // 0 when the scratch is too small to run at all.
  int64_t workers() const { return workers_; }
  void Run(int64_t worker);

 private:
  struct WorkerScratch {
    const float** rows;      // [taps][tile rows]
    int32_t* live;           // [taps]
    const float** gathered;  // [taps][tile rows], before conversion
    float* converted;        // [taps][tile rows][slice], of a 16-bit input
  };

  // Channel 0 of the pixels of a block.
  struct Targets {
    void* out[kMaxTileRows];
    const void* residual[kMaxTileRows];
  };

  static WorkerScratch TakeWorker(const ConvGeometry& geometry, DType in_type,
                                  ScratchCarver& carver);
  WorkerScratch ScratchOf(int64_t worker) const;
  void PrepareWeights();
  void Partition();
  void RunChunk(int64_t item, const WorkerScratch& scratch) const;
  void RunBlock(const Pixel* pixels, int64_t count, int64_t first_panel, int64_t last_panel,
                const WorkerScratch& scratch) const;
  void RunDepthwiseBlock(const Pixel* pixels, int64_t count, const WorkerScratch& scratch) const;
  void Convert(int64_t offset, int64_t slice, int64_t live_count,
               const WorkerScratch& scratch) const;
  int64_t TileRows(int vectors, int64_t count) const;
  FinishTile FinishOf(const Pixel* pixels, int64_t count, const float* sums,
                      Targets& targets) const;
  void Fill(int64_t item) const;
  void WaitForPanels() const;

  MaskedConvArgs args_;
  const ConvIsa& isa_;
  ScratchCarver carver_;
  ActivePixels pixels_;
  TapTable taps_;
  float* zeros_;                    // [C]
  const float* depthwise_weights_;  // [taps, C]
  int64_t workers_ = 0;
  ConvTileShape shape_;
  std::optional<WeightPanels> panels_;
  int64_t chunk_, chunks_, range_, ranges_, fill_rows_;
  int64_t pack_items_, conv_items_, fill_items_;
  std::optional<WorkCounter> items_;
  std::atomic<int64_t> panels_packed_{0};
};

}  // namespace jaxsparse
