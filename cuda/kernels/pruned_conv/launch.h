// Launches of the executor for windows of an image. No FFI and no device headers.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/tile/pruned_args.h"

namespace jaxsparse {

// Warps of a block whose lanes hold so many sums.
constexpr int WindowsMostWarps(int sums) { return sums <= 4 ? 24 : 16; }

// Of a warp's entries: quads of a stage, bytes of one and of the two that it has.
inline constexpr int kWindowStage = 16, kWindowStageBytes = kWindowStage * 24;
inline constexpr int kWindowRingBytes = 2 * kWindowStageBytes;

// Divides numbers below 65536 exactly: 2^32 over the divisor, rounded up.
struct WindowsDivisor {
  uint64_t reciprocal;
};

// How an image lies in shared memory and is dealt to blocks; docs/kernels/pruned_conv_gpu.md. The
// attributes of a call hold it: bits of `tile`, `block`, `parts` and `code`.
struct WindowsLayout {
  int rows, cols, images;            // of a tile: outputs
  int pitch, image_rows, plane;      // floats of a row, rows of an image, floats of a plane
  int chunk;                         // channels that lie there at a time
  int outputs, positions;            // of a warp: the variant; positions are times 32
  int position_warps, output_warps;  // of a block
  int rounds;                        // of a block: its warps take so many groups of outputs in turn
  uint32_t phases_h, phases_w;       // remainders modulo the strides that some tap reads
  int planes_w, planes;              // planes of a channel: phases_h x phases_w
  int stride;                        // floats of a channel
  int zeros;                         // floats of the window of zeros: positions of a block
  int chunks, buffers, slabs;        // of channels; of chunks; of outputs
  int tiles_y, tiles_x;              // of an image
  int rings;                         // bytes before those of the warps' entries
  WindowsDivisor by_plane, by_image, by_pitch;
};

// The attributes that hold a layout.
struct WindowsWords {
  int64_t tile, block, parts, code;
};

// Once per device, before the first launch.
cudaError_t PreparePrunedWindows();

// A product is an image of one row.
cudaError_t LaunchPrunedWindows(const PrunedArgs& args, const WindowsWords& words,
                                cudaStream_t stream);

}  // namespace jaxsparse
