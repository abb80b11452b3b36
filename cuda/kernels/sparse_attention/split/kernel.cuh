// Attention of few queries over a long list of keys (decoding), from sm_80 on: the list is split,
// each split is a softmax of its own, and a second kernel adds up those of a list in their order.
//
// Floor:    the bytes of the listed keys and values, once for all query heads that read them.
// Tile:     16 or 32 rows (queries of all heads of a list), by strips of 16 keys; a warp takes
// every
//           fourth strip (or second) of a split.
// Pipeline: a ring for each warp, filled by its own cp.async: no barrier before the split is done.
// Grid:     a CTA for each split, list and tile of rows; the heads of a position next to each
// other.
#pragma once

#include <algorithm>

#include "cuda/kernels/sparse_attention/split/warp.cuh"

namespace jaxsparse {

// Up to `Columns` of depth and of v's; 16 * Blocks rows; `Resident`: CTAs of a multiprocessor.
template <class Type, int Columns, int Blocks, int Warps, int Resident>
struct SplitConfig {
  using T = Type;
  static constexpr int kColumns = Columns, kBlocks = Blocks, kWarps = Warps, kResident = Resident;
  static constexpr int kThreads = 32 * kWarps, kRows = 16 * kBlocks, kStages = 2;
  static constexpr int kSums = kBlocks * kColumns / 2;  // of a lane

  static constexpr int SharedBytes(int depth, int v_depth) {
    const int panels = PanelsOf(depth * AttentionElement<T>::kBytes);
    const int v_panels = PanelsOf(v_depth * AttentionElement<T>::kBytes);
    const int strips = kWarps * kStages * kMaskUnit * (panels + v_panels);
    const int merged = kWarps * (kSums * 32 + kRows) * static_cast<int>(sizeof(float));
    return std::max((kRows * panels + strips) * kPanelBytes, merged);
  }
};

// The rows of the tile, from everywhere in q.
template <class C>
__device__ __forceinline__ void LoadRows(const SplitArgs& args, uint32_t tile, int batch,
                                         int first_head, int first_row) {
  const AttentionArgs& a = args.attention;
  const int row_bytes = a.depth * AttentionElement<typename C::T>::kBytes;
  const int panels = PanelsOf(row_bytes), rows = args.pack * a.q_len;
  for (int i = threadIdx.x; i < C::kRows * panels * kPanelUnits; i += C::kThreads) {
    const int unit = i % kPanelUnits, panel = i / kPanelUnits % panels;
    const int r = i / kPanelUnits / panels, row = first_row + r;
    const int byte = panel * kPanelBytes + unit * kUnitBytes;
    const int head = first_head + row / a.q_len, query = row % a.q_len;
    const bool inside = row < rows && byte < row_bytes;
    const int64_t at = (static_cast<int64_t>(batch) * a.q_len + query) * a.heads + head;
    const char* source = static_cast<const char*>(a.q) + (inside ? at * row_bytes + byte : 0);
    ptx::CopyOrZero16(tile + panel * C::kRows * kPanelBytes + PanelAt(r, unit), source,
                      inside ? kUnitBytes : 0);
  }
}

// The warps' parts added up, each warp some groups of columns: to `out`, or to the split's partial
// result.
template <class C>
__device__ __forceinline__ void StoreMerged(const SplitArgs& args, const SplitWarp<C>& part,
                                            const SplitRows& rows,
                                            const float (&lse)[C::kBlocks][2], float* shared,
                                            int batch, int split, bool whole) {
  using Storage = typename AttentionElement<typename C::T>::Storage;
  const AttentionArgs& a = args.attention;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float* const sums = shared + C::kWarps * C::kRows;  // after the log-sum-exps
#pragma unroll
  for (int i = 0; i < C::kBlocks; ++i) {
#pragma unroll
    for (int j = 0; j < C::kColumns / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int at = (i * C::kColumns / 8 + j) * 4 + e;
        sums[(warp * C::kSums + at) * 32 + lane] = part.out(i, j, e);
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (lane % 4 == 0) shared[warp * C::kRows + 16 * i + lane / 4 + 8 * h] = lse[i][h];
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < C::kBlocks; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      PartWeights weights;
      float weight[C::kWarps];
#pragma unroll
      for (int w = 0; w < C::kWarps; ++w) {
        weight[w] = shared[w * C::kRows + 16 * i + lane / 4 + 8 * h];
        weights.Raise(weight[w]);
      }
#pragma unroll
      for (int w = 0; w < C::kWarps; ++w) {
        weight[w] = weights.Weight(weight[w]);
        weights.Add(weight[w]);
      }
      const auto [head, query, exists] = rows.At(i, h);
      if (!exists) continue;
      const int64_t line = (static_cast<int64_t>(batch) * a.heads + head) * a.q_len + query;
      const int64_t at = line + static_cast<int64_t>(split) * a.batch * a.heads * a.q_len;
      const int64_t row = (static_cast<int64_t>(batch) * a.q_len + query) * a.heads + head;
      if (warp == 0 && lane % 4 == 0) {
        if (!whole) {
          args.partial_lse[at] = weights.Lse();
        } else if (a.lse != nullptr) {
          a.lse[line] = weights.Lse();
        }
      }
      for (int j = warp; j < a.v_depth / 8; j += C::kWarps) {
        float pair[2] = {};
#pragma unroll
        for (int w = 0; w < C::kWarps; ++w) {
          const int from = w * C::kSums + (i * C::kColumns / 8 + j) * 4 + 2 * h;
#pragma unroll
          for (int e = 0; e < 2; ++e) pair[e] += weight[w] * sums[(from + e) * 32 + lane];
        }
#pragma unroll
        for (float& v : pair) v *= weights.Inverse();
        const int column = 8 * j + lane % 4 * 2;
        if (whole) {
          simt::StoreRounded(static_cast<Storage*>(a.out) + row * a.v_depth + column, pair);
        } else {
          *reinterpret_cast<float2*>(args.partial + at * a.v_depth + column) =
              make_float2(pair[0], pair[1]);
        }
      }
    }
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kResident)
    AttentionSplitKernel(const __grid_constant__ SplitArgs args) {
  extern __shared__ __align__(128) uint8_t raw[];
  const AttentionArgs& a = args.attention;
  const unsigned tile = blockIdx.x % args.tiles, rest = blockIdx.x / args.tiles;
  const int list = rest % args.lists, entry = rest / args.lists;
  const int batch = entry % a.batch, split = entry / a.batch;
  const int first_head = list * args.pack;
  const KeyStrips strips(args, batch, first_head);
  if (split >= strips.splits()) return;
  const int panels = PanelsOf(a.depth * AttentionElement<typename C::T>::kBytes);
  const int v_panels = PanelsOf(a.v_depth * AttentionElement<typename C::T>::kBytes);
  const uint32_t q = ptx::SharedAddress(raw), ring = q + C::kRows * panels * kPanelBytes;
  const int warp = threadIdx.x / 32;
  const uint32_t stages = warp * C::kStages * kMaskUnit * (panels + v_panels) * kPanelBytes;
  LoadRows<C>(args, q, batch, first_head, static_cast<int>(tile) * C::kRows);
  ptx::WaitForCopies();
  __syncthreads();
  const SplitRows rows = {args, first_head, static_cast<int>(tile) * C::kRows};
  SplitWarp<C> part(args, strips, rows, batch, first_head / (a.heads / a.kv_heads), q,
                    ring + stages);
  part.Run(strips.Begin(split) + warp, strips.Begin(split + 1), C::kWarps);
  float lse[C::kBlocks][2];
  part.Finish(lse);
  __syncthreads();  // the rings are free
  StoreMerged<C>(args, part, rows, lse, reinterpret_cast<float*>(raw), batch, split,
                 strips.splits() == 1);
}

template <class... Configs>
SplitKernels ListSplit() {
  static constexpr SplitKernel kList[] = {{Configs::kColumns, Configs::kRows, Configs::kThreads,
                                           &Configs::SharedBytes,
                                           &AttentionSplitKernel<Configs>}...};
  return {kList, static_cast<int>(sizeof...(Configs))};
}

// Of one element type.
template <class T>
SplitKernels AllSplit() {
  return ListSplit<SplitConfig<T, 64, 1, 4, 4>, SplitConfig<T, 64, 2, 4, 3>,
                   SplitConfig<T, 128, 1, 4, 3>, SplitConfig<T, 128, 2, 4, 2>,
                   SplitConfig<T, 256, 1, 2, 3>>();
}

}  // namespace jaxsparse
