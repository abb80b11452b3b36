// Mask bytes to bits, in registers: four pixels cost one dot product and the three operations that
// find their nonzero bytes.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace jaxsparse {

// 0x80 in every byte of `bytes` that is not zero.
__device__ inline uint32_t Nonzero(uint32_t bytes) {
  return (((bytes & 0x7f7f7f7fu) + 0x7f7f7f7fu) | bytes) & 0x80808080u;
}

// 128 times the bits of eight mask bytes; any nonzero byte counts.
__device__ inline uint32_t DotEight(uint32_t low, uint32_t high) {
  return __dp4a(Nonzero(high), 0x80402010u, __dp4a(Nonzero(low), 0x08040201u, 0u));
}

// Bits of eight mask bytes.
__device__ inline uint32_t PackEight(uint32_t low, uint32_t high) {
  return DotEight(low, high) >> 7;
}

// Bits of a chunk of mask bytes, in its low bits.
__device__ inline uint32_t PackChunk(uint32_t bytes) { return PackEight(bytes, 0u); }
__device__ inline uint32_t PackChunk(uint2 bytes) { return PackEight(bytes.x, bytes.y); }
__device__ inline uint32_t PackChunk(uint4 bytes) {
  return PackEight(bytes.x, bytes.y) | DotEight(bytes.z, bytes.w) << 1;
}

// Bits of 32 mask bytes of two chunks.
__device__ inline uint32_t PackWord(uint4 low, uint4 high) {
  return PackChunk(low) | PackChunk(high) << 16;
}

// Reads words out of a mask uint8[rows, width] whose rows may start at any address. Loads are
// aligned, of 16 bytes where rows allow it and of 4 otherwise, and none leaves the mask.
class MaskBytes {
 public:
  __device__ MaskBytes(const uint8_t* mask, int64_t size, int64_t width)
      : mask_(mask), size_(size), width_(width) {}

  // Word `w` of a row; bits past the width are zero.
  __device__ uint32_t Load(int64_t row, int64_t w) const {
    const bool wide = (width_ | reinterpret_cast<uintptr_t>(mask_)) % 16 == 0;
    return wide ? LoadWide(row, w) : LoadAny(row, w);
  }

  // The same where rows are known to be of whole 16 bytes; no branch, so that the loads of several
  // words can be in flight together.
  __device__ uint32_t LoadWide(int64_t row, int64_t w) const {
    const uint4* chunks = reinterpret_cast<const uint4*>(mask_ + row * width_ + 32 * w);
    const bool both = width_ - 32 * w > 16;
    const uint32_t low = PackChunk(__ldg(chunks)), high = PackChunk(__ldg(chunks + (both ? 1 : 0)));
    return both ? low | high << 16 : low;
  }

  // The same for any width: nine aligned integers, shifted into place.
  __device__ uint32_t LoadAny(int64_t row, int64_t w) const {
    const int64_t first = row * width_ + 32 * w, valid = width_ - 32 * w;
    const int skew = static_cast<int>(reinterpret_cast<uintptr_t>(mask_ + first) % 4);
    const int64_t begin = first - skew;
    const bool inside = begin >= 0 && begin + 36 <= size_;
    const uint32_t* from = reinterpret_cast<const uint32_t*>(mask_ + begin);
    uint32_t integers[9];
    if (inside) {
#pragma unroll
      for (int i = 0; i < 9; ++i) integers[i] = __ldg(from + i);
    } else {
#pragma unroll
      for (int i = 0; i < 9; ++i) {
        const int64_t at = begin + 4 * i;
        const bool whole = at >= 0 && at + 4 <= size_;
        integers[i] = 0;
        if (whole) integers[i] = __ldg(from + i);
        if (!whole && at > -4 && at < size_) integers[i] = Integer(at);
      }
    }
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t low = __funnelshift_r(integers[2 * i], integers[2 * i + 1], 8 * skew);
      const uint32_t high = __funnelshift_r(integers[2 * i + 1], integers[2 * i + 2], 8 * skew);
      bits |= PackEight(low, high) << (8 * i);
    }
    return valid >= 32 ? bits : bits & ((1u << valid) - 1u);
  }

 private:
  // The four bytes from an aligned address, zero where it is outside of the mask.
  __device__ __noinline__ uint32_t Integer(int64_t at) const {
    uint32_t bytes = 0;
    for (int i = 0; i < 4; ++i) {
      if (at + i >= 0 && at + i < size_) bytes |= static_cast<uint32_t>(mask_[at + i]) << (8 * i);
    }
    return bytes;
  }

  const uint8_t* mask_;
  int64_t size_;
  int64_t width_;
};

}  // namespace jaxsparse
