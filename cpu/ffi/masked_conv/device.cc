// The handler of jaxsparse_masked_conv_device on the CPU (contracts/masked_conv.toml): the variant
// is the one that an index handler chose, or the cheapest for the counts.
#include <array>

#include "contracts/masked_conv_device.gen.h"
#include "cpu/ffi/masked_conv/operands.h"
#include "cpu/index/choose.h"
#include "cpu/kernels/masked_conv/variants.h"

namespace jaxsparse {
namespace {

namespace ffi = xla::ffi;
using contract::masked_conv_device::Attributes;
using contract::masked_conv_device::Call;

constexpr int64_t kMaxLists = std::tuple_size_v<decltype(Call::more)> + 1;
constexpr int64_t kEveryTile = 255;

int64_t Byte(int64_t packed, int64_t i) { return packed >> (8 * i) & 0xff; }

struct Lists {
  int64_t size = 1;
  std::array<ConvTiles, kMaxLists> tiles = {};
  std::array<int32_t, kMaxLists> count = {};
  std::array<bool, kMaxLists> overflow = {};
};

// False where a list's tile has no such sides.
bool ReadLists(const ConvTiles& first, const Call& call, Lists* lists) {
  lists->size = call.more_count + 1;
  lists->tiles[0] = first;
  for (int64_t t = 1; t < lists->size; ++t) {
    const Call::More& more = call.more[t - 1];
    const int64_t code = Byte(call.tiles, t);
    if (code / 8 > 5 || code % 8 > 5) return false;
    ConvTiles tiles = first;
    tiles.ids = more.ids.as<int32_t>();
    tiles.capacity = more.more_capacity;
    tiles.count = *more.count.as<int32_t>();
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
bool ValidCandidates(const Call& call, int64_t lists) {
  for (int64_t i = 0; i < call.candidates; ++i) {
    const int64_t list = Byte(call.lists, i);
    if (Byte(call.variants, i) >= kMaskedConvVariantCount) return false;
    if (list >= lists && list != kEveryTile) return false;
  }
  return true;
}

ffi::Future MaskedConvDevice(ffi::ThreadPool pool, Attributes attributes,
                             ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::masked_conv_device::Decode(attributes, operands, results);
  if (call.has_error()) return contract::Failed(call.error());
  const std::string wrong = CheckAliases(*call);
  if (!wrong.empty()) return contract::Failed("masked_conv_device: " + wrong);
  MaskedConvArgs args = ReadForward(*call);
  Lists lists;
  if (!ReadLists(args.tiles, *call, &lists)) {
    return contract::Failed("masked_conv_device: tiles names a tile with a side above 32");
  }
  if (!ValidCandidates(*call, lists.size)) {
    return contract::Failed("masked_conv_device: variants or lists names one that does not exist");
  }
  if (call->nothing()) return contract::Done();
  int64_t chosen = call->choice.given()
                       ? *call->choice.as<int32_t>()
                       : cpu::ChooseVariant(call->costs.as<float>(), call->candidates,
                                            lists.count.data(), lists.overflow.data(), lists.size);
  if (chosen < 0 || chosen >= call->candidates) chosen = 0;
  const int64_t list = Byte(call->lists, chosen);
  args.variant = Byte(call->variants, chosen);
  args.tiles = lists.tiles[list == kEveryTile ? 0 : list];
  args.tiles.every = list == kEveryTile;
  return RunConv("masked_conv_device", pool, args);
}

}  // namespace
}  // namespace jaxsparse

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskedConvDeviceCpu, jaxsparse::MaskedConvDevice,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Attrs<jaxsparse::contract::masked_conv_device::Attributes>()
                                  .RemainingArgs()
                                  .RemainingRets());
