// The handler of jaxsparse_masked_conv_device on the CPU (docs/kernels/contract.md): the variant is
// the one that an index handler chose, or the cheapest for the counts.
#include <array>

#include "cpu/ffi/masked_conv_decode.h"
#include "cpu/ffi/masked_conv_operands.h"
#include "cpu/index/choose.h"

namespace jaxsparse {

struct ConvDeviceAttrs {
  int64_t stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w;
  int64_t lhs_dilation_h, lhs_dilation_w, groups, tile_h, tile_w;
  int64_t activation, precision, variants, lists, tiles;
};

}  // namespace jaxsparse

XLA_FFI_REGISTER_STRUCT_ATTR_DECODING(
    jaxsparse::ConvDeviceAttrs, ::xla::ffi::StructMember<int64_t>("stride_h"),
    ::xla::ffi::StructMember<int64_t>("stride_w"), ::xla::ffi::StructMember<int64_t>("pad_top"),
    ::xla::ffi::StructMember<int64_t>("pad_left"), ::xla::ffi::StructMember<int64_t>("dilation_h"),
    ::xla::ffi::StructMember<int64_t>("dilation_w"),
    ::xla::ffi::StructMember<int64_t>("lhs_dilation_h"),
    ::xla::ffi::StructMember<int64_t>("lhs_dilation_w"),
    ::xla::ffi::StructMember<int64_t>("groups"), ::xla::ffi::StructMember<int64_t>("tile_h"),
    ::xla::ffi::StructMember<int64_t>("tile_w"), ::xla::ffi::StructMember<int64_t>("activation"),
    ::xla::ffi::StructMember<int64_t>("precision"), ::xla::ffi::StructMember<int64_t>("variants"),
    ::xla::ffi::StructMember<int64_t>("lists"), ::xla::ffi::StructMember<int64_t>("tiles"));

namespace jaxsparse {
namespace {

namespace ffi = xla::ffi;

constexpr int64_t kMaxCandidates = 8, kMaxLists = 4, kEveryTile = 255;

int64_t Byte(int64_t packed, int64_t i) { return packed >> (8 * i) & 0xff; }

// The lists beyond the first, as the first one's buffers.
struct Lists {
  int64_t size = 1;
  std::array<ConvTiles, kMaxLists> tiles = {};
  std::array<int32_t, kMaxLists> count = {};
  std::array<bool, kMaxLists> overflow = {};
};

bool ReadLists(const ConvTiles& first, ffi::RemainingArgs more, int64_t sides, Lists* lists) {
  if (more.size() % 2 != 0 || more.size() / 2 + 1 > kMaxLists) return false;
  lists->size = static_cast<int64_t>(more.size() / 2 + 1);
  lists->tiles[0] = first;
  for (int64_t t = 1; t < lists->size; ++t) {
    const auto ids = more.get<ffi::BufferR1<ffi::S32>>(2 * t - 2);
    const auto count = more.get<ffi::BufferR0<ffi::S32>>(2 * t - 1);
    const int64_t code = Byte(sides, t);
    if (!ids.has_value() || !count.has_value() || code / 8 > 5 || code % 8 > 5) return false;
    ConvTiles tiles = first;
    tiles.ids = ids->typed_data();
    tiles.capacity = ids->dimensions()[0];
    tiles.count = *count->typed_data();
    tiles.grid_aligned = true;
    tiles.tile_h = int64_t{1} << (code / 8);
    tiles.tile_w = int64_t{1} << (code % 8);
    lists->tiles[t] = tiles;
  }
  for (int64_t t = 0; t < lists->size; ++t) {
    lists->count[t] = static_cast<int32_t>(lists->tiles[t].count);
    lists->overflow[t] = lists->tiles[t].count > lists->tiles[t].capacity;
  }
  return true;
}

// Whether every candidate names a variant, and a list or none.
bool ValidCandidates(const ConvDeviceAttrs& a, int64_t candidates, int64_t lists) {
  for (int64_t i = 0; i < candidates; ++i) {
    const int64_t list = Byte(a.lists, i);
    if (Byte(a.variants, i) >= kMaskedConvVariantCount) return false;
    if (list >= lists && list != kEveryTile) return false;
  }
  return true;
}

ffi::Future MaskedConvDevice(ffi::ThreadPool pool, ConvDeviceAttrs a, ffi::AnyBuffer x,
                             ffi::AnyBuffer kernel, ffi::Buffer<ffi::S32> ids,
                             ffi::BufferR0<ffi::S32> count, ffi::BufferR3<ffi::U32> words,
                             ffi::Buffer<ffi::U32> x_words, ffi::BufferR1<ffi::F32> bias,
                             ffi::AnyBuffer base, ffi::AnyBuffer residual,
                             ffi::Buffer<ffi::S32> choice, ffi::BufferR2<ffi::F32> costs,
                             ffi::RemainingArgs more, ffi::Result<ffi::AnyBuffer> out,
                             ffi::Result<ffi::BufferR1<ffi::U8>> scratch) {
  auto args =
      DecodeOperands(x, kernel, ids, count, words, x_words, bias, base, residual, out, scratch);
  if (args.has_error()) return FailedFuture(args.error());
  const ConvWindow window = {a.stride_h,   a.stride_w,   a.pad_top,        a.pad_left,
                             a.dilation_h, a.dilation_w, a.lhs_dilation_h, a.lhs_dilation_w,
                             a.groups,     a.tile_h,     a.tile_w,         a.activation};
  const int64_t candidates = costs.dimensions()[0];
  Lists lists;
  if (!SetWindow(window, 0, &*args) || candidates < 1 || candidates > kMaxCandidates ||
      costs.dimensions()[1] != 5 || choice.element_count() > 1 ||
      !ReadLists(args->tiles, more, a.tiles, &lists) ||
      !ValidCandidates(a, candidates, lists.size)) {
    return FailedFuture("masked_conv_device: an attribute, a list or a candidate is out of range");
  }
  int64_t chosen = choice.element_count() == 1
                       ? *choice.typed_data()
                       : cpu::ChooseVariant(costs.typed_data(), candidates, lists.count.data(),
                                            lists.overflow.data(), lists.size);
  if (chosen < 0 || chosen >= candidates) chosen = 0;
  const int64_t list = Byte(a.lists, chosen);
  args->variant = Byte(a.variants, chosen);
  args->tiles = lists.tiles[list == kEveryTile ? 0 : list];
  args->tiles.every = list == kEveryTile;
  return RunConv(pool, *args);
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskedConvDeviceCpu, jaxsparse::MaskedConvDevice,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Attrs<jaxsparse::ConvDeviceAttrs>()
                                  .Arg<xla::ffi::AnyBuffer>()                // x
                                  .Arg<xla::ffi::AnyBuffer>()                // kernel
                                  .Arg<xla::ffi::Buffer<xla::ffi::S32>>()    // ids
                                  .Arg<xla::ffi::BufferR0<xla::ffi::S32>>()  // count
                                  .Arg<xla::ffi::BufferR3<xla::ffi::U32>>()  // words
                                  .Arg<xla::ffi::Buffer<xla::ffi::U32>>()    // x_words
                                  .Arg<xla::ffi::BufferR1<xla::ffi::F32>>()  // bias
                                  .Arg<xla::ffi::AnyBuffer>()                // base
                                  .Arg<xla::ffi::AnyBuffer>()                // residual
                                  .Arg<xla::ffi::Buffer<xla::ffi::S32>>()    // choice
                                  .Arg<xla::ffi::BufferR2<xla::ffi::F32>>()  // costs
                                  .RemainingArgs()             // ids, count of every further list
                                  .Ret<xla::ffi::AnyBuffer>()  // out
                                  .Ret<xla::ffi::BufferR1<xla::ffi::U8>>());  // scratch
