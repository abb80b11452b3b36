// Combine: a row of the result is the sum of its sorted rows, in ascending order and in float32: no
// atomics, the same result every time.
//
// Floor: every sorted row read once, the result written once, at 4.3 TB/s or from L2.
// Tile:  a warp sums 512 bytes of one row, two or four sorted rows at once, and asks for the slots
//        of its next row meanwhile. The slots name a row's sorted rows in any order; the warp puts
//        them in order first. A row with more sorted rows than slots is looked for in the whole
//        list: at most sorted_rows / capacity rows can be like that.
// Measured (H200): 65536 rows of 2048 bf16 into 8192 75 us (floor 70); 4096 rows of 3072 into 2048
//        13 us (9), 9 where they are in L2, into 4096 18 us (12); 8192 rows of 14336 into 4096 89
//        us (82).
#include "cuda/kernels/grouped_matmul/combine.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <type_traits>

#include "cuda/core/device.h"
#include "cuda/core/launch.h"

namespace jaxsparse {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kRounds = 3;  // rows of a warp, one after the other, about
template <int Ahead>
constexpr int kBlocks = Ahead == 2 ? 6 : 5;  // a multiprocessor

__device__ float ToFloat(float v) { return v; }
__device__ float ToFloat(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ float ToFloat(__half v) { return __half2float(v); }
__device__ void FromFloat(float v, float* out) { *out = v; }
__device__ void FromFloat(float v, __nv_bfloat16* out) { *out = __float2bfloat16(v); }
__device__ void FromFloat(float v, __half* out) { *out = __float2half(v); }

// `Width` elements that move together.
template <typename U, int Width>
struct alignas(sizeof(U) * Width) Piece {
  U v[Width];
};

// `Width` elements of a row of the result, the sum of `Ahead` sorted rows at once.
template <typename U, int Width, int Ahead>
class RowSum {
 public:
  static constexpr int kAhead = Ahead;
  using P = Piece<U, Width>;
  // What is loaded waits as it came: elements of 16 bits would take a register each.
  using Raw = std::conditional_t<sizeof(P) == 16, uint4, P>;

  __device__ RowSum(const CombineRequest& r, int64_t column)
      : r_(r), column_(column), inside_(column < r.outputs) {}

  // Adds `count` rows in this order; the loads go out together.
  __device__ void Add(const int (&rows)[kAhead], int count) {
    Raw raw[kAhead];
#pragma unroll
    for (int r = 0; r < kAhead; ++r) {
      const U* source = static_cast<const U*>(r_.rows) + rows[r] * r_.outputs + column_;
      raw[r] = Raw{};
      if (r < count && inside_) raw[r] = *reinterpret_cast<const Raw*>(source);
    }
#pragma unroll
    for (int r = 0; r < kAhead; ++r) {
      const P piece = *reinterpret_cast<const P*>(&raw[r]);
#pragma unroll
      for (int e = 0; e < Width; ++e) sum_[e] += ToFloat(piece.v[e]);
    }
  }

  __device__ void Store(int64_t row) const {
    if (!inside_) return;
    P piece;
#pragma unroll
    for (int e = 0; e < Width; ++e) FromFloat(sum_[e], &piece.v[e]);
    *reinterpret_cast<P*>(static_cast<U*>(r_.out) + row * r_.outputs + column_) = piece;
  }

 private:
  const CombineRequest& r_;
  int64_t column_;
  bool inside_;
  float sum_[Width] = {};
};

// Lane i of the result is the i-th smallest of the first `count` slots.
__device__ int SortSlots(int slot, int count) {
  const int lane = threadIdx.x % 32;
  int mine = lane < count ? slot : INT32_MAX, sorted = 0;
  for (int i = 0; i < count; ++i) {
    const int least = __reduce_min_sync(0xFFFFFFFFu, mine);
    if (lane == i) sorted = least;
    if (mine == least) mine = INT32_MAX;
  }
  return sorted;
}

template <class Sum>
__device__ void AddSorted(int sorted, int count, Sum& sum) {
  for (int first = 0; first < count; first += Sum::kAhead) {
    int rows[Sum::kAhead];
#pragma unroll
    for (int i = 0; i < Sum::kAhead; ++i) {
      rows[i] = __shfl_sync(0xFFFFFFFFu, sorted, (first + i) % 32);
    }
    sum.Add(rows, count - first);
  }
}

// How many sorted rows a group owns, summed up by a warp.
__device__ int OwnedRows(const CombineRequest& r) {
  long long rows = 0;
  for (int g = threadIdx.x % 32; g < r.groups; g += 32) rows += max(r.sizes[g], 0);
  for (int d = 16; d > 0; d /= 2) rows += __shfl_xor_sync(0xFFFFFFFFu, rows, d);
  return static_cast<int>(min(rows, static_cast<long long>(r.sorted_rows)));
}

template <class Sum>
__device__ void AddFound(const CombineRequest& r, int64_t row, Sum& sum) {
  const int lane = threadIdx.x % 32, owned = OwnedRows(r);
  for (int64_t first = 0; first < owned; first += 32) {
    const int i = static_cast<int>(first) + lane;
    const bool is_ours = first + lane < owned && r.slots.scatter[i] == row && r.lhs.Find(i) >= 0;
    for (uint32_t left = __ballot_sync(0xFFFFFFFFu, is_ours); left != 0; left &= left - 1) {
      const int rows[Sum::kAhead] = {static_cast<int>(first) + __ffs(left) - 1};
      sum.Add(rows, 1);
    }
  }
}

// A row's slots, one a lane, and how many rows were announced.
struct RowSlots {
  int count = 0, slot = 0;

  __device__ void Ask(const CombineRequest& r, int64_t row) {
    if (row >= r.out_rows) return;
    const int lane = threadIdx.x % 32, capacity = r.slots.capacity;
    count = r.slots.counts[row];
    slot = lane < capacity ? r.slots.slots[row * capacity + lane] : 0;
  }
};

// Blocks side by side share rows: blockIdx.x says which 32 * Width columns.
template <typename U, int Width, int Ahead>
__global__ void __launch_bounds__(kThreads, kBlocks<Ahead>)
    CombineKernel(const __grid_constant__ CombineRequest r) {
  const int64_t column = (int64_t{blockIdx.x} * 32 + threadIdx.x % 32) * Width;
  const int64_t step = int64_t{gridDim.y} * kWarps;
  int64_t row = int64_t{blockIdx.y} * kWarps + threadIdx.x / 32;
  RowSlots next;
  next.Ask(r, row);
  for (; row < r.out_rows; row += step) {
    const RowSlots here = next;
    next.Ask(r, row + step);
    RowSum<U, Width, Ahead> sum(r, column);
    if (here.count <= r.slots.capacity) {
      AddSorted(SortSlots(here.slot, here.count), here.count, sum);
    } else {
      AddFound(r, row, sum);
    }
    sum.Store(row);
  }
}

template <typename U, int Width, int Ahead>
cudaError_t LaunchAs(const CombineRequest& r, cudaStream_t stream) {
  const int64_t parts = CeilDiv(r.outputs, 32 * Width), blocks = CeilDiv(r.out_rows, kWarps);
  const int64_t most = std::max<int64_t>(MultiProcessors() * kBlocks<Ahead> * kRounds / parts, 1);
  const dim3 grid(static_cast<unsigned>(parts), static_cast<unsigned>(std::min(blocks, most)));
  CombineKernel<U, Width, Ahead><<<grid, kThreads, 0, stream>>>(r);
  return cudaGetLastError();
}

template <typename U, int Width>
cudaError_t Launch(const CombineRequest& r, cudaStream_t stream) {
  return r.sorted_rows <= 2 * r.out_rows ? LaunchAs<U, Width, 2>(r, stream)
                                         : LaunchAs<U, Width, 4>(r, stream);
}

}  // namespace

cudaError_t LaunchCombine(const CombineRequest& r, cudaStream_t stream) {
  if (r.out_rows == 0 || r.outputs == 0) return cudaSuccess;
  const bool vectors = r.outputs * (r.type == DType::kF32 ? 4 : 2) % 16 == 0;
  switch (r.type) {
    case DType::kF32:
      return vectors ? Launch<float, 4>(r, stream) : Launch<float, 1>(r, stream);
    case DType::kBF16:
      return vectors ? Launch<__nv_bfloat16, 8>(r, stream) : Launch<__nv_bfloat16, 1>(r, stream);
    case DType::kF16:
      return vectors ? Launch<__half, 8>(r, stream) : Launch<__half, 1>(r, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace jaxsparse
