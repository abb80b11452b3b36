// Mask bytes to bits, in registers: four pixels cost one byte-compare and one dot product.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace jaxsparse {

// Bits of eight mask bytes; any nonzero byte counts.
__device__ inline uint32_t PackEight(uint32_t low, uint32_t high) {
  const uint32_t bits = __dp4a(__vsetne4(low, 0u), 0x08040201u, 0u);
  return __dp4a(__vsetne4(high, 0u), 0x80402010u, bits);
}

// Bits of a chunk of mask bytes, in its low bits.
__device__ inline uint32_t PackChunk(uint32_t bytes) { return PackEight(bytes, 0u); }
__device__ inline uint32_t PackChunk(uint2 bytes) { return PackEight(bytes.x, bytes.y); }
__device__ inline uint32_t PackChunk(uint4 bytes) {
  return PackEight(bytes.x, bytes.y) | PackEight(bytes.z, bytes.w) << 8;
}

// Reads words out of a mask uint8[rows, width] whose rows may start at any address. Loads are
// aligned, of 16 bytes where rows allow it and of 4 otherwise, and none leaves the mask.
class MaskBytes {
 public:
  __device__ MaskBytes(const uint8_t* mask, int64_t size, int64_t width)
      : mask_(mask),
        size_(size),
        width_(width),
        wide_((width | reinterpret_cast<uintptr_t>(mask)) % 16 == 0) {}

  // Word `w` of a row; bits past the width are zero.
  __device__ uint32_t Load(int64_t row, int64_t w) const {
    const int64_t first = row * width_ + 32 * w;
    const int64_t valid = width_ - 32 * w;
    return wide_ ? LoadWide(first, valid) : Clip(LoadShifted(first), valid);
  }

 private:
  __device__ static uint32_t Clip(uint32_t bits, int64_t valid) {
    return valid >= 32 ? bits : bits & ((1u << valid) - 1u);
  }

  __device__ uint32_t LoadWide(int64_t first, int64_t valid) const {
    const uint4* chunks = reinterpret_cast<const uint4*>(mask_ + first);
    const uint32_t low = PackChunk(__ldg(chunks));
    return valid > 16 ? low | PackChunk(__ldg(chunks + 1)) << 16 : low;
  }

  // 32 bytes from any address: nine aligned integers, shifted into place.
  __device__ uint32_t LoadShifted(int64_t first) const {
    const uintptr_t address = reinterpret_cast<uintptr_t>(mask_ + first);
    const unsigned shift = 8 * (address % 4);
    const int64_t begin = first - static_cast<int64_t>(address % 4);
    uint32_t integers[9];
#pragma unroll
    for (int i = 0; i < 9; ++i) integers[i] = Integer(begin + 4 * i);
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t low = __funnelshift_r(integers[2 * i], integers[2 * i + 1], shift);
      const uint32_t high = __funnelshift_r(integers[2 * i + 1], integers[2 * i + 2], shift);
      bits |= PackEight(low, high) << (8 * i);
    }
    return bits;
  }

  // The four bytes from an aligned address, zero where it is outside of the mask.
  __device__ uint32_t Integer(int64_t at) const {
    if (at >= 0 && at + 4 <= size_) return __ldg(reinterpret_cast<const uint32_t*>(mask_ + at));
    uint32_t bytes = 0;
    for (int i = 0; i < 4; ++i) {
      if (at + i >= 0 && at + i < size_) bytes |= static_cast<uint32_t>(mask_[at + i]) << (8 * i);
    }
    return bytes;
  }

  const uint8_t* mask_;
  int64_t size_;
  int64_t width_;
  bool wide_;
};

}  // namespace jaxsparse
