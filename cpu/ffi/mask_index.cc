// Handlers of jaxsparse_mask_index and jaxsparse_portfolio_index (docs/kernels/contract.md). Bits
// first, then each list from the bits, which are in the cache by then. They run inline and list in
// order.
#include <array>
#include <cstdint>
#include <optional>

#include "cpu/bits/pack.h"
#include "cpu/index/choose.h"
#include "cpu/index/tile_index.h"
#include "xla/ffi/api/ffi.h"

namespace jaxsparse::cpu {
namespace {

namespace ffi = ::xla::ffi;

using Mask = ffi::BufferR4<ffi::PRED>;
using Words = ffi::ResultBufferR4<ffi::U32>;
using Scratch = ffi::ResultBufferR1<ffi::S32>;

constexpr int64_t kMaxLists = 8;  // of a portfolio

bool SameImages(const Mask& mask, Words words) {
  const auto m = mask.dimensions(), w = words->dimensions();
  return m[0] == w[0] && m[1] == w[1] && m[2] == w[2] && w[3] == (m[3] + 31) / 32;
}

// Packs every mask.
void Pack(const Mask& mask, Words& words) {
  const auto dims = mask.dimensions();
  PackMask(static_cast<const uint8_t*>(mask.untyped_data()), dims[0] * dims[1] * dims[2], dims[3],
           words->typed_data());
}

// Mask `list`, packed, cut into tiles.
TiledMask MaskOf(const Mask& mask, Words& words, int64_t list, int64_t tile_h, int64_t tile_w) {
  const auto dims = mask.dimensions();
  const int64_t size = dims[1] * dims[2] * words->dimensions()[3];
  return {words->typed_data() + list * size, dims[1], dims[2], dims[3], tile_h, tile_w};
}

ffi::Error MaskIndex(Mask mask, Words words, ffi::ResultBufferR2<ffi::S32> ids,
                     ffi::ResultBufferR1<ffi::S32> count, ffi::ResultBufferR1<ffi::PRED> overflow,
                     Scratch, int64_t tile_h, int64_t tile_w, int64_t) {
  const int64_t lists = mask.dimensions()[0], capacity = ids->dimensions()[1];
  if (!SameImages(mask, words) || ids->dimensions()[0] != lists ||
      count->dimensions()[0] != lists || overflow->dimensions()[0] != lists || tile_h < 1 ||
      tile_w < 1) {
    return ffi::Error::InvalidArgument("mask index: operands, results and attributes disagree");
  }
  Pack(mask, words);
  for (int64_t l = 0; l < lists; ++l) {
    const int64_t found = ListTiles(MaskOf(mask, words, l, tile_h, tile_w), capacity,
                                    ids->typed_data() + l * capacity);
    count->typed_data()[l] = static_cast<int32_t>(found);
    overflow->typed_data()[l] = found > capacity;
  }
  return ffi::Error::Success();
}

// The results of one list: ids [lists, capacity], count and overflow [lists].
struct List {
  int64_t capacity;
  int32_t *ids, *count;
  bool* overflow;
};

// List `t` of the results; nothing where one has another shape.
std::optional<List> ListOf(const ffi::RemainingRets& results, int64_t t, int64_t lists) {
  auto ids = results.get<ffi::BufferR2<ffi::S32>>(3 * t);
  auto count = results.get<ffi::BufferR1<ffi::S32>>(3 * t + 1);
  auto overflow = results.get<ffi::BufferR1<ffi::PRED>>(3 * t + 2);
  if (!ids.has_value() || !count.has_value() || !overflow.has_value() ||
      (*ids)->dimensions()[0] != lists || (*count)->dimensions()[0] != lists ||
      (*overflow)->dimensions()[0] != lists) {
    return std::nullopt;
  }
  return List{(*ids)->dimensions()[1], (*ids)->typed_data(), (*count)->typed_data(),
              (*overflow)->typed_data()};
}

ffi::Error Portfolio(Mask mask, ffi::BufferR3<ffi::F32> costs, Words words,
                     ffi::ResultBufferR1<ffi::S32> choice, Scratch, ffi::RemainingRets results,
                     int64_t tiles) {
  const int64_t lists = mask.dimensions()[0], sizes = static_cast<int64_t>(results.size() / 3);
  const int64_t variants = costs.dimensions()[1];
  if (sizes > kMaxLists || results.size() % 3 != 0 || !SameImages(mask, words) ||
      costs.dimensions()[0] != lists || costs.dimensions()[2] != 5 ||
      choice->dimensions()[0] != lists) {
    return ffi::Error::InvalidArgument("portfolio index: operands and results disagree");
  }
  Pack(mask, words);
  std::array<List, kMaxLists> made;
  for (int64_t t = 0; t < sizes; ++t) {
    const auto list = ListOf(results, t, lists);
    const int64_t code = tiles >> (8 * t) & 0xff;
    if (!list || code / 8 > 5 || code % 8 > 5) {
      return ffi::Error::InvalidArgument(
          "portfolio index: ids s32[L, capacity], count s32[L], overflow pred[L] for each tile up "
          "to 32 x 32");
    }
    for (int64_t l = 0; l < lists; ++l) {
      const TiledMask tiled = MaskOf(mask, words, l, int64_t{1} << (code / 8), 1 << (code % 8));
      const int64_t found = ListTiles(tiled, list->capacity, list->ids + l * list->capacity);
      list->count[l] = static_cast<int32_t>(found);
      list->overflow[l] = found > list->capacity;
    }
    made[t] = *list;
  }
  for (int64_t l = 0; l < lists; ++l) {
    std::array<int32_t, kMaxLists> count{};
    std::array<bool, kMaxLists> overflow{};
    for (int64_t t = 0; t < sizes; ++t) {
      count[t] = made[t].count[l];
      overflow[t] = made[t].overflow[l];
    }
    choice->typed_data()[l] = ChooseVariant(costs.typed_data() + 5 * l * variants, variants,
                                            count.data(), overflow.data(), sizes);
  }
  return ffi::Error::Success();
}

}  // namespace
}  // namespace jaxsparse::cpu

namespace ffi = ::xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskIndexCpu, jaxsparse::cpu::MaskIndex,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::BufferR4<ffi::PRED>>()
                                  .Ret<ffi::BufferR4<ffi::U32>>()
                                  .Ret<ffi::BufferR2<ffi::S32>>()
                                  .Ret<ffi::BufferR1<ffi::S32>>()
                                  .Ret<ffi::BufferR1<ffi::PRED>>()
                                  .Ret<ffi::BufferR1<ffi::S32>>()
                                  .Attr<int64_t>("tile_h")
                                  .Attr<int64_t>("tile_w")
                                  .Attr<int64_t>("ordered"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparsePortfolioIndexCpu, jaxsparse::cpu::Portfolio,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::BufferR4<ffi::PRED>>()
                                  .Arg<ffi::BufferR3<ffi::F32>>()
                                  .Ret<ffi::BufferR4<ffi::U32>>()
                                  .Ret<ffi::BufferR1<ffi::S32>>()
                                  .Ret<ffi::BufferR1<ffi::S32>>()
                                  .RemainingRets()
                                  .Attr<int64_t>("tiles"));
