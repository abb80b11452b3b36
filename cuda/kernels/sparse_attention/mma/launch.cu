// Which mma.sync kernel of attention runs, and its launch.
#include "cuda/kernels/sparse_attention/mma/launch.h"

#include <algorithm>

#include "cuda/core/device.h"
#include "cuda/core/launch.h"
#include "cuda/kernels/sparse_attention/delta.h"
#include "cuda/kernels/sparse_attention/mma/kernels.h"

namespace jaxsparse {
namespace {

constexpr int kMostDepth = 256, kFewestRows = 32;  // of a tile, over all kernels

AttentionType TypeOf(const AttentionArgs& a, DType dtype) {
  if (dtype == DType::kBF16) return AttentionType::kBF16;
  if (dtype == DType::kF16) return AttentionType::kF16;
  return a.precision == Precision::kHighest ? AttentionType::kFloat32 : AttentionType::kTF32;
}

KernelList<ForwardKernel> ForwardKernels(AttentionType type) {
  switch (type) {
    case AttentionType::kBF16:
      return ForwardKernelsBF16();
    case AttentionType::kF16:
      return ForwardKernelsF16();
    case AttentionType::kTF32:
      return ForwardKernelsTF32();
    case AttentionType::kFloat32:
      return ForwardKernelsFloat32();
  }
  return {};
}

KernelList<GradKernel> GradKernels(AttentionType type) {
  switch (type) {
    case AttentionType::kBF16:
      return GradKernelsBF16();
    case AttentionType::kF16:
      return GradKernelsF16();
    case AttentionType::kTF32:
      return GradKernelsTF32();
    case AttentionType::kFloat32:
      return GradKernelsFloat32();
  }
  return {};
}

int64_t Tiles(const AttentionArgs& a, int heads, int length, int rows) {
  return static_cast<int64_t>(a.batch) * heads * CeilDiv(length, rows);
}

// A tile of 128 queries reads K and V half as often; it pays where the blocks are as tall, and the
// tiles enough for the device.
const ForwardKernel* FindForward(const AttentionArgs& a, DType dtype) {
  for (const ForwardKernel& kernel : ForwardKernels(TypeOf(a, dtype))) {
    if (a.v_depth > kernel.columns) continue;
    if (kernel.shared_bytes(a.depth, a.v_depth) > kAttentionSharedBytes) continue;
    const bool tall = a.mask.block_q % kernel.rows == 0 &&
                      Tiles(a, a.heads, a.q_len, kernel.rows) >= MultiProcessors();
    if (kernel.rows <= 64 || tall) return &kernel;
  }
  return nullptr;
}

const GradKernel* FindGrad(const AttentionArgs& a, DType dtype, GradPart part) {
  for (const GradKernel& kernel : GradKernels(TypeOf(a, dtype))) {
    if (kernel.part == part && std::max(a.depth, a.v_depth) <= kernel.columns) return &kernel;
  }
  return nullptr;
}

// Two stages where they do not cost a CTA of the multiprocessor.
int Stages(const GradKernel& kernel, const AttentionArgs& a) {
  constexpr int kReserved = 1024;  // of a CTA
  const int one = kernel.shared_bytes(a.depth, a.v_depth, 1) + kReserved;
  const int two = kernel.shared_bytes(a.depth, a.v_depth, 2) + kReserved;
  int device = 0, all = 0;
  if (two - kReserved > kAttentionSharedBytes || cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&all, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device) !=
          cudaSuccess) {
    return 1;
  }
  return std::min(2, all / two) >= std::min(2, all / one) ? 2 : 1;
}

cudaError_t LaunchPart(const AttentionGradArgs& g, const GradKernel& kernel, cudaStream_t stream) {
  const AttentionArgs& a = g.forward;
  const bool keys = kernel.part != GradPart::kDq;
  const int64_t ctas =
      keys ? Tiles(a, a.kv_heads, a.kv_len, kernel.rows) : Tiles(a, a.heads, a.q_len, kernel.rows);
  if (ctas == 0) return cudaSuccess;
  const int stages = Stages(kernel, a), bytes = kernel.shared_bytes(a.depth, a.v_depth, stages);
  kernel.entry<<<static_cast<unsigned>(ctas), kernel.threads, bytes, stream>>>(g, stages);
  return cudaGetLastError();
}

}  // namespace

const char* AttentionMmaReason(const AttentionArgs& a) {
  const auto fits = [](int depth) { return depth > 0 && depth <= kMostDepth && depth % 8 == 0; };
  if (!fits(a.depth) || !fits(a.v_depth)) {
    return "the head dimensions must be multiples of 8, from 8 to 256";
  }
  if (std::max(Tiles(a, a.heads, a.q_len, kFewestRows), Tiles(a, a.heads, a.kv_len, kFewestRows)) >
      INT32_MAX) {
    return "batch * heads * length must be below 2^36";
  }
  return nullptr;
}

cudaError_t PrepareAttentionMma() {
  cudaError_t status = cudaSuccess;
  for (int type = 0; type < kAttentionTypes; ++type) {
    for (const ForwardKernel& kernel : ForwardKernels(static_cast<AttentionType>(type))) {
      if (status == cudaSuccess) status = PrepareKernel(kernel.entry, kAttentionSharedBytes);
    }
    for (const GradKernel& kernel : GradKernels(static_cast<AttentionType>(type))) {
      if (status == cudaSuccess) status = PrepareKernel(kernel.entry, kAttentionSharedBytes);
    }
  }
  return status;
}

cudaError_t LaunchAttentionMma(const AttentionArgs& a, DType dtype, cudaStream_t stream) {
  if (AttentionMmaReason(a) != nullptr) return cudaErrorInvalidValue;
  const ForwardKernel* kernel = FindForward(a, dtype);
  if (kernel == nullptr) return cudaErrorInvalidValue;
  const int64_t ctas = Tiles(a, a.heads, a.q_len, kernel->rows);
  if (ctas == 0) return cudaSuccess;
  kernel->entry<<<static_cast<unsigned>(ctas), kernel->threads,
                  kernel->shared_bytes(a.depth, a.v_depth), stream>>>(a);
  return cudaGetLastError();
}

int64_t AttentionDeltaBytes(const AttentionArgs& a) {
  return static_cast<int64_t>(a.batch) * a.heads * a.q_len * static_cast<int64_t>(sizeof(float));
}

cudaError_t LaunchAttentionMmaGrad(const AttentionGradArgs& g, DType dtype, cudaStream_t stream) {
  const AttentionArgs& a = g.forward;
  if (AttentionMmaReason(a) != nullptr) return cudaErrorInvalidValue;
  cudaError_t status =
      AttentionDeltaBytes(a) == 0 ? cudaSuccess : LaunchAttentionDelta(g, dtype, stream);
  const bool together = FindGrad(a, dtype, GradPart::kDkDv) != nullptr;
  for (const GradPart part : {GradPart::kDq, GradPart::kDkDv, GradPart::kDk, GradPart::kDv}) {
    const bool keys_only = part == GradPart::kDk || part == GradPart::kDv;
    if (keys_only == together && part != GradPart::kDq) continue;
    const GradKernel* kernel = FindGrad(a, dtype, part);
    if (kernel == nullptr) return cudaErrorInvalidValue;
    if (status == cudaSuccess) status = LaunchPart(g, *kernel, stream);
  }
  return status;
}

}  // namespace jaxsparse
