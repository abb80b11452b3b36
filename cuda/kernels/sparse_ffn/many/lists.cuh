// Lists of what is not zero: of every eight rows of a matrix and 512 of its columns.
//
// Floor:  the bytes of the matrix.
// Tile:   a warp makes one list. A lane holds 16 columns of all eight rows, in two vectors of
// eight,
//         so that a column's remainder by 8 is a place in the lane, and a ballot has the columns of
//         one remainder.
// Order:  the products read the rows that are listed from shared memory, two or four of them in one
//         access, and a row's banks follow from its remainder by 4 (RowId). So the columns take
//         turns: a layer of the list has columns of the remainders 0, 1, 2, 3, the next one of 1,
//         0, 3, 2, as long as there are some left. Places that are four apart then differ in
//         parity.
#pragma once

#include "cuda/core/dtype.cuh"
#include "cuda/kernels/sparse_ffn/many/params.cuh"

namespace jaxsparse {

constexpr int kListWarps = 8;

// Eight rows of eight columns, two columns a word.
struct EightRows {
  uint32_t words[kListTokens][4];

  __device__ __forceinline__ void Put(int t, uint4 v) {
    words[t][0] = v.x;
    words[t][1] = v.y;
    words[t][2] = v.z;
    words[t][3] = v.w;
  }
  template <class T>
  __device__ __forceinline__ void Rectify() {
#pragma unroll
    for (int t = 0; t < kListTokens; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) words[t][i] = DTypeTraits<T>::Max(words[t][i], 0u);
    }
  }
  template <class T>
  __device__ __forceinline__ void Square() {
#pragma unroll
    for (int t = 0; t < kListTokens; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 v = DTypeTraits<T>::Unpack(words[t][i]);
        words[t][i] = DTypeTraits<T>::Pack(v.x * v.x, v.y * v.y);
      }
    }
  }
  // Entries that are not zero.
  __device__ __forceinline__ int NonZeros() const {
    uint32_t sums = 0;
#pragma unroll
    for (int t = 0; t < kListTokens; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums = CountNonZeros(words[t][i], sums);
    }
    const float2 halves = DTypeTraits<__half>::Unpack(sums);
    return static_cast<int>(halves.x + halves.y);
  }
  // Whether column `c` has one.
  __device__ __forceinline__ bool Active(int c) const {
    uint32_t any = 0;
#pragma unroll
    for (int t = 0; t < kListTokens; ++t) any |= words[t][c / 2];
    return (any & (c % 2 ? 0x7FFF0000u : 0x00007FFFu)) != 0;
  }
  // Column `c` of all rows.
  __device__ __forceinline__ uint4 Column(int c) const {
    const uint32_t half = c % 2 ? 0x7632u : 0x5410u;
    const int i = c / 2;
    return make_uint4(
        __byte_perm(words[0][i], words[1][i], half), __byte_perm(words[2][i], words[3][i], half),
        __byte_perm(words[4][i], words[5][i], half), __byte_perm(words[6][i], words[7][i], half));
  }
};

// A lane's columns of eight rows: from `column` on, and 256 further.
template <class T>
__device__ __forceinline__ void LoadRows(const ListArgs& a, int row, int column,
                                         EightRows (&to)[2]) {
  const T* from = static_cast<const T*>(a.a) + int64_t{row} * a.depth + column;
#pragma unroll
  for (int t = 0; t < kListTokens; ++t) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      uint4 v = make_uint4(0, 0, 0, 0);
      if (row + t < a.rows && column + h * 256 < a.depth) {
        v = __ldcs(reinterpret_cast<const uint4*>(from + h * 256));
      }
      to[h].Put(t, v);
    }
    from += a.depth;
  }
}

// The place of the column that is number `layer` of those with remainder `s`. `totals` says, a byte
// each, how many columns there are of each remainder: up to 128.
__device__ __forceinline__ int PlaceOf(uint32_t totals, int s, int layer) {
  // A byte is 1 where that remainder comes earlier in this layer.
  const uint32_t even = s == 0 ? 0u : s == 1 ? 0x00000001u : s == 2 ? 0x00000101u : 0x00010101u;
  const uint32_t odd = s == 0 ? 0x00000100u : s == 1 ? 0u : s == 2 ? 0x01000101u : 0x00000101u;
  const uint32_t most = static_cast<uint32_t>(layer) * 0x01010101u + (layer % 2 ? odd : even);
  return static_cast<int>(__dp4a(__vminu4(totals, most), 0x01010101u, 0u));
}

// A warp's list while it is made: columns by place, and the places of each layer, by remainder.
struct ListBuffer {
  uint4 columns[kListMost];
  uint16_t ids[kListMost];
  uint8_t places[kListMost][4];

  // Of layers that have a column, as long as one may have a place in the list.
  __device__ __forceinline__ void SetPlaces(uint32_t totals, int lane) {
    for (int layer = lane; layer < kListMost; layer += 32) {
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        places[layer][s] = static_cast<uint8_t>(min(PlaceOf(totals, s, layer), 255));
      }
      if (__vminu4(totals, (layer - lane + 32) * 0x01010101u) == totals) break;  // the warp's
    }
    __syncwarp();
  }
  // Fills the last block that is begun with zeros, beside a row that is listed anyway.
  __device__ __forceinline__ void Pad(int listed, int lane) {
    __syncwarp();
    const uint16_t listed_anyway = ids[0];
    __syncwarp();
    const int place = listed + lane;
    if (place < CeilBlocks(listed) * kListBlock) {
      columns[place] = make_uint4(0, 0, 0, 0);
      ids[place] = listed_anyway;
    }
    __syncwarp();
  }
  __device__ __forceinline__ void Store(const ListArgs& a, int64_t list, int listed,
                                        int lane) const {
    const uint16_t* const entries = reinterpret_cast<const uint16_t*>(columns);
    const int g = lane / 4, q = lane % 4;
    for (int block = 0; block < CeilBlocks(listed); ++block) {
      const int64_t at = list * kListBlocks + block;
      const auto pair = [&](int place) {
        const uint16_t* const low = entries + (block * kListBlock + place) * kListTokens + g;
        return low[0] | static_cast<uint32_t>(low[4 * kListTokens]) << 16;
      };
      static_cast<uint2*>(a.values)[at * 32 + lane] = make_uint2(pair(q), pair(8 + q));
      if (g == 0) {
        const uint16_t* const own = ids + block * kListBlock + q;
        reinterpret_cast<uint2*>(a.ids)[at * 4 + q] =
            make_uint2(own[0] | static_cast<uint32_t>(own[4]) << 16,
                       own[8] | static_cast<uint32_t>(own[12]) << 16);
      }
    }
  }

 private:
  static __device__ __forceinline__ int CeilBlocks(int listed) {
    return (listed + kListBlock - 1) / kListBlock;
  }
};

template <class T>
__global__ void __launch_bounds__(kListWarps * 32, 3)
    ListKernel(const ListArgs a, int chunks, int lists) {
  __shared__ ListBuffer buffers[kListWarps];
  const int lane = threadIdx.x % 32, list = blockIdx.x * kListWarps + threadIdx.x / 32;
  if (list >= lists) return;  // warps share nothing
  ListBuffer& buffer = buffers[threadIdx.x / 32];
  EightRows rows[2];
  uint32_t active[2][8], totals = 0;
  int nonzeros = 0;
  LoadRows<T>(a, list / chunks * kListTokens, list % chunks * kListChunk + lane * 8, rows);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (a.rectified) rows[h].template Rectify<T>();
    if (a.squared) rows[h].template Square<T>();
    nonzeros += rows[h].NonZeros();
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      active[h][c] = __ballot_sync(kWholeWarp, rows[h].Active(c));
      totals += static_cast<uint32_t>(__popc(active[h][c])) << (c % 4 * 8);
    }
  }
  buffer.SetPlaces(totals, lane);
  int before[4] = {};  // columns of a remainder that were placed
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      if (active[h][c] >> lane & 1) {
        const int layer = before[c % 4] + __popc(active[h][c] & ((1u << lane) - 1));
        const int place = buffer.places[layer][c % 4];
        if (place < kListMost) {
          buffer.columns[place] = rows[h].Column(c);
          buffer.ids[place] = static_cast<uint16_t>(RowId(h * 256 + lane * 8 + c));
        }
      }
      before[c % 4] += __popc(active[h][c]);
    }
  }
  const int found = static_cast<int>(__dp4a(totals, 0x01010101u, 0u));
  const int listed = min(found, kListMost);
  buffer.Pad(listed, lane);
  buffer.Store(a, list, listed, lane);
  nonzeros = __reduce_add_sync(kWholeWarp, nonzeros);
  if (lane == 0) reinterpret_cast<int2*>(a.counts)[list] = make_int2(found, nonzeros);
}

}  // namespace jaxsparse
