// Runs of 16 kept weights of an output, a run a lane, for up to 16 rows of x: no address depends on
// loaded data, so the whole stream of weights is under way before x has arrived.
//
// Floor: a kept weight is 2 bytes of value and 8 bits (4 bits) of place, a run 2 bytes more: 3.125
// (2.625) bytes a kept weight against 2 a weight dense: 6.4x at 90 %, 2.5x at 70 %, 1.5x at 50 %
// without padding. A kept weight reads the 2 bytes of each row of x from shared memory, 8 rows by
// one 16-byte load. About 5 instructions a kept weight with one row, 2 more for each other row.
//
// A block owns whole outputs and one of `parts` ranges of the inputs, whose x lies in shared
// memory. A thread owns `chunks` runs of one output: the outputs of a block are dealt its threads
// in proportion to what they keep, so that every block has the same number of chunks and of
// threads, and a thread's pieces of all arrays lie where block, chunk and thread say. Loads of
// kAhead chunks are under way in registers. Places: with 8 bits each counts from the run's base, in
// any order (the packer spares banks); with 4 bits each counts from the one before. One integer dot
// product adds up an address. A thread's sums meet those of its output in shared memory, in order;
// a cluster adds those of its blocks in rank order through distributed shared memory.
//
// Predicted, H200, 1 row, 90 %: bytes at 4.3 TB/s and a launch: 2.2, 6.2 and 22 us (4096, 8192 and
// 16384 inputs and outputs). Measured: 3.8 (two blocks a multiprocessor), 8.4 and (earlier)
// 24.8; a kernel that only reads as many bytes takes 3.2 and 7.2, and 2.7 at 4096 where it begins
// early, too. A launch begins before the one in front is done, asks the second-level cache for its
// weights, and waits. At 4096 x 4096 a block is released about 1.1 us after the one before it ended
// on its multiprocessor; then 500 to 900 cycles until its loads are under way, 1,900 more for x,
// 1,200 of products and 1,000 to add up and store.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/core/overlap.cuh"
#include "cuda/kernels/pruned_matmul/gather.cuh"
#include "cuda/kernels/pruned_matmul/runs/inputs.cuh"

namespace jaxsparse {

inline constexpr int kRunEntries = 16, kRunSpan = 256;  // inputs that a run's places can reach

// Threads of a block at most: many rows need many registers.
template <int kRows>
inline constexpr int kRunsMostThreads = kRows > 4 ? 512 : 1024;

// What the launcher adds to the arguments.
struct RunsLayout {
  int32_t parts;    // blocks of a cluster: 1, 2, 4 or 8
  int32_t inputs;   // of a part; a multiple of 8
  int32_t outputs;  // of a block
  int32_t chunks;   // runs of a thread
};

namespace runs {

// Sixteen kept weights, and where their inputs lie.
template <int kBits>
struct Run {
  static constexpr int kWords = kBits / 2;
  uint4 values[2];
  uint32_t places[kWords];
  uint32_t base;
};

__device__ __forceinline__ uint4 LoadStream(const uint4* source) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(source));
  return v;
}

__device__ __forceinline__ uint2 LoadStream(const uint2* source) {
  uint2 v;
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
               : "=r"(v.x), "=r"(v.y)
               : "l"(source));
  return v;
}

// Bytes of an array of a block that may be asked for early: what arrives while a kernel ends.
inline constexpr int64_t kRunsEarlyBytes = 48 * 1024;

// Asks the second-level cache for the beginning of the block's piece of an array. No value is read:
// it may be asked for before the kernel in front is done, whichever kernel writes the array.
__device__ __forceinline__ void AskFor(const void* array, int64_t bytes) {
#if __CUDA_ARCH__ >= 900
  const char* const from = static_cast<const char*>(array) + blockIdx.x * bytes;
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from),
               "r"(static_cast<uint32_t>(min(bytes, kRunsEarlyBytes)))
               : "memory");
#endif
}

// Asks for the runs of the block.
template <int kBits>
__device__ __forceinline__ void AskForRuns(const PrunedArgs& args, const RunsLayout& layout) {
  if (threadIdx.x != 0) return;
  const int64_t runs = static_cast<int64_t>(layout.chunks) * blockDim.x;
  AskFor(args.values, runs * kRunEntries * 2);
  AskFor(args.extra, runs * 2 * kBits);
  AskFor(args.indices, runs * 2);
}

// The runs of a thread: chunk by chunk, each array's pieces of all threads side by side.
template <int kBits>
class RunStream {
 public:
  __device__ RunStream(const PrunedArgs& args, const RunsLayout& layout)
      : first_(static_cast<int64_t>(blockIdx.x) * layout.chunks * blockDim.x + threadIdx.x),
        values_(static_cast<const uint4*>(args.values) + 2 * first_ - threadIdx.x),
        places_(reinterpret_cast<const Piece*>(args.extra) + first_),
        bases_(static_cast<const uint16_t*>(args.indices) + first_) {}

  __device__ __forceinline__ Run<kBits> At(int chunk) const {
    const uint32_t at = chunk * blockDim.x;
    Run<kBits> run;
    run.values[0] = LoadStream(values_ + 2 * at);
    run.values[1] = LoadStream(values_ + 2 * at + blockDim.x);
    const Piece piece = LoadStream(places_ + at);
    if constexpr (kBits == 8) {
      run.places[0] = piece.x, run.places[1] = piece.y;
      run.places[2] = piece.z, run.places[3] = piece.w;
    } else {
      run.places[0] = piece.x, run.places[1] = piece.y;
    }
    run.base = __ldg(bases_ + at);
    return run;
  }

 private:
  using Piece = std::conditional_t<kBits == 8, uint4, uint2>;

  int64_t first_;
  const uint4* values_;
  const Piece* places_;
  const uint16_t* bases_;
};

// The addresses of four neighbours of a run, from `base`, which moves on where they count from each
// other.
template <int kBits, int kBytes>
__device__ __forceinline__ void FindFour(uint32_t word, uint32_t& base, uint32_t (&at)[4]) {
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const uint32_t all = kBytes * 0x01010101u;
    at[e] = __dp4a(
        word, kBits == 8 ? static_cast<uint32_t>(kBytes) << (8 * e) : all >> (24 - 8 * e), base);
  }
  if constexpr (kBits == 4) base = at[3];
}

// A run's products with all rows. `x`: the inputs' address, `inputs` of them.
template <typename T, int kRows, int kBits>
__device__ __forceinline__ void MultiplyRun(
    const Run<kBits>& run, uint32_t x, uint32_t inputs, uint32_t plane_bytes,
    float (&sums)[gather::Plane<kRows>::kCount][gather::Plane<kRows>::kWidth]) {
  using P = gather::Plane<kRows>;
  uint32_t base = x + min(run.base, inputs) * P::kBytes;
  const uint32_t pairs[8] = {run.values[0].x, run.values[0].y, run.values[0].z, run.values[0].w,
                             run.values[1].x, run.values[1].y, run.values[1].z, run.values[1].w};
#pragma unroll
  for (int four = 0; four < 4; ++four) {
    uint32_t word = run.places[kBits == 8 ? four : four / 2], at[4];
    if constexpr (kBits == 4) word = (four % 2 ? word >> 4 : word) & 0x0f0f0f0fu;
    FindFour<kBits, P::kBytes>(word, base, at);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const uint32_t pair = pairs[four * 2 + e / 2];
      const float value = e % 2 ? gather::HighHalf<T>(pair) : gather::LowHalf<T>(pair);
#pragma unroll
      for (int p = 0; p < P::kCount; ++p) {
        gather::MultiplyInput<T, kRows>(at[e] + p * plane_bytes, value, sums[p]);
      }
    }
  }
}

// A sum of the block: its row, its threads, and the output that it is. Lanes that share a sum hold
// it, in two registers and read at the beginning: the end of a block is one access to shared memory
// after the other, and each waits behind the gathers of its neighbours.
struct SumItem {
  uint32_t packed;  // 11 bits each of the first and the last thread, then the row
  int32_t output;

  __device__ __forceinline__ int First() const { return packed & 0x7ff; }
  __device__ __forceinline__ int Last() const { return packed >> 11 & 0x7ff; }
  __device__ __forceinline__ int Row() const { return packed >> 22; }
};

// Lanes that share a sum: with few rows four, with many every thread has one.
template <int kRows>
inline constexpr int kSumLanes = kRows < 4 ? 4 : 1;

// Sum `i` of the block, counted row by row.
template <int kRows>
__device__ __forceinline__ SumItem SumAt(const PrunedArgs& args, const RunsLayout& layout,
                                         int group, int i) {
  const int row = kRows == 1 ? 0 : static_cast<uint32_t>(i) / layout.outputs;
  if (row >= args.m || (kRows == 1 && i >= layout.outputs)) return {0, -1};
  const int64_t output = i - row * layout.outputs;
  const int32_t* const starts = args.starts + blockIdx.x * (layout.outputs + int64_t{1}) + output;
  const int most = static_cast<int>(blockDim.x);
  const uint32_t first = min(max(__ldg(starts), 0), most);
  const uint32_t last = min(max(__ldg(starts + 1), 0), most);
  return {first | last << 11 | row << 22,
          __ldg(args.rows + group * int64_t{layout.outputs} + output)};
}

template <typename T>
__device__ __forceinline__ void StoreSum(const PrunedArgs& args, int row, int64_t output,
                                         float sum) {
  if (output < 0 || output >= args.n) return;
  const float bias = args.bias ? __ldg(args.bias + output) : 0.0f;
  const float result[1] = {simt::Activate(args.activation, sum + bias)};
  simt::StoreResult<1, T>(args.out, args.out_type == DType::kF32, row * args.n + output, result);
}

// Sums those of an output's threads and stores the result, or leaves it in `totals` for the
// cluster. `item`: the thread's first.
template <typename T, int kRows>
__device__ void SumThreads(const PrunedArgs& args, const RunsLayout& layout, SumItem item,
                           int group, const float* threads, float* totals) {
  constexpr int kLanes = kSumLanes<kRows>, kAtOnce = 8;
  const int lane = threadIdx.x % kLanes, count = static_cast<int>(args.m) * layout.outputs;
  [[maybe_unused]] const uint32_t lanes = 0xfu << threadIdx.x % 32 / 4 * 4;  // that share a sum
  const int step = blockDim.x / kLanes;
  for (int i = threadIdx.x / kLanes; i < count; i += step) {
    const float* const from = threads + item.Row() * (blockDim.x + 1);
    const int last = item.Last();
    float sum = 0.0f;
    for (int t = item.First() + lane; t < last; t += kAtOnce * kLanes) {
      float some[kAtOnce];
#pragma unroll
      for (int a = 0; a < kAtOnce; ++a) {
        some[a] = t + a * kLanes < last ? from[t + a * kLanes] : 0.0f;
      }
#pragma unroll
      for (int a = 0; a < kAtOnce; ++a) sum += some[a];
    }
#pragma unroll
    for (int s = 1; s < kLanes; s *= 2) sum += __shfl_xor_sync(lanes, sum, s);
    if (lane == 0) {
      if (layout.parts > 1) {
        totals[i] = sum;
      } else {
        StoreSum<T>(args, item.Row(), item.output, sum);
      }
    }
    if (i + step < count) item = SumAt<kRows>(args, layout, group, i + step);
  }
}

// Adds the totals of the cluster in rank order and stores every `parts`-th output.
template <typename T>
__device__ void StoreTotals(const PrunedArgs& args, const RunsLayout& layout, const float* totals,
                            int group, int rank) {
  const int mine = (layout.outputs - rank + layout.parts - 1) / layout.parts;
  const uint32_t from = ptx::SharedAddress(totals);
  for (int i = threadIdx.x; i < args.m * mine; i += blockDim.x) {
    const int row = i / mine, local = (i - row * mine) * layout.parts + rank;
    float sum = 0.0f;
#pragma unroll 2
    for (int r = 0; r < layout.parts; ++r) {
      sum += fragment::LoadPartOne(from + (row * layout.outputs + local) * 4, r);
    }
    StoreSum<T>(args, row, __ldg(args.rows + group * int64_t{layout.outputs} + local), sum);
  }
}

}  // namespace runs

// `rows`: the outputs of each group of blocks; `starts`: the first thread of each output of a
// block.
template <typename T, int kRows, int kBits>
__global__ void __launch_bounds__(kRunsMostThreads<kRows>)
    PrunedRuns(const __grid_constant__ PrunedArgs args, const RunsLayout layout) {
  extern __shared__ float4 memory[];
  using P = gather::Plane<kRows>;
  constexpr int kAhead = kRunsMostThreads<kRows> > 512 ? 2 : 3;
  const uint32_t x = ptx::SharedAddress(memory);
  const uint32_t plane_bytes = (layout.inputs + kRunSpan) * P::kBytes;
  float* const threads = reinterpret_cast<float*>(memory) + P::kCount * plane_bytes / 4;
  float* const totals = threads + kRows * (blockDim.x + 1);
  const int part = blockIdx.x & (layout.parts - 1), group = blockIdx.x >> __popc(layout.parts - 1);
  LetNextStart();
  runs::AskForRuns<kBits>(args, layout);
  WaitForPrevious();
  const runs::RunStream<kBits> stream(args, layout);
  runs::Run<kBits> ahead[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    if (i < layout.chunks) ahead[i] = stream.At(i);
  }
  runs::InputsFill<T, kRows> fill(args, x, static_cast<int64_t>(part) * layout.inputs,
                                  layout.inputs, plane_bytes);
  const runs::SumItem item =
      runs::SumAt<kRows>(args, layout, group, threadIdx.x / runs::kSumLanes<kRows>);
  fill.Store();
  __syncthreads();
  float sums[P::kCount][P::kWidth] = {};
#pragma unroll 1
  for (int chunk = 0; chunk < layout.chunks; chunk += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (chunk + i >= layout.chunks) break;
      const runs::Run<kBits> run = ahead[i];
      if (chunk + i + kAhead < layout.chunks) ahead[i] = stream.At(chunk + i + kAhead);
      runs::MultiplyRun<T, kRows, kBits>(run, x, layout.inputs, plane_bytes, sums);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    threads[r * (blockDim.x + 1) + threadIdx.x] = sums[r / P::kWidth][r % P::kWidth];
  }
  __syncthreads();
  runs::SumThreads<T, kRows>(args, layout, item, group, threads, totals);
  if (layout.parts == 1) return;
  fragment::MeetCluster();
  runs::StoreTotals<T>(args, layout, totals, group, part);
  fragment::MeetCluster();
}

}  // namespace jaxsparse
