// Packing and unpacking masks, bound by the bytes of the mask.
//
// Floor: n bytes one way and n/8 the other; 4 M pixels move 4.7 MB, 1.1 us at 4.3 TB/s from memory,
// less from L2.
//
// Tile: rows of whole 16-byte (8, 4) chunks: a thread makes one word from 2 (4, 8) loads, four
// pixels to one byte-compare and one dot product. Other rows start unaligned: a thread makes one
// word from nine aligned 4-byte loads, shifted into place. No pipeline: a thread's loads are
// independent, and as many threads as fit hide their latency.
//
// Measured on an H200, in a graph of 20 calls, a launch (1.2 us) included: 4 M pixels in rows of
// 2048 2.0 us to pack, 2.4 us to unpack; 1 M pixels 1.6 and 1.5 us; 4 M pixels in 8-byte chunks 2.2
// and 2.7 us, in 4-byte chunks 2.7 and 3.9 us, in rows of odd length about 3 us to pack (with
// a list 8.2 us, against 7.2 us in rows of 2048) and 11 us to unpack (64-bit index arithmetic).
#include "cuda/bits/pack.h"

#include "cuda/bits/pack_bytes.cuh"
#include "cuda/bits/quotient.cuh"

namespace jaxsparse {
namespace {

constexpr int kThreads = 256;

__device__ int64_t GlobalThread() {
  return static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}

// Four mask bytes from the low four bits.
__device__ uint32_t UnpackFour(uint32_t bits) { return ((bits & 15u) * 0x00204081u) & 0x01010101u; }

__device__ void UnpackChunk(uint32_t bits, uint32_t& bytes) { bytes = UnpackFour(bits); }
__device__ void UnpackChunk(uint32_t bits, uint2& bytes) {
  bytes = {UnpackFour(bits), UnpackFour(bits >> 4)};
}
__device__ void UnpackChunk(uint32_t bits, uint4& bytes) {
  bytes = {UnpackFour(bits), UnpackFour(bits >> 4), UnpackFour(bits >> 8), UnpackFour(bits >> 12)};
}

// Rows of whole chunks: one thread per word.
template <class Chunk>
__global__ void __launch_bounds__(kThreads)
    PackChunks(const Chunk* mask, int64_t words_total, int64_t words_per_row,
               int64_t chunks_per_row, uint32_t* words) {
  constexpr int kBits = sizeof(Chunk), kChunks = 32 / kBits;
  const int64_t i = GlobalThread();
  if (i >= words_total) return;
  const int64_t row = Quotient(i, words_per_row), w = i - row * words_per_row;
  const Chunk* first = mask + row * chunks_per_row + kChunks * w;
  const int64_t count = chunks_per_row - kChunks * w;
  uint32_t bits = 0;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    if (c < count) bits |= PackChunk(first[c]) << (c * kBits);
  }
  words[i] = bits;
}

// Any n: one thread per word.
__global__ void __launch_bounds__(kThreads)
    PackRows(const uint8_t* mask, int64_t words_total, int64_t words_per_row, int64_t n,
             uint32_t* words) {
  const int64_t i = GlobalThread();
  if (i >= words_total) return;
  const int64_t row = Quotient(i, words_per_row);
  const MaskBytes bytes(mask, words_total / words_per_row * n, n);
  words[i] = bytes.Load(row, i - row * words_per_row);
}

// Rows of whole chunks: one thread per chunk.
template <class Chunk>
__global__ void __launch_bounds__(kThreads)
    UnpackChunks(const uint32_t* words, int64_t chunks_total, int64_t words_per_row,
                 int64_t chunks_per_row, Chunk* mask) {
  constexpr int kBits = sizeof(Chunk), kChunks = 32 / kBits;
  const int64_t i = GlobalThread();
  if (i >= chunks_total) return;
  const int64_t row = Quotient(i, chunks_per_row), c = i - row * chunks_per_row;
  UnpackChunk(words[row * words_per_row + c / kChunks] >> (kBits * (c % kChunks)), mask[i]);
}

// Any n: one thread per pixel.
__global__ void __launch_bounds__(kThreads)
    UnpackBytes(const uint32_t* words, int64_t pixels, int64_t words_per_row, int64_t n,
                uint8_t* mask) {
  const int64_t i = GlobalThread();
  if (i >= pixels) return;
  const int64_t row = Quotient(i, n), x = i - row * n;
  mask[i] = words[row * words_per_row + x / 32] >> (x % 32) & 1u;
}

unsigned Blocks(int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

// Whether every row is whole chunks, aligned.
template <class Chunk>
bool Divides(const void* mask, int64_t n) {
  return n % sizeof(Chunk) == 0 && reinterpret_cast<uintptr_t>(mask) % sizeof(Chunk) == 0;
}

template <class Chunk>
void LaunchPack(const uint8_t* mask, int64_t rows, int64_t n, uint32_t* words,
                cudaStream_t stream) {
  const int64_t per_row = (n + 31) / 32, total = rows * per_row, chunks = n / sizeof(Chunk);
  PackChunks<<<Blocks(total), kThreads, 0, stream>>>(reinterpret_cast<const Chunk*>(mask), total,
                                                     per_row, chunks, words);
}

template <class Chunk>
void LaunchUnpack(const uint32_t* words, int64_t rows, int64_t n, uint8_t* mask,
                  cudaStream_t stream) {
  const int64_t per_row = (n + 31) / 32, chunks = n / sizeof(Chunk);
  UnpackChunks<<<Blocks(rows * chunks), kThreads, 0, stream>>>(
      words, rows * chunks, per_row, chunks, reinterpret_cast<Chunk*>(mask));
}

}  // namespace

cudaError_t PackMask(const uint8_t* mask, int64_t rows, int64_t n, uint32_t* words,
                     cudaStream_t stream) {
  const int64_t per_row = (n + 31) / 32, total = rows * per_row;
  if (total == 0) return cudaSuccess;
  if (Divides<uint4>(mask, n)) {
    LaunchPack<uint4>(mask, rows, n, words, stream);
  } else if (Divides<uint2>(mask, n)) {
    LaunchPack<uint2>(mask, rows, n, words, stream);
  } else if (Divides<uint32_t>(mask, n)) {
    LaunchPack<uint32_t>(mask, rows, n, words, stream);
  } else {
    PackRows<<<Blocks(total), kThreads, 0, stream>>>(mask, total, per_row, n, words);
  }
  return cudaGetLastError();
}

cudaError_t UnpackMask(const uint32_t* words, int64_t rows, int64_t n, uint8_t* mask,
                       cudaStream_t stream) {
  const int64_t pixels = rows * n;
  if (pixels == 0) return cudaSuccess;
  if (Divides<uint4>(mask, n)) {
    LaunchUnpack<uint4>(words, rows, n, mask, stream);
  } else if (Divides<uint2>(mask, n)) {
    LaunchUnpack<uint2>(words, rows, n, mask, stream);
  } else if (Divides<uint32_t>(mask, n)) {
    LaunchUnpack<uint32_t>(words, rows, n, mask, stream);
  } else {
    UnpackBytes<<<Blocks(pixels), kThreads, 0, stream>>>(words, pixels, (n + 31) / 32, n, mask);
  }
  return cudaGetLastError();
}

}  // namespace jaxsparse
