// Which outputs of a convolution see an undecided pixel of its input, and what all others are.
//
// A window of decided pixels has one of 2^taps results, which a table holds: bit t of an entry says
// that tap t is at the bound. Floor: a byte a pixel in, a byte an output out, and the rows of
// decided outputs, once: 64 x 56 x 56 x 256 in bfloat16 with 60 % of them decided is 62 MB, 14 us;
// with none, two bytes a pixel and a launch. A block has 256 outputs, a thread one of them, whose
// taps it loads together. Where nearly all outputs are near an undecided pixel, by a sample, all
// are called near: then the convolution multiplies them and nothing is written here. That is a
// matter of the whole: a full list of tiles takes the convolution's fastest way, and one that lacks
// few of them costs it more than these save. Otherwise a warp writes the rows of its 32 outputs.
// The launch begins while the table is made, and waits for it before rows are written. Measured on
// an H200: where none is written, both launches add 7.2 us to a convolution of 325; one behind the
// other, and with no sample, 8.3 to 336, and side by side without it 6.1.
#include "cuda/kernels/bounded_windows/windows.h"

#include "cuda/core/overlap.cuh"
#include "cuda/recorder/segments.cuh"
#include "cuda/tile/store/table_rows.cuh"

namespace jaxsparse {
namespace {

constexpr int kThreads = 256, kBlocks = 6;  // of a multiprocessor: 784 blocks are one wave
constexpr int32_t kNear = -3;

// The codes of one output's window: what lies outside of the input, and no tap at all, is zero.
class Window {
 public:
  __device__ Window(const BoundedWindowsArgs& args, uint32_t output) {
    const uint32_t row = output / static_cast<uint32_t>(args.out_width);
    const uint32_t image = row / static_cast<uint32_t>(args.out_height);
    const int height = static_cast<int>(args.height), width = static_cast<int>(args.width);
    const int x = static_cast<int>(output - row * static_cast<uint32_t>(args.out_width));
    const int y = static_cast<int>(row - image * static_cast<uint32_t>(args.out_height));
    const int px = x * args.stride_w, py = y * args.stride_h;
    const uint8_t* const codes = args.codes + image * args.height * args.width * args.segments;
#pragma unroll
    for (int t = 0; t < kMostWindowTaps; ++t) {
      code_[t] = kZero;
      if (t >= args.taps) continue;
      const int down = py + args.down[t], right = px + args.right[t];
      const bool inside = static_cast<uint32_t>(down) < static_cast<uint32_t>(height) &&
                          static_cast<uint32_t>(right) < static_cast<uint32_t>(width);
      if (inside) code_[t] = CodeOf(codes, down * width + right, args.segments);
    }
  }

  // Its entry in the table, or kNear.
  __device__ int32_t Entry() const {
    int32_t bits = 0;
    bool near = false;
#pragma unroll
    for (int t = 0; t < kMostWindowTaps; ++t) {
      bits |= (code_[t] == kUpper ? 1 : 0) << t;
      near |= code_[t] != kUpper && code_[t] != kZero;
    }
    return near ? kNear : bits;
  }

 private:
  __device__ static uint8_t CodeOf(const uint8_t* codes, int pixel, int64_t segments) {
    return segments == 1 ? __ldg(codes + pixel) : RowCode(codes + pixel * segments, segments);
  }

  uint8_t code_[kMostWindowTaps];
};

// Whether of 256 outputs that are spread over all, the same in every block, so many of those that
// are covered are near that it does not pay to tell them apart.
__device__ bool NearlyAllNear(const BoundedWindowsArgs& args, uint32_t total) {
  const uint32_t output = __umulhi(threadIdx.x * 0x9e3779b9u, total);
  const bool covered = args.cover[output], near = Window(args, output).Entry() == kNear;
  const int count = __syncthreads_count(covered && near), all = __syncthreads_count(covered);
  return static_cast<float>(count) > args.most_near * static_cast<float>(all);
}

template <typename Chunk>
__global__ void __launch_bounds__(kThreads, kBlocks)
    KnownWindows(const __grid_constant__ BoundedWindowsArgs args, int64_t chunks) {
  const uint32_t total = static_cast<uint32_t>(args.batch * args.out_height * args.out_width);
  const uint32_t output = blockIdx.x * kThreads + threadIdx.x;
  const bool covered = output < total && args.cover[output];
  const int32_t window = output < total ? Window(args, output).Entry() : kLeftAlone;
  const bool whole = NearlyAllNear(args, total);
  int32_t entry = output < total && !args.based ? kZeroRow : kLeftAlone;
  if (covered) entry = window;
  if (output < total) args.near[output] = covered && (whole || entry == kNear);
  if (covered && (whole || entry == kNear)) entry = kLeftAlone;
  WaitForPrevious();
  WriteRows(static_cast<const Chunk*>(args.table), static_cast<Chunk*>(args.out),
            static_cast<int64_t>(output) - threadIdx.x % 32, chunks, entry);
}

template <typename Chunk>
cudaError_t Launch(const BoundedWindowsArgs& args, cudaStream_t stream) {
  const int64_t total = args.batch * args.out_height * args.out_width;
  const dim3 grid(static_cast<unsigned>((total + kThreads - 1) / kThreads));
  const int64_t chunks = args.bytes / static_cast<int64_t>(sizeof(Chunk));
  if (args.behind_table) {
    return LaunchEarly(&KnownWindows<Chunk>, grid, kThreads, stream, args, chunks);
  }
  KnownWindows<Chunk><<<grid, kThreads, 0, stream>>>(args, chunks);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchBoundedWindows(const BoundedWindowsArgs& args, cudaStream_t stream) {
  if (args.batch * args.out_height * args.out_width == 0) return cudaSuccess;
  cudaError_t error = cudaSuccess;
  WithChunk(args.table, args.out, args.bytes,
            [&](auto chunk) { error = Launch<decltype(chunk)>(args, stream); });
  return error;
}

}  // namespace jaxsparse
