// Handler of jaxsparse_affected_index (docs/contract.md).
#include "cuda/index/affected_index.h"

#include <cstdint>
#include <string>

#include "cuda/ffi/common.h"
#include "cuda/ffi/index/limits.h"
#include "xla/ffi/api/ffi.h"

namespace jaxsparse {
namespace {

namespace ffi = ::xla::ffi;

constexpr const char* kOp = "affected index";

// The attributes of stage `t`: `name` and its number.
class StageAttributes {
 public:
  StageAttributes(const ffi::Dictionary& all, int t) : all_(all), end_("_" + std::to_string(t)) {}

  int32_t Get(const char* name) {
    const auto value = all_.get<int64_t>(name + end_);
    const bool fits = value.has_value() && *value > INT32_MIN && *value <= INT32_MAX;
    known_ = known_ && fits;
    return fits ? static_cast<int32_t>(*value) : 0;
  }
  bool known() const { return known_; }

 private:
  const ffi::Dictionary& all_;
  std::string end_;
  bool known_ = true;
};

// Whether the kernel's 32-bit coordinates suffice along one axis.
bool AxisFits(const AffectedAxis& axis, int64_t size, int64_t out_size) {
  return axis.taps >= 1 && axis.stride >= 1 && axis.pad >= 0 &&
         size + (out_size + 32) * axis.stride + axis.taps + axis.pad < kMaxIndexAxis;
}

// The results of stage `t` for `lists` masks of `images` images; false where one has another shape.
bool ReadStage(const ffi::RemainingRets& rets, int t, int64_t lists, int64_t images,
               AffectedStage* stage) {
  auto words = rets.get<ffi::BufferR4<ffi::U32>>(4 * t);
  auto ids = rets.get<ffi::BufferR2<ffi::S32>>(4 * t + 1);
  auto count = rets.get<ffi::BufferR1<ffi::S32>>(4 * t + 2);
  auto overflow = rets.get<ffi::BufferR1<ffi::PRED>>(4 * t + 3);
  if (!words.has_value() || !ids.has_value() || !count.has_value() || !overflow.has_value()) {
    return false;
  }
  const auto w = (*words)->dimensions();
  if (w[0] != lists || w[1] != images || w[3] != (int64_t{stage->width} + 31) / 32 ||
      (*ids)->dimensions()[0] != lists || (*count)->dimensions()[0] != lists ||
      (*overflow)->dimensions()[0] != lists ||
      !IndexFits32(images, w[2], stage->width, int64_t{1} << stage->th_log2,
                   int64_t{1} << stage->tw_log2)) {
    return false;
  }
  stage->height = static_cast<int32_t>(w[2]);
  stage->capacity = (*ids)->dimensions()[1];
  stage->words = (*words)->typed_data();
  stage->ids = (*ids)->typed_data();
  stage->count = (*count)->typed_data();
  stage->overflow = static_cast<bool*>((*overflow)->untyped_data());
  return true;
}

ffi::Error AffectedIndexCall(cudaStream_t stream, ffi::BufferR4<ffi::PRED> mask,
                             ffi::ResultBufferR1<ffi::S32> scratch, ffi::RemainingRets rets,
                             ffi::Dictionary attributes) {
  const auto dims = mask.dimensions();
  AffectedArgs args{};
  args.mask = static_cast<const uint8_t*>(mask.untyped_data());
  args.lists = dims[0];
  args.images = dims[1];
  args.height = dims[2];
  args.width = dims[3];
  args.scratch = scratch->typed_data();
  args.stages = static_cast<int32_t>(rets.size() / 4);
  if (args.stages < 1 || args.stages > kMaxAffected || rets.size() % 4 != 0 ||
      !IndexFits32(dims[1], dims[2], dims[3], 1, 1)) {
    return Invalid(kOp, "there must be 1 to 4 stages, and a mask of at most 2^30 words");
  }
  for (int t = 0; t < args.stages; ++t) {
    StageAttributes of(attributes, t);
    AffectedStage& stage = args.stage[t];
    stage.rows = {of.Get("taps_h"), of.Get("stride_h"), of.Get("pad_h")};
    stage.columns = {of.Get("taps_w"), of.Get("stride_w"), of.Get("pad_w")};
    stage.width = of.Get("width");
    const int32_t tile = of.Get("tile");
    stage.th_log2 = tile / 8;
    stage.tw_log2 = tile % 8;
    if (!of.known() || stage.width < 0 || tile < 0 || tile / 8 > 5 || tile % 8 > 5 ||
        !ReadStage(rets, t, dims[0], dims[1], &stage) ||
        !AxisFits(stage.rows, dims[2], stage.height) ||
        !AxisFits(stage.columns, dims[3], stage.width)) {
      return Invalid(kOp, "results and attributes of a stage disagree, or are out of range");
    }
  }
  if (AffectedShared(args) > kMostAffectedShared) {
    return Invalid(kOp, "a row of tiles touches more of the mask than a block has room for");
  }
  if (static_cast<int64_t>(scratch->element_count()) < AffectedItems(args)) {
    return Invalid(kOp, "scratch is too small");
  }
  return CudaStatus(kOp, AffectedIndex(args, stream));
}

ffi::Error Prepare() { return CudaStatus(kOp, PrepareAffected()); }

}  // namespace
}  // namespace jaxsparse

namespace ffi = ::xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseAffectedIndexCuda, jaxsparse::AffectedIndexCall,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<cudaStream_t>>()
                                  .Arg<ffi::BufferR4<ffi::PRED>>()
                                  .Ret<ffi::BufferR1<ffi::S32>>()
                                  .RemainingRets()
                                  .Attrs(),
                              {ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseAffectedIndexCudaInit, jaxsparse::Prepare,
                              ffi::Ffi::Bind<ffi::ExecutionStage::kInitialize>());
