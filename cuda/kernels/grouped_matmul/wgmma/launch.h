// Launchers of the grouped products on Hopper's tensor cores. Rows are the tensor-core rows of
// variants/grouped_matmul.toml, from 0: a variant's number less 16.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/kernels/grouped_matmul/args.h"

namespace jaxsparse {

// The attribute `variant` of row 0; below it is 0, the kernel on CUDA cores.
constexpr int64_t kFirstGroupedRow = 16;

// Why row `variant_row` cannot run this problem on the current device, or nullptr when it can.
const char* GroupedWgmmaReason(const GroupedMatmulArgs& args, int variant_row);

// Workspace in bytes, of shapes, types and flags alone.
int64_t GroupedWgmmaScratchBytes(const GroupedMatmulArgs& args);

// Once per device, before the first launch and outside any capture.
cudaError_t PrepareGroupedWgmma();

// The product; where rows are added up, after clearing their counters and before the combine. A
// plan comes first with more than 256 groups, and with float32 weights whose K is not contiguous,
// which are transposed then.
cudaError_t LaunchGroupedWgmma(const GroupedMatmulArgs& args, int variant_row, cudaStream_t stream);

// The gradient for rhs, of 16-bit operands.
const char* GroupedDrhsWgmmaReason(const GroupedDrhsArgs& args);
cudaError_t PrepareGroupedDrhsWgmma();
cudaError_t LaunchGroupedDrhsWgmma(const GroupedDrhsArgs& args, cudaStream_t stream);

}  // namespace jaxsparse
