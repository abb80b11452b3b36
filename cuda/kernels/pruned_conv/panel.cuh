// A chunk of an image's channels in shared memory, planes of floats in which every tap's window of
// the tile is one contiguous run: padding and dilation are zeros, a stride's remainders planes of
// their own.
#pragma once

#include <cstdint>

#include "cuda/core/element.cuh"
#include "cuda/core/mbarrier.cuh"
#include "cuda/kernels/pruned_conv/launch.h"

namespace jaxsparse {

// Copies an element of 4 or 8 bytes to shared memory while the thread goes on; a zero, and no read,
// where it is not `valid`.
template <int kBytes>
__device__ __forceinline__ void CopyOrZero(uint32_t shared, const void* source, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(source),
               "n"(kBytes), "r"(valid ? kBytes : 0)
               : "memory");
}

// n / d for n < 65536 and d the divisor that `reciprocal` was made for.
__device__ __forceinline__ int Divide(int n, const WindowsDivisor& d) {
  return static_cast<int>(static_cast<uint64_t>(n) * d.reciprocal >> 32);
}

// Which tile a block serves.
struct WindowsTile {
  int64_t image;  // the first
  int y, x;       // of its first output

  __device__ static WindowsTile Of(const WindowsLayout& layout, uint32_t tile) {
    const uint32_t across = tile % layout.tiles_x, rest = tile / layout.tiles_x;
    return {static_cast<int64_t>(rest / layout.tiles_y) * layout.images,
            static_cast<int>(rest % layout.tiles_y) * layout.rows,
            static_cast<int>(across) * layout.cols};
  }
};

// Fills chunks: float32 by `cp.async`, 16 bits through registers, kAtOnce loads of a lane in
// flight. The place in the image of each float of a channel is worked out once, in a table.
template <typename T, int kAtOnce>
class PanelLoad {
 public:
  // Writes the table and the windows of zeros; for everyone after a barrier.
  __device__ PanelLoad(const PrunedArgs& args, const WindowsLayout& layout, const WindowsTile& tile,
                       float* memory)
      : args_(args), layout_(layout), memory_(memory), floats_(layout.planes * layout.plane) {
    const ConvGeometry& g = args.geometry;
    x_ = static_cast<const T*>(args.x) + tile.image * (g.in_h * g.in_w * g.in_c);
    buffer_ = layout.zeros + layout.chunk * layout.stride;
    table_ = reinterpret_cast<int32_t*>(memory + layout.buffers * buffer_ + layout.zeros);
#pragma unroll 1
    for (int i = threadIdx.x; i < floats_; i += blockDim.x) table_[i] = Place(tile, i);
#pragma unroll 1
    for (int i = threadIdx.x; i < layout.zeros; i += blockDim.x) {
      memory[i] = memory[(layout.buffers - 1) * buffer_ + i] = 0.0f;
    }
  }

  // In which of two turns a warp fills, to multiply in the other. Loads through registers are
  // waited for, so half of the warps multiply meanwhile; copies are under way at once.
  __device__ static int Turn(int warp) { return kCopies ? 0 : warp % 2; }

  // The channels of a chunk to the buffer whose turn it is; nothing past the last chunk.
  __device__ void Fill(int chunk) const {
    if (chunk >= layout_.chunks) return;
    float* const panel = memory_ + chunk % 2 * buffer_ + layout_.zeros;
    const int first = chunk * layout_.chunk;
    const int channels = min(layout_.chunk, static_cast<int>(args_.geometry.in_c) - first);
    if constexpr (kCopies) {
      if (args_.channels_first) {
        CopyPlanes(panel, first, channels);
      } else {
        CopyPixels(panel, first, channels);
      }
    } else if (args_.channels_first) {
      FillPlanes(panel, first, channels);
    } else {
      FillPixels(panel, first, channels);
    }
  }

 private:
  static constexpr bool kCopies = sizeof(T) == 4;

  // Where float i of a channel comes from, -1 for a zero.
  __device__ int32_t Place(const WindowsTile& tile, int i) const {
    const ConvGeometry& g = args_.geometry;
    const int plane = Divide(i, layout_.by_plane), in_plane = i - plane * layout_.plane;
    const int image = Divide(in_plane, layout_.by_image);
    const int in_image = in_plane - image * (layout_.image_rows * layout_.pitch);
    const int row = Divide(in_image, layout_.by_pitch), column = in_image - row * layout_.pitch;
    const int down = plane / layout_.planes_w;
    const int y = Source(tile.y + row, g.stride_h, Phase(layout_.phases_h, down), g.pad_top,
                         g.lhs_dilation_h, static_cast<int>(g.in_h));
    const int x = Source(tile.x + column, g.stride_w,
                         Phase(layout_.phases_w, plane - down * layout_.planes_w), g.pad_left,
                         g.lhs_dilation_w, static_cast<int>(g.in_w));
    if (y < 0 || x < 0 || image >= layout_.images || tile.image + image >= g.batch) return -1;
    const int width = static_cast<int>(g.in_w), pixels = static_cast<int>(g.in_h) * width;
    const int channels = static_cast<int>(g.in_c);
    return args_.channels_first ? image * channels * pixels + y * width + x
                                : (image * pixels + y * width + x) * channels;
  }

  __device__ static int Phase(uint32_t phases, int nth) {
#pragma unroll 1
    for (; nth > 0; --nth) phases &= phases - 1;
    return __ffs(phases) - 1;
  }

  __device__ static int Source(int at, int stride, int phase, int pad, int dilation, int size) {
    const int n = at * stride + phase - pad, source = dilation == 1 ? n : n / dilation;
    return n < 0 || source * dilation != n || source >= size ? -1 : source;
  }

  // NCHW: lanes along a plane; warps share the channels, and the plane where these are fewer.
  __device__ void CopyPlanes(float* panel, int first, int channels) const {
    const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int groups = min(warps, channels), across = warps / groups;
    const int64_t pixels = args_.geometry.in_h * args_.geometry.in_w, step = groups * pixels;
    const uint32_t to_step = groups * layout_.stride * 4;
    const int c = warp % groups;
    if (warp >= groups * across) return;
#pragma unroll 1
    for (int i = warp / groups * 32 + lane; i < floats_; i += across * 32) {
      const int32_t place = table_[i];
      const T* from = x_ + (max(place, 0) + (first + c) * pixels);
      uint32_t to = ptx::SharedAddress(panel + c * layout_.stride + i);
#pragma unroll 4
      for (int left = channels - c; left > 0; left -= groups, from += step, to += to_step) {
        CopyOrZero<4>(to, from, place >= 0);
      }
    }
  }

  // NHWC: lanes along the channels of a pixel.
  __device__ void CopyPixels(float* panel, int first, int channels) const {
    const int warps = blockDim.x / 32;
#pragma unroll 1
    for (int c = threadIdx.x % 32; c < channels; c += 32) {
      const uint32_t to = ptx::SharedAddress(panel + c * layout_.stride);
      const T* const from = x_ + first + c;
#pragma unroll 4
      for (int i = threadIdx.x / 32; i < floats_; i += warps) {
        const int32_t place = table_[i];
        CopyOrZero<4>(to + i * 4, from + max(place, 0), place >= 0);
      }
    }
  }

  // NCHW: lanes along a plane.
  __device__ void FillPlanes(float* panel, int first, int channels) const {
    const int warps = blockDim.x / 32, warp = threadIdx.x / 32;
    const int pieces = (floats_ + 31) / 32, groups = max(1, warps / pieces);
    const int64_t pixels = args_.geometry.in_h * args_.geometry.in_w;
    if (warp >= pieces * groups) return;
#pragma unroll 1
    for (int piece = warp % pieces; piece < pieces; piece += warps) {
      const int i = piece * 32 + threadIdx.x % 32;
      if (i >= floats_) continue;
      const int32_t place = table_[i];
      const int begin = groups > 1 ? warp / pieces : 0;
      Copy(panel + i + begin * layout_.stride, groups * layout_.stride,
           x_ + (max(place, 0) + (first + begin) * pixels), groups * pixels,
           (channels - begin + groups - 1) / groups, place >= 0);
    }
  }

  // `count` elements, so far apart; zeros where they do not exist.
  __device__ __forceinline__ static void Copy(float* to, int to_step, const T* from,
                                              int64_t from_step, int count, bool exists) {
#pragma unroll 1
    for (int left = count; left > 0; left -= kAtOnce) {
      float value[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        value[i] = exists && i < left ? simt::ToFloat(__ldg(from)) : 0.0f;
        from += from_step;
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (i < left) to[i * to_step] = value[i];
      }
      to += kAtOnce * to_step;
    }
  }

  // NHWC: lanes along the channels of a pixel.
  __device__ void FillPixels(float* panel, int first, int channels) const {
    const int step = blockDim.x / 32;
#pragma unroll 1
    for (int c = threadIdx.x % 32; c < channels; c += 32) {
      float* const to = panel + c * layout_.stride;
      const T* const from = x_ + first + c;
#pragma unroll 1
      for (int i = threadIdx.x / 32; i < floats_; i += kAtOnce * step) {
        float value[kAtOnce];
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
          const int at = i + k * step;
          const int32_t place = at < floats_ ? table_[at] : -1;
          value[k] = place >= 0 ? simt::ToFloat(__ldg(from + place)) : 0.0f;
        }
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
          if (i + k * step < floats_) to[i + k * step] = value[k];
        }
      }
    }
  }

  const PrunedArgs& args_;
  const WindowsLayout& layout_;
  float* memory_;
  int floats_, buffer_;
  int32_t* table_;
  const T* x_;
};

}  // namespace jaxsparse
