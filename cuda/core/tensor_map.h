// Host side of TMA: tensor maps of row-major matrices. The driver's encoder is looked up at run
// time: nothing links libcuda.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace jaxsparse {

// The driver's encoder, or nullptr.
inline PFN_cuTensorMapEncodeTiled_v12000 TensorMapEncoder() {
  static const auto encode = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry,
                                                                12000, cudaEnableDefault, &found);
    const bool ok = status == cudaSuccess && found == cudaDriverEntryPointSuccess;
    return ok ? reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(entry) : nullptr;
  }();
  return encode;
}

// A map of a row-major [rows, columns] matrix, loaded in boxes of [box_rows, box_columns] whose
// rows are 128 bytes and arrive with the 128-byte swizzle. `base` is 16-byte aligned and so is
// every row.
inline cudaError_t EncodeMatrixMap(CUtensorMap* map, CUtensorMapDataType type, int element_bytes,
                                   const void* base, int64_t rows, int64_t columns, int box_rows,
                                   int box_columns) {
  const auto encode = TensorMapEncoder();
  if (encode == nullptr) return cudaErrorNotSupported;
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(columns) * element_bytes};
  const cuuint32_t box[2] = {static_cast<cuuint32_t>(box_columns),
                             static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[2] = {1, 1};
  const CUresult result =
      encode(map, type, 2, const_cast<void*>(base), sizes, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

struct ImageBox {
  int height, width;       // pixels that arrive
  int stride_h, stride_w;  // between them, in the image
  int row_bytes;           // of channels: 128 or 64
};

// A map of an image tensor [batch, height, width, channels], loaded in boxes of row_bytes of
// channels of box.height x box.width pixels, one pixel a row, with the swizzle of the row's width.
inline cudaError_t EncodeImageMap(CUtensorMap* map, CUtensorMapDataType type, int element_bytes,
                                  const void* base, const int64_t (&shape)[4],
                                  const ImageBox& box) {
  const auto encode = TensorMapEncoder();
  if (encode == nullptr) return cudaErrorNotSupported;
  cuuint64_t sizes[4], strides[3];
  for (int i = 0; i < 4; ++i) sizes[i] = static_cast<cuuint64_t>(shape[3 - i]);
  strides[0] = sizes[0] * element_bytes;
  for (int i = 1; i < 3; ++i) strides[i] = strides[i - 1] * sizes[i];
  const cuuint32_t steps[4] = {1, static_cast<cuuint32_t>(box.stride_w),
                               static_cast<cuuint32_t>(box.stride_h), 1};
  const cuuint32_t spans[4] = {static_cast<cuuint32_t>(box.row_bytes / element_bytes),
                               static_cast<cuuint32_t>((box.width - 1) * box.stride_w + 1),
                               static_cast<cuuint32_t>((box.height - 1) * box.stride_h + 1), 1};
  const auto swizzle = box.row_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B;
  const CUresult result =
      encode(map, type, 4, const_cast<void*>(base), sizes, strides, spans, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace jaxsparse
