// Block-sparse attention on the tensor cores of any device from sm_80 on: load -> S = Q K^T ->
// online softmax -> O += P V -> store, over the condensed units of the mask's lists.
//
// Floor:    4 * depth operations for every position of a listed block, at the rate of mma.sync.
// Tile:     64 or 128 queries, 16 or 32 a warp, by `Keys` keys; sums and probabilities in
// registers,
//           P as the left operand of the second product.
// Pipeline: one buffer for K and one for V: V arrives during Q K^T, the next K during the softmax
//           and P V. Two CTAs of a multiprocessor hide the rest.
// Grid:     a CTA for every tile of queries and head, the last queries first.
#pragma once

#include "cuda/kernels/sparse_attention/mma/finite.cuh"
#include "cuda/kernels/sparse_attention/mma/kernels.h"
#include "cuda/kernels/sparse_attention/mma/place.cuh"
#include "cuda/kernels/sparse_attention/mma/products.cuh"
#include "cuda/kernels/sparse_attention/mma/softmax.cuh"

namespace jaxsparse {

// Up to `Columns` of v_depth; 16 * Blocks rows a warp; `Resident`: CTAs of a multiprocessor.
template <class Type, int Columns, int Blocks, int Keys, int Window, int Resident>
struct ForwardConfig {
  using T = Type;
  static constexpr int kColumns = Columns, kBlocks = Blocks, kKeys = Keys, kResident = Resident;
  static constexpr int kWarps = 4, kThreads = 32 * kWarps, kRows = 16 * Blocks * kWarps;
  using Table = MaskTable<kRows / kMaskUnit, Window>;
  using Walk = MaskWalk<Table, kThreads, false>;

  static constexpr int SharedBytes(int depth, int v_depth) {
    const int panels = PanelsOf(depth * AttentionElement<T>::kBytes);
    const int v_panels = PanelsOf(v_depth * AttentionElement<T>::kBytes);
    return (kRows * panels + kKeys * (panels + v_panels)) * kPanelBytes +
           static_cast<int>(sizeof(Table));
  }
};

// What a warp computes: its rows of the tile.
template <class C>
class ForwardRows {
 public:
  using T = typename C::T;

  __device__ ForwardRows(const AttentionArgs& a, const AttentionPlace& place)
      : score_(a, place.batch, place.head),
        softmax_(score_.plain() ? a.scale * kLog2E : kLog2E),
        row_(place.first + threadIdx.x / 32 * 16 * C::kBlocks) {
#pragma unroll
    for (int i = 0; i < C::kBlocks; ++i) {
#pragma unroll
      for (int j = 0; j < C::kColumns / 8; ++j) {
#pragma unroll
        for (float& v : out_[i][j]) v = 0.0f;
      }
    }
  }

  __device__ __forceinline__ void Begin(const typename C::Walk& walk) { bits_.Begin(walk, row_); }

  __device__ __forceinline__ void FindBits(const typename C::Walk& walk, int tile) {
    bits_.Find(walk, tile);
  }

  __device__ __forceinline__ void MultiplyKeys(uint32_t q, uint32_t k, int panels) {
#pragma unroll
    for (int i = 0; i < C::kBlocks; ++i) {
#pragma unroll
      for (int j = 0; j < C::kKeys / 8; ++j) {
#pragma unroll
        for (float& v : sums_[i][j]) v = 0.0f;
      }
    }
    if (bits_.idle()) return;
    const uint32_t rows = q + threadIdx.x / 32 * 16 * C::kBlocks * kPanelBytes;
    MultiplyRows<T, C::kRows, C::kKeys>(sums_, rows, k, panels);
  }

  __device__ __forceinline__ void Softmax() {
    if (bits_.idle()) return;
    if (!score_.plain()) Rescore();
    if (!bits_.full()) Cut();
    softmax_.template Apply<C::kColumns>(sums_, out_);
  }

  // All threads.
  __device__ __forceinline__ void MultiplyValues(uint32_t v, int panels) {
    if (bits_.mixed()) {
      KeepFinite<T, C::kThreads, C::kColumns, C::kKeys>(out_, v, panels, bits_);
    }
    if (bits_.idle()) return;
    const LeftFragments<T, C::kKeys, C::kBlocks> left(sums_);
    MultiplyColumns<T, C::kColumns>(out_, left, v, panels);
  }

  __device__ __forceinline__ void Store(const AttentionArgs& a, const AttentionPlace& place) {
    float inverse[C::kBlocks][2], lse[C::kBlocks][2];
    softmax_.Finish(inverse, lse);
    const AttentionRows to =
        HeadRows<T>(a.out, place.batch, place.head, a.q_len, a.heads, a.v_depth);
    StoreRows<T, C::kColumns>(to, row_, a.v_depth, out_, inverse);
    if (a.lse == nullptr || threadIdx.x % 4 != 0) return;
    float* target = a.lse + (static_cast<int64_t>(place.batch) * a.heads + place.head) * a.q_len;
#pragma unroll
    for (int i = 0; i < 2 * C::kBlocks; ++i) {
      const int row = Row(i / 2, i % 2);
      if (row < a.q_len) target[row] = lse[i / 2][i % 2];
    }
  }

 private:
  __device__ __forceinline__ int Row(int i, int h) const {
    return row_ + i * 16 + threadIdx.x % 32 / 4 + h * 8;
  }

  __device__ __forceinline__ void Rescore() {
#pragma unroll
    for (int i = 0; i < C::kBlocks; ++i) {
#pragma unroll
      for (int j = 0; j < C::kKeys / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float derivative;
          sums_[i][j][e] = score_.Score(sums_[i][j][e], Row(i, e / 2), bits_.Column(j) + e % 2,
                                        bits_.Counts(i, j, e), &derivative);
        }
      }
    }
  }

  __device__ __forceinline__ void Cut() {
#pragma unroll
    for (int i = 0; i < C::kBlocks; ++i) {
#pragma unroll
      for (int j = 0; j < C::kKeys / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (!bits_.Counts(i, j, e)) sums_[i][j][e] = -INFINITY;
        }
      }
    }
  }

  AttentionScore<typename AttentionElement<T>::Storage> score_;
  OnlineSoftmax<C::kKeys, C::kBlocks> softmax_;
  MaskBits<C::kKeys, C::kBlocks, false> bits_;
  int row_;
  float sums_[C::kBlocks][C::kKeys / 8][4];  // products, then probabilities
  float out_[C::kBlocks][C::kColumns / 8][4];
};

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kResident)
    AttentionForwardKernel(const __grid_constant__ AttentionArgs a) {
  using T = typename C::T;
  extern __shared__ __align__(128) uint8_t raw[];
  const auto place = AttentionPlace::Of<true>(blockIdx.x, a.heads, a.q_len, C::kRows);
  const int kv_head = place.head / (a.heads / a.kv_heads);
  const AttentionRows q = HeadRows<T>(a.q, place.batch, place.head, a.q_len, a.heads, a.depth);
  const AttentionRows k = HeadRows<T>(a.k, place.batch, kv_head, a.kv_len, a.kv_heads, a.depth);
  const AttentionRows v = HeadRows<T>(a.v, place.batch, kv_head, a.kv_len, a.kv_heads, a.v_depth);
  const uint32_t q_tile = ptx::SharedAddress(raw);
  const uint32_t k_tile = q_tile + C::kRows * q.panels() * kPanelBytes;
  const uint32_t v_tile = k_tile + C::kKeys * k.panels() * kPanelBytes;
  auto& table = *reinterpret_cast<typename C::Table*>(raw + (v_tile - q_tile) +
                                                      C::kKeys * v.panels() * kPanelBytes);

  CopyTile<C::kThreads, C::kRows>(q_tile, q, place.first);
  typename C::Walk walk(a.mask, table, place.batch, place.head, place.first, C::kRows, a.q_len,
                        a.kv_len);
  ForwardRows<C> rows(a, place);
  rows.Begin(walk);
  while (walk.Next()) {
    const int tiles = (walk.units() * kMaskUnit + C::kKeys - 1) / C::kKeys;
    if (tiles > 0) CopyListed<C::kThreads, C::kKeys>(k_tile, k, walk, 0);
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      ptx::WaitForCopies();
      __syncthreads();  // K has landed, and V is free
      CopyListed<C::kThreads, C::kKeys>(v_tile, v, walk, tile);
      rows.FindBits(walk, tile);
      rows.MultiplyKeys(q_tile, k_tile, k.panels());
      ptx::WaitForCopies();
      __syncthreads();  // V has landed, and K is free
      if (tile + 1 < tiles) CopyListed<C::kThreads, C::kKeys>(k_tile, k, walk, tile + 1);
      rows.Softmax();
      rows.MultiplyValues(v_tile, v.panels());
    }
  }
  rows.Store(a, place);
}

template <class... Configs>
KernelList<ForwardKernel> ListForward() {
  static constexpr ForwardKernel kList[] = {{Configs::kColumns, Configs::kRows, Configs::kThreads,
                                             &Configs::SharedBytes,
                                             &AttentionForwardKernel<Configs>}...};
  return {kList, static_cast<int>(sizeof...(Configs))};
}

}  // namespace jaxsparse
