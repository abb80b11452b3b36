// Handlers of jaxsparse_pruned_conv on CUDA (docs/contract.md).
#include "cuda/ffi/pruned/decode.h"

namespace jaxsparse {
namespace {

constexpr int64_t kMost = int64_t{1} << 30;

// Window attributes, as they arrive.
struct Window {
  int64_t kernel_h, kernel_w, stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w;
  int64_t lhs_dilation_h, lhs_dilation_w;
};

// Fills the geometry; false when a coordinate of any tap could pass 31 bits.
bool ReadWindow(const Window& w, ConvGeometry* g) {
  for (const int64_t v : {w.kernel_h, w.kernel_w, w.stride_h, w.stride_w, w.dilation_h,
                          w.dilation_w, w.lhs_dilation_h, w.lhs_dilation_w}) {
    if (v < 1 || v > kMost) return false;
  }
  const auto fits = [](int64_t out, int64_t stride, int64_t kernel, int64_t dilation, int64_t pad) {
    return out * stride <= kMost / 2 && kernel * dilation <= kMost / 2 && pad <= kMost / 2 &&
           pad >= -kMost / 2;
  };
  if (!fits(g->out_h, w.stride_h, w.kernel_h, w.dilation_h, w.pad_top) ||
      !fits(g->out_w, w.stride_w, w.kernel_w, w.dilation_w, w.pad_left) ||
      g->out_h * g->out_w > kMost || g->in_h > kMost || g->in_w > kMost) {
    return false;
  }
  const int64_t from[] = {w.kernel_h,       w.kernel_w,      w.stride_h,   w.stride_w,
                          w.pad_top,        w.pad_left,      w.dilation_h, w.dilation_w,
                          w.lhs_dilation_h, w.lhs_dilation_w};
  int* const to[] = {&g->kernel_h,       &g->kernel_w,      &g->stride_h,   &g->stride_w,
                     &g->pad_top,        &g->pad_left,      &g->dilation_h, &g->dilation_w,
                     &g->lhs_dilation_h, &g->lhs_dilation_w};
  for (int i = 0; i < 10; ++i) *to[i] = static_cast<int>(from[i]);
  g->groups = 1;
  return true;
}

ffi::Error PrunedConv(cudaStream_t stream, ffi::AnyBuffer x, ffi::AnyBuffer values,
                      ffi::BufferR1<ffi::F32> bias, ffi::BufferR1<ffi::S32> starts,
                      ffi::AnyBuffer indices, ffi::BufferR1<ffi::S32> rows,
                      ffi::BufferR1<ffi::U8> extra, ffi::Result<ffi::AnyBuffer> out,
                      ffi::ResultBufferR1<ffi::U8>, int64_t executor, int64_t activation, int64_t,
                      int64_t tile, int64_t block, int64_t parts, int64_t code,
                      int64_t channels_first, int64_t kernel_h, int64_t kernel_w, int64_t stride_h,
                      int64_t stride_w, int64_t pad_top, int64_t pad_left, int64_t dilation_h,
                      int64_t dilation_w, int64_t lhs_dilation_h, int64_t lhs_dilation_w) {
  const auto xs = x.dimensions(), os = out->dimensions();
  if (xs.size() != 4 || os.size() != 4 || xs[0] != os[0]) {
    return Invalid("pruned_conv", "x must be [B, H, W, C] and the result [B, Ho, Wo, O]");
  }
  const int channel = channels_first != 0 ? 1 : 3, height = channels_first != 0 ? 2 : 1;
  PrunedArgs args = {};
  ConvGeometry& g = args.geometry;
  g.batch = xs[0];
  g.in_h = xs[height];
  g.in_w = xs[height + 1];
  g.in_c = xs[channel];
  g.out_h = os[height];
  g.out_w = os[height + 1];
  g.out_c = os[channel];
  const Window window = {kernel_h, kernel_w,   stride_h,   stride_w,       pad_top,
                         pad_left, dilation_h, dilation_w, lhs_dilation_h, lhs_dilation_w};
  if (!ReadWindow(window, &g)) return Invalid("pruned_conv", "the window is out of range");
  args.image = true;
  args.channels_first = channels_first != 0;
  args.m = g.batch * g.out_h * g.out_w;
  args.k = g.in_c > kMost / (kernel_h * kernel_w) ? kMost + 1 : g.in_c * kernel_h * kernel_w;
  args.n = g.out_c;
  return RunPruned("pruned_conv", stream,
                   {x, values, bias, starts, indices, rows, extra, out, executor, activation, tile,
                    block, parts, code},
                   args);
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparsePrunedConvCudaInit, jaxsparse::InitPruned,
                              jaxsparse::BindPrunedInit());

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparsePrunedConvCuda, jaxsparse::PrunedConv,
                              jaxsparse::BindPruned()
                                  .Attr<int64_t>("channels_first")
                                  .Attr<int64_t>("kernel_h")
                                  .Attr<int64_t>("kernel_w")
                                  .Attr<int64_t>("stride_h")
                                  .Attr<int64_t>("stride_w")
                                  .Attr<int64_t>("pad_top")
                                  .Attr<int64_t>("pad_left")
                                  .Attr<int64_t>("dilation_h")
                                  .Attr<int64_t>("dilation_w")
                                  .Attr<int64_t>("lhs_dilation_h")
                                  .Attr<int64_t>("lhs_dilation_w"),
                              {xla::ffi::Traits::kCmdBufferCompatible});
