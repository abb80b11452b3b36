// The parameters of the mma.sync engine, and its weights rewritten: float32 ones [O, K], rounded to
// TF32; with input pixels or outputs that are not multiples of 16 bytes, every tap's inputs and
// every row's outputs are filled up with zeros.
//
// Floor: the weights read and written once, in L2 as a rule (3x3x65x64 in bf16: 0.15 MB).
#include "cuda/kernels/masked_conv/mma/problem.h"

#include <algorithm>

#include "cuda/core/device.h"
#include "cuda/core/launch.h"
#include "cuda/kernels/masked_conv/problem.h"
#include "cuda/kernels/masked_conv/workspace.h"

namespace jaxsparse {
namespace {

constexpr int kThreads = 256;

int Bytes(DType type) { return type == DType::kF32 ? 4 : 2; }

bool Whole(int64_t channels, DType type) { return channels * Bytes(type) % kUnitBytes == 0; }

__device__ float RoundToTF32(float v) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(v));
  return __uint_as_float(bits);
}

struct Filled {
  int64_t count;           // elements of the result
  int in_c, out_c;         // of the weights
  int inputs, k, columns;  // filled up: of a tap, of all taps, of a row
};

// [K, O] to [k, columns].
__global__ void FillHalfKernel(const uint16_t* in, uint16_t* out, Filled f) {
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < f.count;
       i += int64_t{gridDim.x} * kThreads) {
    const int k = static_cast<int>(i / f.columns), o = static_cast<int>(i % f.columns);
    const int tap = k / f.inputs, c = k % f.inputs;
    const bool there = c < f.in_c && o < f.out_c;
    out[i] = there ? in[(int64_t{tap} * f.in_c + c) * f.out_c + o] : uint16_t{0};
  }
}

// [K, O] to [O, k], rounded.
__global__ void FillFloatKernel(const float* in, float* out, Filled f) {
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < f.count;
       i += int64_t{gridDim.x} * kThreads) {
    const int o = static_cast<int>(i / f.k), k = static_cast<int>(i % f.k);
    const int tap = k / f.inputs, c = k % f.inputs;
    out[i] = c < f.in_c ? RoundToTF32(in[(int64_t{tap} * f.in_c + c) * f.out_c + o]) : 0.0f;
  }
}

Filled FillOf(const ConvGeometry& g, DType type) {
  const int elements = kUnitBytes / Bytes(type);
  Filled f;
  f.in_c = static_cast<int>(g.in_c);
  f.out_c = static_cast<int>(g.out_c);
  f.inputs = static_cast<int>(CeilDiv(g.in_c, elements) * elements);
  f.k = g.kernel_h * g.kernel_w * f.inputs;
  f.columns =
      static_cast<int>(type == DType::kF32 ? g.out_c : CeilDiv(g.out_c, elements) * elements);
  f.count = int64_t{f.k} * f.columns;
  return f;
}

}  // namespace

MmaParams MakeMmaParams(const MaskedConvArgs& a) {
  const ConvGeometry& g = a.geometry;
  MmaParams p = {};
  p.conv = MakeConvParams(a);
  p.conv.pixel_units = 1;
  p.pixel_bytes = g.in_c * Bytes(a.in_type);
  p.units = static_cast<int>(CeilDiv(p.pixel_bytes, kUnitBytes));
  p.k_units = g.kernel_h * g.kernel_w * p.units;
  p.steps = std::max<int>(1, static_cast<int>(CeilDiv(p.k_units, kStepUnits)));
  p.taps_first = p.units % kStepUnits == 0;
  p.ragged_out = g.out_c % (p.conv.out_f32 ? 2 : 8) != 0;
  return p;
}

int64_t MmaWeightBytes(const ConvGeometry& g, DType type) {
  if (type != DType::kF32 && Whole(g.in_c, type) && Whole(g.out_c, type)) return 0;
  return (FillOf(g, type).count * Bytes(type) + 255) / 256 * 256;
}

cudaError_t PlaceMmaWeights(const MaskedConvArgs& a, MmaParams* p, cudaStream_t stream) {
  const ConvGeometry& g = a.geometry;
  const Filled f = FillOf(g, a.in_type);
  p->columns = f.columns;
  p->weights = MmaWeightBytes(g, a.in_type) == 0 ? a.kernel : a.scratch;
  if (p->weights == a.kernel) return cudaSuccess;
  const unsigned blocks =
      static_cast<unsigned>(std::min<int64_t>(CeilDiv(f.count, kThreads), MultiProcessors() * 8));
  if (a.in_type != DType::kF32) {
    FillHalfKernel<<<blocks, kThreads, 0, stream>>>(static_cast<const uint16_t*>(a.kernel),
                                                    static_cast<uint16_t*>(a.scratch), f);
  } else if (Whole(g.in_c, a.in_type)) {
    return LaunchTransposeWeights(static_cast<const float*>(a.kernel),
                                  static_cast<float*>(a.scratch), f.k, f.out_c, stream);
  } else {
    FillFloatKernel<<<blocks, kThreads, 0, stream>>>(static_cast<const float*>(a.kernel),
                                                     static_cast<float*>(a.scratch), f);
  }
  return cudaGetLastError();
}

cudaError_t PrepareMmaWeights() {
  for (const cudaError_t status : {PrepareKernel(&FillHalfKernel, 0),
                                   PrepareKernel(&FillFloatKernel, 0), PrepareConvWorkspace()}) {
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

}  // namespace jaxsparse
