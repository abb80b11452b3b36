// The sizes of the workspaces that Python hands to the handlers: asked of the kernels themselves,
// while tracing.
#include "cpu/workspace.h"

#include <nanobind/stl/array.h>

#include <algorithm>
#include <array>
#include <thread>

#include "cpu/kernels/masked_conv_dkernel_job.h"
#include "cpu/kernels/masked_conv_job.h"

namespace jaxsparse {
namespace {

using Sizes = std::array<int64_t, 18>;

// The fields in the order of ConvGeometry.
ConvGeometry ToGeometry(const Sizes& s) {
  return {s[0], s[1],  s[2],  s[3],  s[4],  s[5],  s[6],  s[7],  s[8],
          s[9], s[10], s[11], s[12], s[13], s[14], s[15], s[16], s[17]};
}

int64_t Workers() { return std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, 64); }

}  // namespace

void BindWorkspace(nanobind::module_& m) {
  m.def("masked_conv_workspace", [](const Sizes& geometry, int dtype) {
    return MaskedConvJob::ScratchBytes(ToGeometry(geometry), static_cast<DType>(dtype), Workers());
  });
  m.def("masked_conv_dkernel_workspace", [](const Sizes& geometry, int x_type, int gy_type) {
    return MaskedConvDkernelJob::ScratchBytes(ToGeometry(geometry), static_cast<DType>(x_type),
                                              static_cast<DType>(gy_type), Workers());
  });
}

}  // namespace jaxsparse
