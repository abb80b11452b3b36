#include "cuda/kernels/sparse_ffn/launch.h"

#include "cuda/kernels/sparse_ffn/activate.cuh"
#include "cuda/kernels/sparse_ffn/sum.cuh"

namespace jaxsparse {
namespace {

struct Kernels {
  void (*activate)(FfnArgs, FfnScratch, int);
  void (*sum)(FfnArgs, FfnScratch, int);
};

template <class T, int kTokens>
Kernels Of() {
  return {ActivateKernel<T, kTokens>, SumKernel<T, kTokens>};
}

template <class T>
Kernels ForTokens(int tokens) {
  if (tokens <= 1) return Of<T, 1>();
  if (tokens <= 2) return Of<T, 2>();
  if (tokens <= 4) return Of<T, 4>();
  return Of<T, 8>();
}

Kernels KernelsFor(DType type, int tokens) {
  if (type == DType::kBF16) return ForTokens<__nv_bfloat16>(tokens);
  if (type == DType::kF16) return ForTokens<__half>(tokens);
  return ForTokens<float>(tokens);
}

}  // namespace

int64_t FfnScratchBytes(int64_t tokens, int64_t hidden, int64_t outputs) {
  int64_t bytes = 0;
  CarveFfn(nullptr, tokens, hidden, outputs, &bytes);
  return bytes;
}

cudaError_t LaunchFfn(const FfnArgs& args, cudaStream_t stream) {
  int64_t bytes = 0;
  const FfnScratch scratch = CarveFfn(args.scratch, args.tokens, args.hidden, args.outputs, &bytes);
  const Kernels kernels = KernelsFor(args.type, args.tokens);
  const int words = static_cast<int>(FfnWords(args.hidden));
  const int panels = static_cast<int>(CeilDiv(args.outputs, kFfnPanel));
  kernels.activate<<<words, kFfnThreads, 0, stream>>>(args, scratch, panels);
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) return status;
  return LaunchEarly(kernels.sum, dim3(panels, scratch.splits), kFfnThreads, stream, args, scratch,
                     words);
}

cudaError_t PrepareFfn() {
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (int tokens = 1; tokens <= kFfnMostTokens; tokens *= 2) {
      const Kernels kernels = KernelsFor(type, tokens);
      cudaError_t status = PrepareKernel(kernels.activate, 0);
      if (status == cudaSuccess) status = PrepareKernel(kernels.sum, 0);
      if (status != cudaSuccess) return status;
    }
  }
  return cudaSuccess;
}

}  // namespace jaxsparse
