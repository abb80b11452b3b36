// The handler of jaxsparse_known_windows on CUDA (docs/contract.md).
#include "cuda/kernels/bounded_windows/windows.h"

#include <algorithm>

#include "cuda/ffi/common.h"
#include "cuda/kernels/bounded_windows/table.h"

namespace jaxsparse {
namespace {

// Whether every pixel is counted in 31 bits and every tap in ints.
bool InRange(const BoundedWindowsArgs& args, std::initializer_list<int64_t> sizes) {
  return args.batch * args.height * args.width <= INT32_MAX &&
         args.batch * args.out_height * args.out_width <= INT32_MAX &&
         std::all_of(sizes.begin(), sizes.end(), [](int64_t n) { return 1 <= n && n < 1 << 15; });
}

// The table, before its launch reads it; what disagrees is nullopt.
std::optional<BoundedTableArgs> ReadTable(ffi::AnyBuffer kernel, ffi::BufferR1<ffi::F32> bias,
                                          ffi::AnyBuffer table, int64_t taps, int64_t outputs,
                                          int64_t activation, float upper) {
  const auto ks = kernel.dimensions();
  const auto in = ToDType(kernel.element_type()), out = ToDType(table.element_type());
  const bool biased = bias.element_count() != 0;
  if (!in || !out || ks.size() != 3 || ks[0] != taps || ks[2] != outputs || taps < 1 ||
      taps > kMostWindowTaps || (*in != *out && *out != DType::kF32) ||
      !HasShape(table, {int64_t{1} << taps, outputs}) ||
      (biased && bias.dimensions()[0] != outputs) || outputs > INT32_MAX || activation < 0 ||
      activation > static_cast<int64_t>(Activation::kGelu)) {
    return std::nullopt;
  }
  BoundedTableArgs args = {};
  args.taps = taps;
  args.channels = ks[1];
  args.outputs = outputs;
  args.kernel = kernel.untyped_data();
  args.bias = biased ? bias.typed_data() : nullptr;
  args.in = *in;
  args.out = *out;
  args.activation = static_cast<Activation>(activation);
  args.upper = upper;
  args.table = table.untyped_data();
  return args;
}

ffi::Error KnownWindows(cudaStream_t stream, ffi::AnyBuffer base, ffi::BufferR4<ffi::U8> codes,
                        ffi::BufferR3<ffi::PRED> cover, ffi::AnyBuffer kernel,
                        ffi::BufferR1<ffi::F32> bias, ffi::Result<ffi::AnyBuffer> out,
                        ffi::ResultBufferR3<ffi::PRED> near, ffi::Result<ffi::AnyBuffer> table,
                        int64_t kernel_h, int64_t kernel_w, int64_t stride_h, int64_t stride_w,
                        int64_t pad_top, int64_t pad_left, int64_t dilation_h, int64_t dilation_w,
                        int64_t activation, float upper, float most_near) {
  const auto cs = codes.dimensions(), os = out->dimensions(), vs = cover.dimensions();
  const auto ns = near->dimensions();
  const auto type = out->element_type();
  const bool based = base.element_count() != 0;
  const int64_t taps = kernel_h * kernel_w;
  if (os.size() != 4 || cs[0] != os[0] || !std::equal(vs.begin(), vs.end(), os.begin()) ||
      !std::equal(ns.begin(), ns.end(), vs.begin()) || table->element_type() != type ||
      (based && (base.element_type() != type || !HasShape(base, {os[0], os[1], os[2], os[3]})))) {
    return ffi::Error::InvalidArgument("known_windows: operands and results disagree");
  }
  const auto entries = ReadTable(kernel, bias, *table, taps, os[3], activation, upper);
  if (!entries) return ffi::Error::InvalidArgument("known_windows: kernel, bias, table disagree");
  BoundedWindowsArgs args = {};
  args.batch = cs[0];
  args.height = cs[1];
  args.width = cs[2];
  args.segments = cs[3];
  args.out_height = os[1];
  args.out_width = os[2];
  args.bytes = os[3] * (type == ffi::DataType::F32 ? 4 : 2);
  if (!InRange(args, {kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w})) {
    return ffi::Error::InvalidArgument("known_windows: out of range");
  }
  args.taps = static_cast<int>(taps);
  args.stride_h = static_cast<int>(stride_h);
  args.stride_w = static_cast<int>(stride_w);
  for (int64_t t = 0; t < taps; ++t) {
    args.down[t] = static_cast<int>(t / kernel_w * dilation_h - pad_top);
    args.right[t] = static_cast<int>(t % kernel_w * dilation_w - pad_left);
  }
  args.codes = codes.typed_data();
  args.cover = cover.typed_data();
  args.table = table->untyped_data();
  args.behind_table = entries->outputs > 0;
  args.based = based;
  args.most_near = most_near;
  args.out = out->untyped_data();
  args.near = near->typed_data();
  if (based && base.untyped_data() != out->untyped_data()) {
    const cudaError_t error = cudaMemcpyAsync(out->untyped_data(), base.untyped_data(),
                                              out->size_bytes(), cudaMemcpyDeviceToDevice, stream);
    if (error != cudaSuccess) return CudaStatus("known_windows", error);
  }
  const cudaError_t error = LaunchBoundedTable(*entries, stream);
  if (error != cudaSuccess) return CudaStatus("known_windows", error);
  return CudaStatus("known_windows", LaunchBoundedWindows(args, stream));
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseKnownWindowsCuda, jaxsparse::KnownWindows,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::PlatformStream<cudaStream_t>>()
                                  .Arg<xla::ffi::AnyBuffer>()                 // base
                                  .Arg<xla::ffi::BufferR4<xla::ffi::U8>>()    // codes
                                  .Arg<xla::ffi::BufferR3<xla::ffi::PRED>>()  // cover
                                  .Arg<xla::ffi::AnyBuffer>()                 // kernel
                                  .Arg<xla::ffi::BufferR1<xla::ffi::F32>>()   // bias
                                  .Ret<xla::ffi::AnyBuffer>()                 // out
                                  .Ret<xla::ffi::BufferR3<xla::ffi::PRED>>()  // near
                                  .Ret<xla::ffi::AnyBuffer>()                 // table
                                  .Attr<int64_t>("kernel_h")
                                  .Attr<int64_t>("kernel_w")
                                  .Attr<int64_t>("stride_h")
                                  .Attr<int64_t>("stride_w")
                                  .Attr<int64_t>("pad_top")
                                  .Attr<int64_t>("pad_left")
                                  .Attr<int64_t>("dilation_h")
                                  .Attr<int64_t>("dilation_w")
                                  .Attr<int64_t>("activation")
                                  .Attr<float>("upper")
                                  .Attr<float>("most_near"),
                              {xla::ffi::Traits::kCmdBufferCompatible});
