// Handler of jaxsparse_affected_index on CUDA (contracts/index.toml). A stage brings attributes and
// results of its own, so the checks are written here and not made from a declaration.
#include <cstdint>
#include <string>

#include "cuda/ffi/common.h"
#include "cuda/ffi/index/limits.h"
#include "cuda/index/affected_index.h"

namespace jaxsparse {
namespace {

using contract::Array;
using ffi::DataType;

constexpr char kOp[] = "affected_index";
constexpr size_t kStageResults = 4;

// The attributes of stage `t`: a name and its number.
class StageAttributes {
 public:
  StageAttributes(const ffi::Dictionary& all, int t, contract::Checker* check)
      : all_(all), end_("_" + std::to_string(t)), check_(check) {}

  int32_t Get(const std::string& name, int64_t least, int64_t most = kMaxIndexAxis) const {
    return static_cast<int32_t>(check_->Attribute(all_, name + end_, least, most));
  }
  AffectedAxis Axis(const std::string& side) const {
    return {Get("taps_" + side, 1), Get("stride_" + side, 1), Get("pad_" + side, 0)};
  }

 private:
  const ffi::Dictionary& all_;
  std::string end_;
  contract::Checker* check_;
};

// Whether the kernel's 32-bit coordinates suffice along one axis.
bool AxisFits(const AffectedAxis& axis, Checked size, Checked out_size) {
  return size + (out_size + 32) * axis.stride + axis.taps + axis.pad < kMaxIndexAxis;
}

// The results of stage `t`; its attributes are read.
void ReadResults(const AffectedArgs& args, const ffi::RemainingRets& results, int t,
                 contract::Checker* check, AffectedStage* stage) {
  const size_t first = 1 + kStageResults * static_cast<size_t>(t);
  const Array words = check->Result("words", results, first);
  const Array ids = check->Result("ids", results, first + 1);
  const Array count = check->Result("count", results, first + 2);
  const Array overflow = check->Result("overflow", results, first + 3);
  if (!check->ok()) return;
  check->Type("words", words, {DataType::U32}, "u32");
  check->Type("ids", ids, {DataType::S32}, "s32");
  check->Type("count", count, {DataType::S32}, "s32");
  check->Type("overflow", overflow, {DataType::PRED}, "pred");
  const int64_t height = words.rank == 4 ? words.dims[2] : 0;
  const int64_t capacity = ids.rank == 2 ? ids.dims[1] : 0;
  check->Shape("words", words, {args.lists, args.images, height, WordsOf(stage->width)},
               "[lists, batch, out_h, words(width)]");
  check->Shape("ids", ids, {args.lists, capacity}, "[lists, capacity]");
  check->Shape("count", count, {args.lists}, "[lists]");
  check->Shape("overflow", overflow, {args.lists}, "[lists]");
  check->Relation(IndexFits32(args.images, height, stage->width, int64_t{1} << stage->th_log2,
                              int64_t{1} << stage->tw_log2) &&
                      AxisFits(stage->rows, args.height, height) &&
                      AxisFits(stage->columns, args.width, stage->width),
                  "sizes, strides, taps and pads of a stage add up to less than 2^30");
  if (!check->ok()) return;
  stage->height = static_cast<int32_t>(height);
  stage->capacity = capacity;
  stage->words = words.as<uint32_t>();
  stage->ids = ids.as<int32_t>();
  stage->count = count.as<int32_t>();
  stage->overflow = overflow.as<bool>();
}

void ReadStage(const ffi::Dictionary& attributes, const ffi::RemainingRets& results, int t,
               contract::Checker* check, AffectedArgs* args) {
  const StageAttributes of(attributes, t, check);
  AffectedStage& stage = args->stage[t];
  stage.rows = of.Axis("h");
  stage.columns = of.Axis("w");
  stage.width = of.Get("width", 0);
  const TileCode tile = TileCodeOf(of.Get("tile", 0, 45));
  check->Relation(tile.valid(), "a tile has sides up to 32");
  stage.th_log2 = tile.th_log2;
  stage.tw_log2 = tile.tw_log2;
  if (check->ok()) ReadResults(*args, results, t, check, &stage);
}

// The mask, its sizes and how many stages there are.
void ReadMask(const ffi::RemainingArgs& operands, const ffi::RemainingRets& results,
              contract::Checker* check, AffectedArgs* args) {
  check->Count("operands", operands.size(), 1, 1);
  check->Count("results", results.size(), 1 + kStageResults, 1 + kStageResults * kMaxAffected,
               kStageResults);
  if (!check->ok()) return;
  const Array mask = check->Operand("mask", operands, 0);
  if (!check->ok()) return;
  check->Type("mask", mask, {DataType::PRED}, "pred");
  if (mask.rank != 4) return check->Fail("mask must be [lists, batch, height, width]");
  args->mask = mask.as<uint8_t>();
  args->lists = mask.dims[0];
  args->images = mask.dims[1];
  args->height = mask.dims[2];
  args->width = mask.dims[3];
  args->stages = static_cast<int32_t>((results.size() - 1) / kStageResults);
  check->Relation(IndexFits32(args->images, args->height, args->width, 1, 1),
                  "mask has at most 2^30 words of bits");
}

ffi::Error AffectedIndexCall(cudaStream_t stream, ffi::RemainingArgs operands,
                             ffi::RemainingRets results, ffi::Dictionary attributes) {
  contract::Checker check(kOp);
  AffectedArgs args{};
  ReadMask(operands, results, &check, &args);
  for (int t = 0; t < args.stages && check.ok(); ++t) {
    ReadStage(attributes, results, t, &check, &args);
  }
  if (!check.ok()) return check.error();
  const Array scratch = check.Result("scratch", results, 0);
  if (check.ok()) check.Type("scratch", scratch, {DataType::S32}, "s32");
  check.Relation(AffectedShared(args) <= kMostAffectedShared,
                 "a row of tiles touches at most 96 KiB of the mask's words");
  check.Room(scratch.size, AffectedItems(args), "entries");
  if (!check.ok()) return check.error();
  args.scratch = scratch.as<int32_t>();
  return CudaStatus(kOp, AffectedIndex(args, stream));
}

ffi::Error Prepare() { return CudaStatus(kOp, PrepareAffected()); }

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseAffectedIndexCuda, jaxsparse::AffectedIndexCall,
                              jaxsparse::BindPlainCall().Attrs(),
                              {xla::ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseAffectedIndexCudaInit, jaxsparse::Prepare,
                              jaxsparse::BindInit());
