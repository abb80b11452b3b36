// Kernel gradient as a matrix product: rows m run over (tap, input channel), columns over output
// channels, and the depth over the active pixels of one range. Both operands are gathered pixel
// rows.
//
// Floor: 2 * active * taps * C * O FLOPs; mma.sync reaches about 62 % of the rate of wgmma on an
// H200 (about 490 TFLOP/s bfloat16, half that TF32), the CUDA cores 51 in float32. Tile: 128 x 128
// (or 64) sums; a thread gathers the same 16 bytes of channels of the same tap at every step, so
// that the tap costs an addition and a bounds check a pixel. Bytes: every row tile reads gy again
// and every column tile x again, from L2. Pipeline: three stages of cp.async, 64 pixels each
// (TF32: 24, float32: 16); the ids and mask words of the pixels to come are loaded a step before
// they are needed. Measured (H200, 3x3, 256 -> 256, 64x40x40, blobs, reduction included), TFLOP/s
// at pixel density .1 / .3 / 1: bfloat16 196 / 261 / 296, TF32 - / 113 / 119, float32 - / 41 / 41.
// At .3 the L1 pipe, which copies in and reads fragments out, is 72 % busy and the tensor cores 45
// %: smaller warp tiles would need more of it, larger ones more registers.
#pragma once

#include "cuda/kernels/masked_conv/dkernel/mma.cuh"
#include "cuda/kernels/masked_conv/pixels.cuh"

namespace jaxsparse::simt {

struct DkernelTilesParams {
  ActivePixels pixels;
  TapReader taps;
  const void* x;
  const void* gy;
  float* partial;  // [splits, rows, out_c]
  int in_c, out_c, rows;
  int row_tiles, column_tiles, splits;
};

template <class Mma, int kTileN>
struct DkernelTile {
  static constexpr int kM = Mma::kM, kN = kTileN;
  static constexpr int kBytesA = Mma::template Bytes<kM>();
  static constexpr int kBytesB = Mma::template Bytes<kN>();
  static constexpr int kSharedBytes = Mma::kStages * (kBytesA + kBytesB);
};

// What a step needs to know of one pixel, in elements.
struct PixelEntry {
  int64_t source;  // of x at tap (0, 0), as if the image had no border
  int row,
      col;  // of that input pixel; an inactive slot has a row that no tap brings into the image
};

template <int kPixels>
struct PixelEntries {
  PixelEntry source[kPixels];
  int64_t grad[kPixels];  // of gy; negative: inactive
};

// Decodes the pixels of coming steps, one pixel a lane of the first warp. Each call takes three
// steps' pixels one stage further (id loaded, mask word loaded, entry written), so that no load is
// waited for in the call that issues it.
template <int kPixels>
class PixelFeed {
 public:
  __device__ __forceinline__ PixelFeed(const DkernelTilesParams& p, int first, int end)
      : p_(p), works_(threadIdx.x < kPixels), slot_(first + threadIdx.x), end_(end) {
    if (!works_) return;
    LoadId();
    Locate();
  }

  __device__ __forceinline__ void Next(PixelEntries<kPixels>* entries) {
    if (!works_) return;
    PixelEntry entry = {0, kNoRow, 0};
    int64_t grad = -1;
    if (located_ && ActivePixels::Set(word_, pixel_)) {
      entry.row = p_.taps.FirstRow(pixel_.y);
      entry.col = p_.taps.FirstCol(pixel_.x);
      entry.source =
          ((int64_t{pixel_.b} * p_.taps.in_h + entry.row) * p_.taps.in_w + entry.col) * p_.in_c;
      grad = p_.pixels.Flat(pixel_) * p_.out_c;
    }
    entries->source[threadIdx.x] = entry;
    entries->grad[threadIdx.x] = grad;
    Locate();
  }

 private:
  __device__ __forceinline__ void LoadId() { id_ = slot_ < end_ ? p_.pixels.GridId(slot_) : -1; }

  __device__ __forceinline__ void Locate() {
    located_ = p_.pixels.LocateInGrid(slot_, id_, &pixel_);
    if (located_) word_ = p_.pixels.Word(pixel_);
    slot_ += kPixels;
    LoadId();
  }

  const DkernelTilesParams& p_;
  const bool works_;
  int slot_, end_, id_ = -1;
  bool located_ = false;
  Pixel pixel_ = {};
  uint32_t word_ = 0;
};

// Gathers both operands of one step: the thread's 16 bytes of channels, at its tap, of every few
// pixels.
template <class Mma, class Tile>
class DkernelLoad {
 public:
  using Element = typename Mma::Element;
  using Entries = PixelEntries<Mma::kPixels>;

  __device__ __forceinline__ DkernelLoad(const DkernelTilesParams& p, int row0, int column0)
      : p_(p) {
    const int m = row0 + threadIdx.x % kUnitsA * kLanes;
    const int tap = m / p.in_c;
    const int ky = tap / p.taps.kernel_w;
    row_read_ = m < p.rows;
    dy_ = row_read_ ? ky * p.taps.dilation_h : 0;
    dx_ = row_read_ ? (tap - ky * p.taps.kernel_w) * p.taps.dilation_w : 0;
    x_ = static_cast<const Element*>(p.x) + (int64_t{dy_} * p.taps.in_w + dx_) * p.in_c +
         (m - tap * p.in_c);
    const int n = column0 + threadIdx.x % kUnitsB * kLanes;
    column_read_ = n < p.out_c;
    gy_ = static_cast<const Element*>(p.gy) + n;
  }

  __device__ __forceinline__ void Step(const Entries& entries, char* a, char* b) const {
    const uint32_t target_a = SharedAddress(a), target_b = SharedAddress(b);
#pragma unroll
    for (int i = 0; i < Mma::kPixels; i += Mma::kThreads / kUnitsA) {
      const int pixel = i + threadIdx.x / kUnitsA;
      const PixelEntry entry = entries.source[pixel];
      const bool read = row_read_ && p_.taps.Inside(entry.row + dy_, entry.col + dx_);
      CopyAsync16(target_a + Mma::template Offset<Tile::kM>(pixel, threadIdx.x % kUnitsA),
                  read ? static_cast<const void*>(x_ + entry.source) : p_.x, read);
    }
#pragma unroll
    for (int i = 0; i < Mma::kPixels; i += Mma::kThreads / kUnitsB) {
      const int pixel = i + threadIdx.x / kUnitsB;
      const int64_t grad = entries.grad[pixel];
      const bool read = column_read_ && grad >= 0;
      CopyAsync16(target_b + Mma::template Offset<Tile::kN>(pixel, threadIdx.x % kUnitsB),
                  read ? static_cast<const void*>(gy_ + grad) : p_.gy, read);
    }
  }

 private:
  static constexpr int kLanes = 16 / sizeof(Element);
  static constexpr int kUnitsA = Tile::kM / kLanes, kUnitsB = Tile::kN / kLanes;

  const DkernelTilesParams& p_;
  int dy_, dx_;
  bool row_read_, column_read_;
  const Element* x_;
  const Element* gy_;
};

template <class Mma, class Tile>
__global__ void __launch_bounds__(Mma::kThreads, Mma::kResident)
    MaskedConvDkernelTiles(const DkernelTilesParams p) {
  extern __shared__ __align__(128) char shared[];
  __shared__ PixelEntries<Mma::kPixels> entries[2];
  char* const shared_b = shared + Mma::kStages * Tile::kBytesA;
  const int tile = blockIdx.x % (p.row_tiles * p.column_tiles);
  const int split = blockIdx.x / (p.row_tiles * p.column_tiles);
  const int row0 = tile / p.column_tiles * Tile::kM, column0 = tile % p.column_tiles * Tile::kN;
  const int slots = p.pixels.Slots();
  const int64_t blocks = (int64_t{slots} + Mma::kPixels - 1) / Mma::kPixels;
  const int first = static_cast<int>(blocks * split / p.splits);
  const int steps = static_cast<int>(blocks * (split + 1) / p.splits) - first;

  PixelFeed<Mma::kPixels> feed(p, first * Mma::kPixels, min((first + steps) * Mma::kPixels, slots));
  const DkernelLoad<Mma, Tile> load(p, row0, column0);
  Mma mma;
#pragma unroll
  for (int s = 0; s < Mma::kStages - 1; ++s) {
    feed.Next(&entries[s % 2]);
    __syncthreads();
    if (s < steps)
      load.Step(entries[s % 2], shared + s * Tile::kBytesA, shared_b + s * Tile::kBytesB);
    CommitCopies();
  }
  feed.Next(&entries[(Mma::kStages - 1) % 2]);
  int read = 0, write = Mma::kStages - 1;
  for (int step = 0; step < steps; ++step) {
    WaitCopies<Mma::kStages - 2>();
    __syncthreads();
    const int ahead = step + Mma::kStages - 1;
    if (ahead < steps) {
      load.Step(entries[ahead % 2], shared + write * Tile::kBytesA,
                shared_b + write * Tile::kBytesB);
    }
    CommitCopies();
    feed.Next(&entries[(ahead + 1) % 2]);
    mma.Step(shared + read * Tile::kBytesA, shared_b + read * Tile::kBytesB);
    read = read + 1 == Mma::kStages ? 0 : read + 1;
    write = write + 1 == Mma::kStages ? 0 : write + 1;
  }
  float* const partial = p.partial + int64_t{split} * p.rows * p.out_c;
  mma.Visit([&](int m, int n, float2 pair) {
    if (row0 + m >= p.rows || column0 + n >= p.out_c) return;
    *reinterpret_cast<float2*>(partial + int64_t{row0 + m} * p.out_c + column0 + n) = pair;
  });
}

}  // namespace jaxsparse::simt
