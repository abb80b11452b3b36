// The sizes of the workspaces that Python hands to the handlers: asked of the kernels themselves,
// while tracing. No device is needed.
#include "cuda/workspace.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <vector>

#include "cuda/kernels/masked_conv/device/launch.h"
#include "cuda/kernels/masked_conv/dkernel/wgmma/launch.h"
#include "cuda/kernels/masked_conv/mma/launch.h"
#include "cuda/kernels/masked_conv/wgmma/launch.h"
#include "cuda/kernels/masked_matmul/fine/workspace.h"
#include "cuda/kernels/masked_matmul/sampled/workspace.h"
#include "cuda/kernels/masked_matmul/workspace.h"
#include "cuda/kernels/sparse_ffn/launch.h"

namespace jaxsparse {
namespace {

using Sizes = std::array<int64_t, 18>;

// The fields in the order of ConvGeometry.
ConvGeometry ToGeometry(const Sizes& s) {
  ConvGeometry g = {s[0], s[1], s[2], s[3], s[4], s[5], s[6]};
  int* const window[] = {&g.kernel_h,       &g.kernel_w,       &g.stride_h,   &g.stride_w,
                         &g.pad_top,        &g.pad_left,       &g.dilation_h, &g.dilation_w,
                         &g.lhs_dilation_h, &g.lhs_dilation_w, &g.groups};
  for (int i = 0; i < 11; ++i) *window[i] = static_cast<int>(s[7 + i]);
  return g;
}

}  // namespace

void BindWorkspace(nanobind::module_& m) {
  m.def("masked_conv_workspace", [](const Sizes& geometry, int dtype, int variant) -> int64_t {
    const ConvGeometry g = ToGeometry(geometry);
    const DType type = static_cast<DType>(dtype);
    if (IsMaskedConvMma(variant)) return MaskedConvMmaScratchBytes(g, type);
    if (variant < kFirstTensorCoreRow) return 0;
    return MaskedConvWgmmaScratchBytes(g, type, variant - kFirstTensorCoreRow);
  });
  m.def("masked_conv_device_workspace",
        [](const Sizes& geometry, int dtype, const std::vector<int>& variants) {
          return MaskedConvDeviceScratchBytes(ToGeometry(geometry), static_cast<DType>(dtype),
                                              variants.data(), static_cast<int>(variants.size()));
        });
  m.def("sparse_ffn_workspace", &FfnScratchBytes);
  m.def("masked_matmul_workspace", &MaskedMatmulWorkspace);
  m.def("fine_matmul_workspace", &FineMatmulWorkspace);
  m.def("sampled_matmul_workspace", &SampledMatmulWorkspace);
  m.def("masked_conv_dkernel_workspace",
        [](const Sizes& geometry, int64_t capacity, int tile_h, int tile_w, int variant) {
          TileList list = {};
          list.capacity = capacity;
          list.tile_h = tile_h;
          list.tile_w = tile_w;
          return DkernelWorkspace(ToGeometry(geometry), list, variant);
        });
}

}  // namespace jaxsparse
