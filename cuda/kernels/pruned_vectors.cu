// Launches of the vectors executor: a kernel for each type of x.
#include "cuda/kernels/pruned_vectors.h"

#include <algorithm>

#include "cuda/kernels/pruned_vectors.cuh"

namespace jaxsparse {
namespace {

template <typename T>
cudaError_t Prepare() {
  int device = 0, most = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  if (error != cudaSuccess) return error;
  // A device with less refuses the launch.
  return cudaFuncSetAttribute(PrunedVectors<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              std::min(most, kVectorSharedBytes));
}

template <typename T>
cudaError_t Launch(const PrunedArgs& args, cudaStream_t stream) {
  constexpr int kChunk = VectorConfig<T>::kChunk, kColumns = 4 * VectorConfig<T>::kQuads;
  VectorLayout layout = {};
  layout.chunks = static_cast<int32_t>(std::max<int64_t>(1, (args.k - 1) / kChunk + 1));
  layout.slabs = static_cast<int32_t>((args.n + kVectorSlab - 1) / kVectorSlab);
  const int64_t warps = static_cast<int64_t>(layout.slabs) * kVectorWarps;
  const int64_t blocks = (args.m + kVectorRows - 1) / kVectorRows * layout.slabs;
  const int64_t steps = args.entries / (kColumns * kVectorOutputs);
  if (args.k % (16 / static_cast<int64_t>(sizeof(T))) != 0 || args.num_starts != warps ||
      steps < 1 || args.num_extra != warps * layout.chunks * kVectorGroups || steps > INT32_MAX ||
      args.entries % (kColumns * kVectorOutputs) != 0 || blocks > INT32_MAX ||
      args.num_indices != steps * kColumns) {
    return cudaErrorInvalidValue;
  }
  PrunedVectors<T>
      <<<static_cast<unsigned>(blocks), kVectorWarps * 32, kVectorSharedBytes, stream>>>(args,
                                                                                         layout);
  return cudaGetLastError();
}

}  // namespace

cudaError_t PreparePrunedVectors() {
  for (const auto prepare : {Prepare<float>, Prepare<__nv_bfloat16>, Prepare<__half>}) {
    const cudaError_t error = prepare();
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t LaunchPrunedVectors(const PrunedArgs& args, cudaStream_t stream) {
  if (args.in_type == DType::kF32) return Launch<float>(args, stream);
  if (args.in_type == DType::kBF16) return Launch<__nv_bfloat16>(args, stream);
  if (args.in_type == DType::kF16) return Launch<__half>(args, stream);
  return cudaErrorInvalidValue;
}

}  // namespace jaxsparse
