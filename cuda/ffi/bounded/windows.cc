// The handler of jaxsparse_known_windows on CUDA (contracts/bounded.toml).
#include "cuda/kernels/bounded_windows/windows.h"

#include "contracts/known_windows.gen.h"
#include "cuda/ffi/common.h"
#include "cuda/kernels/bounded_windows/table.h"

namespace jaxsparse {
namespace {

using contract::known_windows::Call;

constexpr char kOp[] = "known_windows";

// The table, before the launch that reads it.
BoundedTableArgs TableOf(const Call& c) {
  BoundedTableArgs args = {};
  args.taps = c.kernel_h * c.kernel_w;
  args.channels = c.channels;
  args.outputs = c.outputs;
  args.kernel = c.kernel.data;
  args.bias = c.bias.as<float>();
  args.in = ToDType(c.kernel.type);
  args.out = ToDType(c.table.type);
  args.activation = static_cast<Activation>(c.activation);
  args.upper = c.upper;
  args.table = c.table.data;
  return args;
}

BoundedWindowsArgs WindowsOf(const Call& c) {
  BoundedWindowsArgs args = {};
  args.batch = c.batch;
  args.height = c.height;
  args.width = c.width;
  args.segments = c.segments;
  args.out_height = c.out_h;
  args.out_width = c.out_w;
  args.bytes = c.outputs * ElementBytes(ToDType(c.out.type));
  args.taps = static_cast<int>(c.kernel_h * c.kernel_w);
  args.stride_h = static_cast<int>(c.stride_h);
  args.stride_w = static_cast<int>(c.stride_w);
  for (int64_t t = 0; t < args.taps; ++t) {
    args.down[t] = static_cast<int>(t / c.kernel_w * c.dilation_h - c.pad_top);
    args.right[t] = static_cast<int>(t % c.kernel_w * c.dilation_w - c.pad_left);
  }
  args.codes = c.codes.as<uint8_t>();
  args.cover = c.cover.as<bool>();
  args.table = c.table.data;
  args.behind_table = c.outputs > 0;
  args.based = c.base.given();
  args.most_near = c.most_near;
  args.out = c.out.data;
  args.near = c.near.as<bool>();
  return args;
}

ffi::Error KnownWindows(cudaStream_t stream, contract::known_windows::Attributes attributes,
                        ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::known_windows::Decode(attributes, operands, results);
  if (call.has_error()) return call.error();
  const Call& c = *call;
  cudaError_t error = PlaceBase(c.base, c.out, stream);
  if (error == cudaSuccess) error = LaunchBoundedTable(TableOf(c), stream);
  if (error == cudaSuccess) error = LaunchBoundedWindows(WindowsOf(c), stream);
  return CudaStatus(kOp, error);
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseKnownWindowsCuda, jaxsparse::KnownWindows,
                              jaxsparse::BindCall<jaxsparse::contract::known_windows::Attributes>(),
                              {xla::ffi::Traits::kCmdBufferCompatible});
