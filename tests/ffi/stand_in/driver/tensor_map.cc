#include "tensor_map.h"

#include <cstdint>
#include <cstring>

#include "log.h"
#include "memory.h"

namespace stand_in {
namespace {

int BytesOf(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
      return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
      return 2;
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
      return 8;
    default:
      return 4;
  }
}

// The widest box of a swizzle, in bytes of its inner axis.
int64_t WidthOf(CUtensorMapSwizzle swizzle) {
  switch (swizzle) {
    case CU_TENSOR_MAP_SWIZZLE_32B:
      return 32;
    case CU_TENSOR_MAP_SWIZZLE_64B:
      return 64;
    case CU_TENSOR_MAP_SWIZZLE_NONE:
      return INT64_MAX;
    default:
      return 128;
  }
}

struct Tensor {
  cuuint32_t rank;
  int64_t element_bytes;
  const void* address;
  const cuuint64_t *sizes, *strides;
  const cuuint32_t *box, *steps;
  CUtensorMapSwizzle swizzle;
};

// What the driver refuses, or nullptr.
const char* Reason(const Tensor& t) {
  if (t.rank < 1 || t.rank > 5) return "the rank is not 1 to 5";
  if (reinterpret_cast<uintptr_t>(t.address) % 16 != 0) return "the address is not aligned";
  for (cuuint32_t i = 0; i < t.rank; ++i) {
    if (t.sizes[i] == 0 || t.sizes[i] > cuuint64_t{1} << 32) return "a size is not 1 to 2^32";
    if (t.box[i] == 0 || t.box[i] > 256) return "a side of the box is not 1 to 256";
    if (t.steps[i] == 0 || t.steps[i] > 8) return "a step is not 1 to 8";
    if (i + 1 == t.rank) break;
    if (t.strides[i] % 16 != 0 || t.strides[i] >= cuuint64_t{1} << 40) {
      return "a stride is not a multiple of 16 below 2^40";
    }
  }
  const int64_t width = t.box[0] * t.element_bytes;
  if (width % 16 != 0) return "the box's rows are not multiples of 16 bytes";
  if (width > WidthOf(t.swizzle)) return "the box is wider than the swizzle";
  return nullptr;
}

size_t BytesOf(const Tensor& t) {
  size_t bytes = t.sizes[0] * static_cast<size_t>(t.element_bytes);
  for (cuuint32_t i = 1; i < t.rank; ++i) bytes += (t.sizes[i] - 1) * t.strides[i - 1];
  return bytes;
}

}  // namespace

CUresult EncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                     const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                     const cuuint32_t* steps, CUtensorMapInterleave interleave,
                     CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  const Tensor tensor = {rank, BytesOf(type), address, sizes, strides, box, steps, swizzle};
  const char* reason = Reason(tensor);
  if (reason == nullptr && reinterpret_cast<uintptr_t>(map) % 64 != 0) {
    reason = "the map is not aligned";
  }
  if (reason == nullptr && interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) {
    reason = "the stand-in does not know interleaved layouts";
  }
  const auto begin = reinterpret_cast<uintptr_t>(address);
  if (reason == nullptr && Holding(begin, BytesOf(tensor)) == nullptr) {
    reason = "the tensor does not lie in a buffer";
  }
  if (reason != nullptr) {
    Fault("cuTensorMapEncodeTiled: %s", reason);
    return CUDA_ERROR_INVALID_VALUE;
  }
  memset(map, 0, sizeof(*map));
  memcpy(map, &address, sizeof(address));  // a launch looks at it
  return CUDA_SUCCESS;
}

}  // namespace stand_in
