// Condenses `a` along K, for 16 rows and a slab of K at a time: lists the columns that at least one
// of the rows keeps, and packs the entries there as the tensor cores take them.
//
// The order of K is free. Columns have 8 kinds (4 in float32) by the banks of shared memory in
// which their rows of `b` lie, and half a step, 8 of them (4), is read at once. So columns are
// sorted by kind and dealt out to the halves one by one: those of a kind come to different halves.
//
// Floor: the mask's bits and the kept entries of `a` once, as many bytes written. A warp a slab of
//        a group; entries are picked one by one from 16 rows of 512 bytes.
#include "cuda/core/launch.h"
#include "cuda/core/overlap.cuh"
#include "cuda/core/wgmma/tf32.cuh"
#include "cuda/kernels/masked_matmul/bits.cuh"
#include "cuda/kernels/masked_matmul/fine/params.h"

namespace jaxsparse {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;

// U: what holds an element, uint16_t or uint32_t.
template <typename U>
struct PackShape {
  static constexpr int kSlab = kFineSlabBytes / sizeof(U), kStep = kFineStepBytes / sizeof(U);
  static constexpr int kWords = kSlab / 32;
  static constexpr int kKinds = sizeof(U) == 2 ? 8 : 4;
  static constexpr int kHalf = kStep / 2;
  __device__ static int KindOf(int column) { return column * kKinds / 8 % kKinds; }
  // Of 32 columns, those of a kind.
  __device__ static uint32_t OfKind(int kind) {
    return kKinds == 8 ? 0x01010101u << kind : 0x03030303u << (2 * kind);
  }
};

template <typename U>
struct PackShared {
  uint32_t kept[kGroupRows][PackShape<U>::kWords];
  alignas(4) uint8_t list[PackShape<U>::kSlab];
};

// Which of the columns k to k + 31 the mask keeps in a row.
__device__ __forceinline__ uint32_t KeptWord(const FineParams& p, int64_t list, int row, int k) {
  if (row >= p.rows || k >= p.depth) return 0;
  const uint32_t* words = MaskRow(p.bits, list, row);
  const uint32_t inside = p.depth - k >= 32 ? ~0u : (1u << (p.depth - k)) - 1;
  if (p.bits.col_size == 1) return __ldg(words + k / 32) & inside;
  const auto size = static_cast<uint32_t>(p.bits.col_size);
  uint32_t block = static_cast<uint32_t>(k) / size, left = (block + 1) * size - k, kept = 0;
  for (uint32_t at = 0; at < 32; ++block, left = size) {
    const uint32_t some = min(left, 32 - at);
    if (HasBlock(words, block)) kept |= (some == 32 ? ~0u : (1u << some) - 1) << at;
    at += some;
    if (at < 32 && k + at >= static_cast<uint32_t>(p.depth)) break;
  }
  return kept & inside;
}

// Halves of steps that so many columns are dealt out to.
template <typename U>
__device__ __forceinline__ uint32_t Halves(int count) {
  return 2 * ((count + PackShape<U>::kStep - 1) / PackShape<U>::kStep);
}

// Whether a place in the list is that of a column.
template <typename U>
__device__ __forceinline__ bool IsListed(uint32_t place, int count) {
  constexpr int kHalf = PackShape<U>::kHalf;
  return place % kHalf * Halves<U>(count) + place / kHalf < static_cast<uint32_t>(count);
}

// Lists the columns of `all`; returns how many there are. All lanes of a warp call this.
template <typename U>
__device__ __forceinline__ int ListColumns(const uint32_t (&all)[PackShape<U>::kWords],
                                           uint8_t* list) {
  using Shape = PackShape<U>;
  const int lane = threadIdx.x % 32, kind = Shape::KindOf(lane);
  int mine = 0;  // of the kind lane % kKinds
#pragma unroll
  for (int w = 0; w < Shape::kWords; ++w)
    mine += __popc(all[w] & Shape::OfKind(lane % Shape::kKinds));
  int totals[Shape::kKinds], count = 0;
#pragma unroll
  for (int i = 0; i < Shape::kKinds; ++i) {
    totals[i] = __shfl_sync(~0u, mine, i);
    count += totals[i];
  }
  int before = 0;  // of lower kinds, and of the lane's kind in earlier words
#pragma unroll
  for (int i = 0; i < Shape::kKinds; ++i) before += i < kind ? totals[i] : 0;
  const uint32_t halves = Halves<U>(count);
#pragma unroll
  for (int w = 0; w < Shape::kWords; ++w) {
    const uint32_t same = all[w] & Shape::OfKind(kind);
    if ((all[w] >> lane) & 1) {
      const uint32_t at = before + __popc(same & ((1u << lane) - 1));
      list[at % halves * Shape::kHalf + at / halves] = static_cast<uint8_t>(32 * w + lane);
    }
    before += __popc(same);
  }
  __syncwarp();
  // What fills a half up is a row of `b` that it reads anyhow, multiplied by zero.
  for (uint32_t i = lane; i < halves * Shape::kHalf; i += 32) {
    const uint32_t half = i / Shape::kHalf;
    const uint32_t from = half < static_cast<uint32_t>(count) ? half * Shape::kHalf : 0;
    if (!IsListed<U>(i, count)) list[i] = list[from];
  }
  __syncwarp();
  return count;
}

// This lane's part of a step: 16 bits of row lane / 4 at columns 2 * (lane % 4), the next, and the
// same 8 further, then of the row 8 further; 32 bits at lane % 4 and 4 further.
template <typename U>
__device__ __forceinline__ uint4 PackStep(const PackShared<U>& s, const U* row, int64_t depth,
                                          int step, int count) {
  using Shape = PackShape<U>;
  constexpr int kEach = 4 / sizeof(U);
  const int lane = threadIdx.x % 32;
  uint32_t v[2][2] = {};
#pragma unroll
  for (int far = 0; far < 2; ++far) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int at = step * Shape::kStep + far * Shape::kHalf + kEach * (lane % 4) + i;
      const int column = s.list[at];
      if (!IsListed<U>(at, count)) continue;
#pragma unroll
      for (int lower = 0; lower < 2; ++lower) {
        // What is outside of the matrix is not kept.
        if (((s.kept[lane / 4 + 8 * lower][column / 32] >> (column % 32)) & 1) == 0) continue;
        const uint32_t entry = __ldg(row + 8 * lower * depth + column);
        v[lower][far] |=
            sizeof(U) == 2 ? entry << (16 * i) : ptx::RoundToTF32(__uint_as_float(entry));
      }
    }
  }
  return make_uint4(v[0][0], v[0][1], v[1][0], v[1][1]);
}

template <typename U>
__global__ void __launch_bounds__(kThreads) FinePackKernel(const __grid_constant__ FineParams p) {
  using Shape = PackShape<U>;
  __shared__ PackShared<U> shared[kWarps];
  LetNextStart();
  WaitForPrevious();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  PackShared<U>& s = shared[warp];
  const int64_t item = int64_t{blockIdx.x} * kWarps + warp;
  const int64_t groups = int64_t{p.row_tiles} * kTileGroups;
  if (item >= p.pack_lists * groups * p.slabs) return;
  const int slab = static_cast<int>(item % p.slabs);
  const int64_t group = item / p.slabs, list = group / groups;
  const int row = static_cast<int>(group - list * groups) * kGroupRows, first = slab * Shape::kSlab;
  for (int i = lane; i < kGroupRows * Shape::kWords; i += 32) {
    const int in_group = i / Shape::kWords, word = i % Shape::kWords;
    s.kept[in_group][word] = KeptWord(p, list, row + in_group, first + 32 * word);
  }
  __syncwarp();
  uint32_t all[Shape::kWords];
#pragma unroll
  for (int w = 0; w < Shape::kWords; ++w) {
    all[w] = 0;
#pragma unroll
    for (int i = 0; i < kGroupRows; ++i) all[w] |= s.kept[i][w];
  }
  const int count = ListColumns<U>(all, s.list);
  const int steps = static_cast<int>(Halves<U>(count)) / 2;
  const int64_t tile = group / kTileGroups;
  if (lane == 0) {
    p.steps[(tile * p.slabs + slab) * kTileGroups + group % kTileGroups] =
        static_cast<uint8_t>(steps);
  }

  const U* from = static_cast<const U*>(p.a) + first +
                  ((p.a_lists == 1 ? 0 : list) * p.rows + row + lane / 4) * int64_t{p.depth};
  char* record = p.records + item * kFineSteps * kRecordBytes;
  for (int step = 0; step < steps; ++step, record += kRecordBytes) {
    reinterpret_cast<uint4*>(record)[lane] = PackStep<U>(s, from, p.depth, step, count);
    if (lane < kListBytes / 4) {
      const auto* columns = reinterpret_cast<const uint32_t*>(s.list + step * Shape::kStep);
      reinterpret_cast<uint32_t*>(record + kFragmentBytes)[lane] =
          lane < Shape::kStep / 4 ? columns[lane] : 0;
    }
  }
}

template <typename U>
cudaError_t Launch(const FineParams& p, cudaStream_t stream) {
  const int64_t warps = int64_t{p.pack_lists} * p.row_tiles * kTileGroups * p.slabs;
  return LaunchOverlapped(&FinePackKernel<U>, dim3(static_cast<unsigned>(CeilDiv(warps, kWarps))),
                          kThreads, 0, stream, p);
}

}  // namespace

cudaError_t LaunchFinePack(const FineParams& p, DType type, cudaStream_t stream) {
  return type == DType::kF32 ? Launch<uint32_t>(p, stream) : Launch<uint16_t>(p, stream);
}

cudaError_t PrepareFinePack() {
  const cudaError_t status = PrepareKernel(&FinePackKernel<uint32_t>, 0);
  return status == cudaSuccess ? PrepareKernel(&FinePackKernel<uint16_t>, 0) : status;
}

}  // namespace jaxsparse
