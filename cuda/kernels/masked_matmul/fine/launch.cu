// Host side of the product with a fine mask: what it takes, its workspace, and its launches.
#include "cuda/kernels/masked_matmul/fine/launch.h"

#include <algorithm>
#include <limits>

#include "cuda/core/device.h"
#include "cuda/core/launch.h"
#include "cuda/core/stack_map.h"
#include "cuda/kernels/masked_matmul/fine/params.h"

namespace jaxsparse {
namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

bool IsAligned16(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

int64_t Slab(DType type) { return kFineSlabBytes / ElementBytes(type); }
int64_t PackLists(const MaskedMatmulArgs& a) { return std::max(a.a_lists, a.a_bits.lists); }

// Groups of 16 rows, times slabs, of everything that is packed.
int64_t GroupSlabs(const MaskedMatmulArgs& a) {
  return PackLists(a) * CeilDiv(a.rows, kFineRows) * kTileGroups *
         CeilDiv(a.depth, Slab(a.in_type));
}

// Bytes of the counts of steps, which come before the records.
int64_t StepsBytes(const MaskedMatmulArgs& a) { return CeilDiv(GroupSlabs(a), 1024) * 1024; }

FineParams MakeParams(const MaskedMatmulArgs& a) {
  FineParams p = {};
  p.lists = static_cast<int>(a.lists);
  p.rows = static_cast<int>(a.rows);
  p.depth = static_cast<int>(a.depth);
  p.columns = static_cast<int>(a.columns);
  p.a_lists = static_cast<int>(a.a_lists);
  p.b_lists = static_cast<int>(a.b_lists);
  p.pack_lists = static_cast<int>(PackLists(a));
  p.slabs = static_cast<int>(CeilDiv(a.depth, Slab(a.in_type)));
  p.row_tiles = static_cast<int>(CeilDiv(a.rows, kFineRows));
  p.column_tiles = static_cast<int>(CeilDiv(a.columns, kFineColumns));
  p.out_f32 = a.out_type == DType::kF32;
  p.bits = a.a_bits;
  p.a = a.a;
  p.out = a.out;
  p.steps = static_cast<uint8_t*>(a.scratch);
  p.records = static_cast<char*>(a.scratch) + StepsBytes(a);
  return p;
}

}  // namespace

const char* FineMatmulReason(const MaskedMatmulArgs& a) {
  const int64_t bytes = ElementBytes(a.in_type);
  if (!OnHopper()) return "the device is not of compute capability 9.0";
  if (a.in_type == DType::kF32 && a.highest) return "float32 products are asked for, not TF32";
  if (a.a_bits.words == nullptr || a.b_bits.words != nullptr || a.out_bits.words != nullptr) {
    return "fine products need a mask on a, and none on b or the result";
  }
  if (a.a_bits.is_bools) return "this variant takes a_words of u32";
  if (a.depth == 0) return "a has no columns";
  if (a.columns * bytes % 16 != 0) return "a row of b is not whole 16 bytes";
  if (!IsAligned16(a.b) || !IsAligned16(a.out) || !IsAligned16(a.scratch)) {
    return "an operand is not aligned to 16 bytes";
  }
  const int64_t tiles = CeilDiv(a.rows, kFineRows) * CeilDiv(a.columns, kFineColumns);
  if (a.rows > kMaxInt / 2 || a.depth > kFineMaxDepth || a.columns > kMaxInt / 2 ||
      tiles > kMaxInt / 2 / a.lists || GroupSlabs(a) > kMaxInt) {
    return "more than 2^30 rows, columns or tiles, 2^19 columns of a, or 2^31 slabs of all groups "
           "of 16 rows";
  }
  return nullptr;
}

int64_t FineMatmulScratchBytes(const MaskedMatmulArgs& a) {
  return StepsBytes(a) + GroupSlabs(a) * kFineSteps * kRecordBytes;
}

cudaError_t LaunchFineMatmul(const MaskedMatmulArgs& a, cudaStream_t stream) {
  if (FineMatmulReason(a) != nullptr || a.scratch_bytes < FineMatmulScratchBytes(a)) {
    return cudaErrorInvalidValue;
  }
  const FineParams p = MakeParams(a);
  const int bytes = ElementBytes(a.in_type);
  const CUtensorMapDataType kind = a.in_type == DType::kF32    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                                   : a.in_type == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                               : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  CUtensorMap b_map;
  cudaError_t status = EncodeStackMap(&b_map, kind, bytes, a.b, a.b_lists, a.depth, a.columns,
                                      kFineSlabBytes / bytes, 128 / bytes);
  if (status == cudaSuccess) status = LaunchFinePack(p, a.in_type, stream);
  return status == cudaSuccess ? LaunchFineProduct(p, a.in_type, b_map, stream) : status;
}

cudaError_t PrepareFineMatmul() {
  if (!OnHopper()) return cudaSuccess;
  const cudaError_t status = PrepareFinePack();
  return status == cudaSuccess ? PrepareFineProduct() : status;
}

}  // namespace jaxsparse
