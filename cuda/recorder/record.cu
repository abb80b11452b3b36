// Codes of segments from their values, whatever their type: a value is told by its bits (both zeros
// are zero; the bound is positive, so it has one pattern).
//
// Floor: a sector of a mixed segment, the values of a decided one, once. A lane has a segment of
// its own and reads the first 16 bytes of it, which in most layers tell that it is mixed; what is
// left of the others the warp reads together, one after the other. So 32 segments wait for memory
// once: 200,704 pixels are one wave of warps, where a warp a segment takes 24. Where there are few
// segments a warp has one. Those 200,704 sectors take 6.7 us behind the launch that wrote them on
// an H200, 2 of them the sectors at the memory's rate; a quarter of them takes 3.4, whether they
// are in the second-level cache or not, so it is the number of requests that counts. They pass the
// first-level cache by (1 us less).
#include "cuda/recorder/record.h"

#include <algorithm>

#include "cuda/recorder/probe.cuh"

namespace jaxsparse {
namespace {

constexpr int kThreads = 64;
constexpr int64_t kMostBlocks = 1 << 17;
constexpr int64_t kManyItems = 1 << 14;

// What is still possible of a segment.
struct Verdict {
  bool zero = true, upper = true;

  template <typename Bits>
  __device__ void See(uint32_t value, uint32_t bound) {
    constexpr uint32_t kMagnitude = sizeof(Bits) == 2 ? 0x7fffu : 0x7fffffffu;
    zero &= (value & kMagnitude) == 0;
    upper &= value == bound;
  }
  __device__ bool Open() const { return zero || upper; }
};

// Sixteen bytes of values at a time where every segment begins and ends on such a boundary, else
// one value.
template <typename Bits, bool kWide>
class Segment {
 public:
  static constexpr int kValues = kWide ? 16 / sizeof(Bits) : 1;

  __device__ Segment(const BoundedRecordArgs& args, int64_t item) : upper_(args.upper) {
    const int64_t first = item % args.segments * args.segment;
    begin_ = static_cast<const Bits*>(args.values) + item / args.segments * args.n + first;
    steps_ = (min(args.segment, args.n - first) + kValues - 1) / kValues;
  }

  __device__ int64_t Steps() const { return steps_; }

  __device__ void See(int64_t step, Verdict& verdict) const {
    if constexpr (kWide) {
      const uint4 word = __ldcs(reinterpret_cast<const uint4*>(begin_) + step);
      const uint32_t words[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if constexpr (sizeof(Bits) == 2) {
          verdict.See<Bits>(words[i] & 0xffffu, upper_);
          verdict.See<Bits>(words[i] >> 16, upper_);
        } else {
          verdict.See<Bits>(words[i], upper_);
        }
      }
    } else {
      verdict.See<Bits>(begin_[step], upper_);
    }
  }

 private:
  const Bits* begin_;
  int64_t steps_;
  uint32_t upper_;
};

template <typename Bits, bool kWide>
__global__ void __launch_bounds__(kThreads)
    RecordSegments(const __grid_constant__ BoundedRecordArgs args, int64_t share) {
  const int64_t items = args.rows * args.segments, lane = threadIdx.x % 32;
  const int64_t step = gridDim.x * (kThreads / 32) * share;
  int64_t first = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / 32 * share;
  for (; first < items; first += step) {
    Verdict mine;
    int64_t steps = 0;
    const bool owns = lane < share && first + lane < items;
    if (owns) {
      const Segment<Bits, kWide> segment(args, first + lane);
      segment.See(0, mine);
      steps = segment.Steps();
    }
    uint32_t open = __ballot_sync(~0u, steps > 1 && mine.Open());
    for (; open != 0; open &= open - 1) {
      const int owner = __ffs(open) - 1;
      const Segment<Bits, kWide> segment(args, first + owner);
      Verdict found;
      bool left = true;
      for (int64_t at = 1; left && at < segment.Steps(); at += 32) {
        if (at + lane < segment.Steps()) segment.See(at + lane, found);
        found.zero = __all_sync(~0u, found.zero);
        found.upper = __all_sync(~0u, found.upper);
        left = found.Open();
      }
      if (lane == owner) mine = {mine.zero && found.zero, mine.upper && found.upper};
    }
    if (owns) {
      args.codes[first + lane] = mine.zero ? kZero : mine.upper ? kUpper : kMixed;
    }
  }
}

template <typename Bits>
void Launch(const BoundedRecordArgs& args, cudaStream_t stream) {
  const int64_t items = args.rows * args.segments, share = items < kManyItems ? 1 : 32;
  const int64_t of_block = kThreads / 32 * share;
  const int64_t blocks = std::min((items + of_block - 1) / of_block, kMostBlocks);
  const int64_t values = 16 / sizeof(Bits);
  const bool wide = args.n % values == 0 && (args.segment % values == 0 || args.segments == 1) &&
                    reinterpret_cast<uintptr_t>(args.values) % 16 == 0;
  if (wide) {
    RecordSegments<Bits, true><<<blocks, kThreads, 0, stream>>>(args, share);
  } else {
    RecordSegments<Bits, false><<<blocks, kThreads, 0, stream>>>(args, share);
  }
}

}  // namespace

cudaError_t LaunchBoundedRecord(const BoundedRecordArgs& args, cudaStream_t stream) {
  if (args.rows * args.segments == 0) return cudaSuccess;
  if (args.bytes == 2) {
    Launch<uint16_t>(args, stream);
  } else {
    Launch<uint32_t>(args, stream);
  }
  return cudaGetLastError();
}

}  // namespace jaxsparse
