// The workspaces of the grouped products and of route, asked of the kernels while tracing. No
// device is needed.
#include "cuda/grouped_workspace.h"

#include <nanobind/stl/array.h>

#include <algorithm>
#include <array>

#include "cuda/kernels/grouped_matmul/direct.h"
#include "cuda/kernels/grouped_matmul/wgmma/gated.h"
#include "cuda/kernels/grouped_matmul/wgmma/launch.h"
#include "cuda/kernels/route/launch.h"

namespace jaxsparse {
namespace {

using Sizes = std::array<int64_t, 6>;  // the fields of GroupedShape

GroupedShape ToShape(const Sizes& s) { return {s[0], s[1], s[2], s[3], s[4], s[5]}; }

}  // namespace

void BindGroupedWorkspace(nanobind::module_& m) {
  m.def("grouped_matmul_workspace", [](const Sizes& sizes, int in_type, int out_type, bool scatters,
                                       bool transpose_rhs, int64_t variant) {
    GroupedMatmulArgs args = {};
    args.shape = ToShape(sizes);
    args.in_type = static_cast<DType>(in_type);
    args.out_type = static_cast<DType>(out_type);
    args.scatters = scatters;
    args.transpose_rhs = transpose_rhs;
    return variant < kFirstGroupedRow ? GroupedDirectScratchBytes(args)
                                      : GroupedWgmmaScratchBytes(args);
  });
  m.def("grouped_matmul_drhs_workspace", [](const Sizes& sizes, int in_type, int out_type) {
    GroupedDrhsArgs args = {};
    args.shape = ToShape(sizes);
    args.in_type = static_cast<DType>(in_type);
    args.out_type = static_cast<DType>(out_type);
    return GroupedDrhsScratchBytes(args);
  });
  m.def("grouped_gated_workspace", [](const Sizes& sizes, int in_type, int out_type) {
    GroupedGatedArgs args = {};
    args.product.shape = ToShape(sizes);
    args.product.in_type = static_cast<DType>(in_type);
    args.product.out_type = static_cast<DType>(out_type);
    return GroupedGatedScratchBytes(args);
  });
  m.def("route_workspace", &RouteScratchWords);
}

}  // namespace jaxsparse
