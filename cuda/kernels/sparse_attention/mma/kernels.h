// The table of the mma.sync kernels of attention: one unit for each element type
// (types/) lists its own, and launch.cu picks.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/kernels/sparse_attention/args.h"

namespace jaxsparse {

// sm_86, sm_89 and sm_120 have no more for a CTA.
inline constexpr int kAttentionSharedBytes = 99 * 1024;

// What a gradient kernel computes. Where the registers do not hold the sums of dk and dv, each is
// computed by itself.
enum class GradPart { kDq, kDkDv, kDk, kDv };

struct ForwardKernel {
  int columns, rows, threads;  // the greatest v_depth, and the queries of a tile
  int (*shared_bytes)(int depth, int v_depth);
  void (*entry)(AttentionArgs);
};

struct GradKernel {
  GradPart part;
  int columns, rows, threads;  // the greatest head dimension, and the rows of a tile
  int (*shared_bytes)(int depth, int v_depth, int stages);
  void (*entry)(AttentionGradArgs, int stages);
};

template <class Kernel>
struct KernelList {
  const Kernel* kernels;
  int count;

  const Kernel* begin() const { return kernels; }
  const Kernel* end() const { return kernels + count; }
};

// Types of products, in the order of the lists.
enum class AttentionType : int { kBF16, kF16, kTF32, kFloat32 };
inline constexpr int kAttentionTypes = 4;

// The first that takes a problem is the one that runs.
KernelList<ForwardKernel> ForwardKernelsBF16();
KernelList<ForwardKernel> ForwardKernelsF16();
KernelList<ForwardKernel> ForwardKernelsTF32();
KernelList<ForwardKernel> ForwardKernelsFloat32();
KernelList<GradKernel> GradKernelsBF16();
KernelList<GradKernel> GradKernelsF16();
KernelList<GradKernel> GradKernelsTF32();
KernelList<GradKernel> GradKernelsFloat32();

}  // namespace jaxsparse
