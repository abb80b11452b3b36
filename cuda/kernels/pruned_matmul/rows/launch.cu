// The data-driven executor's variants, by number and element type.
#include "cuda/kernels/pruned_matmul/rows/launch.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/kernels/pruned_matmul/rows/variant.h"

namespace jaxsparse {
namespace {

struct Entry {
  int number;
  DType type;
  cudaError_t (*prepare)();
  cudaError_t (*launch)(const PrunedArgs&, int, cudaStream_t);
};

template <typename T, int Rows, int Chunk, int Outputs>
constexpr Entry MakeEntry(int number, DType type) {
  using Variant = PrunedRowsVariant<T, Rows, Chunk, Outputs>;
  return {number, type, Variant::Prepare, Variant::Launch};
}

constexpr Entry kEntries[] = {
#define JAXSPARSE_VARIANT(number, name, rows, chunk, outputs)               \
  MakeEntry<float, rows, chunk, outputs>(number, DType::kF32),              \
      MakeEntry<__nv_bfloat16, rows, chunk, outputs>(number, DType::kBF16), \
      MakeEntry<__half, rows, chunk, outputs>(number, DType::kF16),
#include "pruned_rows_table.inc"
#undef JAXSPARSE_VARIANT
};

}  // namespace

cudaError_t PreparePrunedRows() {
  for (const Entry& entry : kEntries) {
    const cudaError_t error = entry.prepare();
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t LaunchPrunedRows(const PrunedArgs& args, int64_t variant, int64_t warps,
                             cudaStream_t stream) {
  if (warps < 1 || warps > kRowsMostWarps) return cudaErrorInvalidValue;
  for (const Entry& entry : kEntries) {
    if (entry.number == variant && entry.type == args.in_type) {
      return entry.launch(args, static_cast<int>(warps), stream);
    }
  }
  return cudaErrorInvalidValue;
}

}  // namespace jaxsparse
