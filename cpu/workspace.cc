// The sizes of the workspaces that Python hands to the handlers: asked of the kernels themselves,
// while tracing.
#include "cpu/workspace.h"

#include <nanobind/stl/array.h>

#include <algorithm>
#include <array>
#include <thread>

#include "cpu/kernels/bounded_matmul/job.h"
#include "cpu/kernels/bounded_network/job.h"
#include "cpu/kernels/grouped_matmul/drhs_job.h"
#include "cpu/kernels/grouped_matmul/job.h"
#include "cpu/kernels/masked_conv/dkernel_job.h"
#include "cpu/kernels/masked_conv/job.h"
#include "cpu/kernels/masked_matmul/job.h"

namespace jaxsparse {
namespace {

using Sizes = std::array<int64_t, 18>;

// The fields in the order of ConvGeometry.
ConvGeometry ToGeometry(const Sizes& s) {
  return {s[0], s[1],  s[2],  s[3],  s[4],  s[5],  s[6],  s[7],  s[8],
          s[9], s[10], s[11], s[12], s[13], s[14], s[15], s[16], s[17]};
}

int64_t Workers() { return std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, 64); }

// An operand that is there; its values do not matter.
const uint32_t kPresent = 0;

int64_t MaskedMatmulBytes(int64_t depth, bool masked_b) {
  MaskedMatmulArgs args = {};
  args.depth = depth;
  args.b_bits.words = masked_b ? &kPresent : nullptr;
  return MaskedMatmulJob::ScratchBytes(args, Workers());
}

// The fields in the order of GroupedShape.
int64_t GroupedMatmulBytes(const std::array<int64_t, 6>& s, int out_type, bool scatters) {
  GroupedMatmulArgs args = {};
  args.shape = {s[0], s[1], s[2], s[3], s[4], s[5]};
  args.out_type = static_cast<DType>(out_type);
  args.scatter = scatters ? reinterpret_cast<const int32_t*>(&kPresent) : nullptr;
  return GroupedMatmulJob::ScratchBytes(args, Workers());
}

int64_t GroupedDrhsBytes(int64_t groups) {
  GroupedShape shape = {};
  shape.groups = groups;
  return GroupedDrhsJob::ScratchBytes(shape, Workers());
}

int64_t BoundedMatmulBytes(int64_t batch, int64_t n_in, int64_t distinct) {
  BoundedMatmulArgs args = {};
  args.batch = std::max<int64_t>(batch, 1);
  args.layer.n_in = n_in;
  args.layer.distinct = distinct;
  return BoundedMatmulJob::ScratchBytes(args, Workers());
}

int64_t BoundedNetworkBytes(int64_t batch, int64_t n_in, int64_t widest) {
  BoundedNetworkArgs args = {};
  args.batch = std::max<int64_t>(batch, 1);
  args.n_in = n_in;
  args.widest = widest;
  return BoundedNetworkJob::ScratchBytes(args, Workers());
}

}  // namespace

void BindWorkspace(nanobind::module_& m) {
  m.def("masked_conv_workspace", [](const Sizes& geometry, int dtype) {
    return MaskedConvJob::ScratchBytes(ToGeometry(geometry), static_cast<DType>(dtype), Workers());
  });
  m.def("masked_conv_dkernel_workspace", [](const Sizes& geometry, int x_type, int gy_type) {
    return MaskedConvDkernelJob::ScratchBytes(ToGeometry(geometry), static_cast<DType>(x_type),
                                              static_cast<DType>(gy_type), Workers());
  });
  m.def("masked_matmul_workspace", &MaskedMatmulBytes);
  m.def("grouped_matmul_workspace", &GroupedMatmulBytes);
  m.def("grouped_matmul_drhs_workspace", &GroupedDrhsBytes);
  m.def("bounded_matmul_workspace", &BoundedMatmulBytes);
  m.def("bounded_network_workspace", &BoundedNetworkBytes);
}

}  // namespace jaxsparse
