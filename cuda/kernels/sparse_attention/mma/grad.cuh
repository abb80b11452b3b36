// The gradients of block-sparse attention on the tensor cores of any device from sm_80 on. One
// kernel for both directions: a CTA keeps the rows of two arrays, X and Y, and walks over those of
// two others, Z and W:
//
//   rows are queries (dq)     X = q  Y = gout   Z = k  W = v      dq += dS Z
//   rows are keys (dk, dv)    X = k  Y = v      Z = q  W = gout   dk += dS Z   dv += P W
//
// with S = X Z^T, P = exp(score - lse), dP = Y W^T and dS = P (dP - delta), all of them transposed
// where the rows are keys. The query heads of a group are added up in the sums of their keys'
// CTA: no atomics, and a fixed order.
//
// Floor:    14 * depth operations for every position of a listed block: S and dP are computed in
//           both directions.
// Tile:     16 rows a warp by `Streamed` rows of Z and W; sums in registers.
// Pipeline: one or two stages of Z and W; all threads fill them by cp.async.
#pragma once

#include "cuda/kernels/sparse_attention/mma/finite.cuh"
#include "cuda/kernels/sparse_attention/mma/kernels.h"
#include "cuda/kernels/sparse_attention/mma/place.cuh"
#include "cuda/kernels/sparse_attention/mma/products.cuh"
#include "cuda/kernels/sparse_attention/mma/score.cuh"

namespace jaxsparse {

template <class Type, int Columns, int Warps, int Streamed, int Window, GradPart Which>
struct GradConfig {
  using T = Type;
  static constexpr GradPart kPart = Which;
  static constexpr int kColumns = Columns, kStreamed = Streamed;
  static constexpr int kThreads = 32 * Warps, kRows = 16 * Warps;
  static constexpr bool kKeyRows = Which != GradPart::kDq;
  static constexpr bool kFirst = Which != GradPart::kDv;  // the sums of dS Z
  static constexpr bool kSecond = Which == GradPart::kDv || Which == GradPart::kDkDv;  // of P W
  using Table = MaskTable<kRows / kMaskUnit, Window>;
  using Walk = MaskWalk<Table, kThreads, kKeyRows>;

  struct Shared {                                // in front of the tiles
    float lse[2][Streamed], delta[2][Streamed];  // of the streamed queries
    Table table;
  };
  static constexpr int kFixedBytes = (sizeof(Shared) + kPanelBytes - 1) / kPanelBytes * kPanelBytes;

  static constexpr int SharedBytes(int depth, int v_depth, int stages) {
    const int panels = PanelsOf(depth * AttentionElement<T>::kBytes) +
                       PanelsOf(v_depth * AttentionElement<T>::kBytes);
    return (kRows + Streamed * stages) * panels * kPanelBytes + kFixedBytes;
  }
};

// The arrays of one head in the roles of a direction.
struct GradArrays {
  AttentionRows x, y, z, w;
  const float *lse, *delta;  // of the head's queries
};

template <class T, bool KeyRows>
__device__ __forceinline__ GradArrays ArraysOf(const AttentionGradArgs& g, int batch, int head) {
  const AttentionArgs& a = g.forward;
  const int kv_head = head / (a.heads / a.kv_heads);
  const AttentionRows q = HeadRows<T>(a.q, batch, head, a.q_len, a.heads, a.depth);
  const AttentionRows gout = HeadRows<T>(g.gout, batch, head, a.q_len, a.heads, a.v_depth);
  const AttentionRows k = HeadRows<T>(a.k, batch, kv_head, a.kv_len, a.kv_heads, a.depth);
  const AttentionRows v = HeadRows<T>(a.v, batch, kv_head, a.kv_len, a.kv_heads, a.v_depth);
  const int64_t queries = (static_cast<int64_t>(batch) * a.heads + head) * a.q_len;
  if (KeyRows) return {k, v, q, gout, a.lse + queries, g.delta + queries};
  return {q, gout, k, v, a.lse + queries, g.delta + queries};
}

// What a warp computes: its rows of the tile.
template <class C>
class GradRows {
 public:
  using T = typename C::T;
  using Score = AttentionScore<typename AttentionElement<T>::Storage>;

  __device__ explicit GradRows(int first) : row_(first + threadIdx.x / 32 * 16) {
#pragma unroll
    for (int j = 0; j < C::kColumns / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) first_[0][j][e] = 0.0f, second_[0][j][e] = 0.0f;
    }
  }

  // The rows' own statistics, where they are queries.
  __device__ __forceinline__ void LoadRows(const GradArrays& arrays) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = Row(h);
      const bool exists = row < arrays.x.length;
      lse_[h] = exists ? __ldg(arrays.lse + row) : 0.0f;
      delta_[h] = exists ? __ldg(arrays.delta + row) : 0.0f;
    }
  }

  __device__ __forceinline__ void Begin(const typename C::Walk& walk) { bits_.Begin(walk, row_); }

  __device__ __forceinline__ void FindBits(const typename C::Walk& walk, int tile) {
    bits_.Find(walk, tile);
  }

  // P and dS of a tile. lse, delta: of its columns, in shared memory.
  __device__ __forceinline__ void Differentiate(const Score& score, const AttentionArgs& a,
                                                const uint32_t (&x)[2], const uint32_t (&z)[2],
                                                const int (&panels)[2], const float* lse,
                                                const float* delta) {
    Clear(p_);
    Clear(ds_);
    if (bits_.idle()) return;
    const uint32_t at = threadIdx.x / 32 * 16 * kPanelBytes;
    MultiplyRows<T, C::kRows, C::kStreamed>(p_, x[0] + at, z[0], panels[0]);
    if (C::kFirst) MultiplyRows<T, C::kRows, C::kStreamed>(ds_, x[1] + at, z[1], panels[1]);
    Subtract(delta);
    if (!score.plain()) Rescore(score);
    const float factor = score.plain() ? a.scale * kLog2E : kLog2E;
#pragma unroll
    for (int j = 0; j < C::kStreamed / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float sum = C::kKeyRows ? lse[Column(j, e)] : lse_[e / 2];
        const float base = sum == -INFINITY ? -INFINITY : -kLog2E * sum;  // kept scores are -inf
        const bool counts = bits_.full() || bits_.Counts(0, j, e);
        p_[0][j][e] = counts ? ptx::Exp2(fmaf(p_[0][j][e], factor, base)) : 0.0f;
        if (C::kFirst) ds_[0][j][e] = counts ? ds_[0][j][e] * p_[0][j][e] : 0.0f;
      }
    }
  }

  // Adds the products with a tile's rows. All threads.
  __device__ __forceinline__ void Multiply(const uint32_t (&z)[2], const int (&panels)[2]) {
    if constexpr (C::kFirst) MultiplyInto(first_, ds_, z[0], panels[0]);
    if constexpr (C::kSecond) MultiplyInto(second_, p_, z[1], panels[1]);
  }

  __device__ __forceinline__ void Store(const AttentionGradArgs& g, const AttentionPlace& place) {
    const AttentionArgs& a = g.forward;
    const int length = C::kKeyRows ? a.kv_len : a.q_len;
    const int heads = C::kKeyRows ? a.kv_heads : a.heads;
    const auto rows = [&](void* array, int depth) {
      return HeadRows<T>(array, place.batch, place.head, length, heads, depth);
    };
    if constexpr (C::kFirst) {
      const float factor[1][2] = {{a.scale, a.scale}};
      const AttentionRows to = rows(C::kKeyRows ? g.dk : g.dq, a.depth);
      StoreRows<T, C::kColumns>(to, row_, a.depth, first_, factor);
    }
    if constexpr (C::kSecond) {
      const float factor[1][2] = {{1.0f, 1.0f}};
      StoreRows<T, C::kColumns>(rows(g.dv, a.v_depth), row_, a.v_depth, second_, factor);
    }
  }

 private:
  using Sums = float[1][C::kColumns / 8][4];
  using Tile = float[1][C::kStreamed / 8][4];

  __device__ __forceinline__ int Row(int h) const { return row_ + threadIdx.x % 32 / 4 + h * 8; }

  __device__ __forceinline__ static int Column(int j, int e) {
    return j * 8 + threadIdx.x % 4 * 2 + e % 2;
  }

  // dP - delta.
  __device__ __forceinline__ void Subtract(const float* delta) {
#pragma unroll
    for (int j = 0; C::kFirst && j < C::kStreamed / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        ds_[0][j][e] -= C::kKeyRows ? delta[Column(j, e)] : delta_[e / 2];
      }
    }
  }

  // Scores of products, and their derivative as a factor of dS.
  __device__ __forceinline__ void Rescore(const Score& score) {
#pragma unroll
    for (int j = 0; j < C::kStreamed / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = Row(e / 2), column = bits_.Column(j) + e % 2;
        float derivative;
        p_[0][j][e] = score.Score(p_[0][j][e], C::kKeyRows ? column : row,
                                  C::kKeyRows ? row : column, bits_.Counts(0, j, e), &derivative);
        ds_[0][j][e] *= derivative;
      }
    }
  }

  __device__ __forceinline__ static void Clear(Tile& tile) {
#pragma unroll
    for (int j = 0; j < C::kStreamed / 8; ++j) {
#pragma unroll
      for (float& v : tile[0][j]) v = 0.0f;
    }
  }

  __device__ __forceinline__ void MultiplyInto(Sums& sums, const Tile& tile, uint32_t rows,
                                               int panels) {
    if (bits_.mixed()) {
      KeepFinite<T, C::kThreads, C::kColumns, C::kStreamed>(sums, rows, panels, bits_);
    }
    if (bits_.idle()) return;
    const LeftFragments<T, C::kStreamed, 1> left(tile);
    MultiplyColumns<T, C::kColumns>(sums, left, rows, panels);
  }

  MaskBits<C::kStreamed, 1, C::kKeyRows> bits_;
  int row_;
  float lse_[2], delta_[2];
  Tile p_, ds_;
  Sums first_, second_;
};

// Where a CTA's tiles lie in shared memory: X and Y, then the stages of Z and W.
template <class C>
class GradTiles {
 public:
  __device__ GradTiles(typename C::Shared& shared, const GradArrays& arrays)
      : panels{arrays.x.panels(), arrays.y.panels()}, shared_(shared) {
    const uint32_t base = ptx::SharedAddress(&shared) + C::kFixedBytes;
    x[0] = base;
    x[1] = x[0] + C::kRows * panels[0] * kPanelBytes;
    ring_ = x[1] + C::kRows * panels[1] * kPanelBytes;
  }

  __device__ __forceinline__ void Stage(int stage, uint32_t (&z)[2]) const {
    z[0] = ring_ + stage * C::kStreamed * (panels[0] + panels[1]) * kPanelBytes;
    z[1] = z[0] + C::kStreamed * panels[0] * kPanelBytes;
  }

  // The rows of Z and W, and where they are queries their statistics.
  __device__ __forceinline__ void Fill(int stage, const GradArrays& arrays,
                                       const typename C::Walk& walk, int tile) const {
    uint32_t z[2];
    Stage(stage, z);
    CopyListed<C::kThreads, C::kStreamed>(z[0], arrays.z, walk, tile);
    CopyListed<C::kThreads, C::kStreamed>(z[1], arrays.w, walk, tile);
    if (!C::kKeyRows || threadIdx.x >= C::kStreamed) return;
    const int unit = tile * (C::kStreamed / kMaskUnit) + threadIdx.x / kMaskUnit;
    const int query = walk.Unit(unit).start + threadIdx.x % kMaskUnit;
    if (query >= arrays.z.length) return;  // its columns do not count
    ptx::CopyAsync4(ptx::SharedAddress(shared_.lse[stage] + threadIdx.x), arrays.lse + query);
    ptx::CopyAsync4(ptx::SharedAddress(shared_.delta[stage] + threadIdx.x), arrays.delta + query);
  }

  uint32_t x[2];
  int panels[2];

 private:
  typename C::Shared& shared_;
  uint32_t ring_;
};

template <class C>
__global__ void __launch_bounds__(C::kThreads, 2)
    AttentionGradKernel(const __grid_constant__ AttentionGradArgs g, int stages) {
  using T = typename C::T;
  extern __shared__ __align__(128) uint8_t raw[];
  const AttentionArgs& a = g.forward;
  auto& shared = *reinterpret_cast<typename C::Shared*>(raw);
  const int length = C::kKeyRows ? a.kv_len : a.q_len, others = C::kKeyRows ? a.q_len : a.kv_len;
  const auto place = AttentionPlace::Of<!C::kKeyRows>(
      blockIdx.x, C::kKeyRows ? a.kv_heads : a.heads, length, C::kRows);
  const int group = C::kKeyRows ? a.heads / a.kv_heads : 1;
  GradArrays arrays = ArraysOf<T, C::kKeyRows>(g, place.batch, place.head * group);
  const GradTiles<C> tiles(shared, arrays);
  CopyTile<C::kThreads, C::kRows>(tiles.x[0], arrays.x, place.first);
  if (C::kFirst) CopyTile<C::kThreads, C::kRows>(tiles.x[1], arrays.y, place.first);
  GradRows<C> rows(place.first);
  if (!C::kKeyRows) rows.LoadRows(arrays);
#pragma unroll 1
  for (int head = place.head * group; head < (place.head + 1) * group; ++head) {
    arrays = ArraysOf<T, C::kKeyRows>(g, place.batch, head);
    const typename GradRows<C>::Score score(a, place.batch, head);
    typename C::Walk walk(C::kKeyRows ? g.transposed : a.mask, shared.table, place.batch, head,
                          place.first, C::kRows, length, others);
    rows.Begin(walk);
    while (walk.Next()) {
      const int count = (walk.units() * kMaskUnit + C::kStreamed - 1) / C::kStreamed;
      if (count > 0) tiles.Fill(0, arrays, walk, 0);
#pragma unroll 1
      for (int tile = 0; tile < count; ++tile) {
        const int stage = stages == 2 ? tile % 2 : 0;
        uint32_t z[2];
        tiles.Stage(stage, z);
        ptx::WaitForCopies();
        __syncthreads();  // this stage has landed, and the other one is free
        if (stages == 2 && tile + 1 < count) tiles.Fill(1 - stage, arrays, walk, tile + 1);
        rows.FindBits(walk, tile);
        rows.Differentiate(score, a, tiles.x, z, tiles.panels, shared.lse[stage],
                           shared.delta[stage]);
        rows.Multiply(z, tiles.panels);
        if (stages == 2 || tile + 1 == count) continue;
        __syncthreads();  // the stage is free
        tiles.Fill(0, arrays, walk, tile + 1);
      }
    }
  }
  rows.Store(g, place);
}

template <class... Configs>
KernelList<GradKernel> ListGrad() {
  static constexpr GradKernel kList[] = {{Configs::kPart, Configs::kColumns, Configs::kRows,
                                          Configs::kThreads, &Configs::SharedBytes,
                                          &AttentionGradKernel<Configs>}...};
  return {kList, static_cast<int>(sizeof...(Configs))};
}

}  // namespace jaxsparse
