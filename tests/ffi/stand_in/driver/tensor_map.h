// The driver's encoder of tensor maps.
#pragma once

#include <cuda.h>

namespace stand_in {

// Replaces cuTensorMapEncodeTiled: checks what the driver checks, and that the tensor is in a
// buffer.
CUresult EncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                     const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                     const cuuint32_t* steps, CUtensorMapInterleave interleave,
                     CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                     CUtensorMapFloatOOBfill fill);

}  // namespace stand_in
