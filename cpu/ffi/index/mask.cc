// Handlers of jaxsparse_mask_index and jaxsparse_portfolio_index (contracts/index.toml). Bits
// first, then each list from the bits, which are in the cache by then. They run inline and list in
// order.
#include <array>
#include <cstdint>

#include "contracts/mask_index.gen.h"
#include "contracts/portfolio_index.gen.h"
#include "cpu/bits/pack.h"
#include "cpu/index/choose.h"
#include "cpu/index/tile_index.h"

namespace jaxsparse::cpu {
namespace {

namespace ffi = ::xla::ffi;
using PortfolioCall = contract::portfolio_index::Call;

constexpr int64_t kMaxLists = std::tuple_size_v<decltype(PortfolioCall::more)>;

// Packs every mask.
template <class Call>
void Pack(const Call& c) {
  if (!c.mask_words.given()) return;
  PackMask(c.mask.template as<uint8_t>(), c.lists * c.batch * c.height, c.width,
           c.mask_words.template as<uint32_t>());
}

// Lists the tiles of every packed mask; `results` has ids, count and overflow.
template <class Call, class Results>
void List(const Call& c, int64_t tile_h, int64_t tile_w, int64_t capacity, const Results& results) {
  const int64_t size = c.lists > 0 ? c.mask_words.size / c.lists : 0;
  for (int64_t l = 0; l < c.lists; ++l) {
    const TiledMask mask{c.mask_words.template as<uint32_t>() + l * size,
                         c.batch,
                         c.height,
                         c.width,
                         tile_h,
                         tile_w};
    const int64_t found =
        ListTiles(mask, capacity, results.ids.template as<int32_t>() + l * capacity);
    results.count.template as<int32_t>()[l] = static_cast<int32_t>(found);
    results.overflow.template as<bool>()[l] = found > capacity;
  }
}

ffi::Error MaskIndex(contract::mask_index::Attributes attributes, ffi::RemainingArgs operands,
                     ffi::RemainingRets results) {
  const auto call = contract::mask_index::Decode(attributes, operands, results);
  if (call.has_error()) return call.error();
  Pack(*call);
  List(*call, call->tile_h, call->tile_w, call->capacity, *call);
  return ffi::Error::Success();
}

// The variant of least cost for every mask, by the counts that its lists have.
void Choose(const PortfolioCall& c) {
  for (int64_t l = 0; l < c.lists; ++l) {
    std::array<int32_t, kMaxLists> count{};
    std::array<bool, kMaxLists> overflow{};
    for (int64_t t = 0; t < c.more_count; ++t) {
      count[t] = c.more[t].count.as<int32_t>()[l];
      overflow[t] = c.more[t].overflow.as<bool>()[l];
    }
    c.choice.as<int32_t>()[l] = ChooseVariant(c.costs.as<float>() + 5 * l * c.variants, c.variants,
                                              count.data(), overflow.data(), c.more_count);
  }
}

ffi::Error Portfolio(contract::portfolio_index::Attributes attributes, ffi::RemainingArgs operands,
                     ffi::RemainingRets results) {
  const auto call = contract::portfolio_index::Decode(attributes, operands, results);
  if (call.has_error()) return call.error();
  const auto code = [&](int64_t t) { return call->tiles >> (8 * t) & 0xff; };
  for (int64_t t = 0; t < call->more_count; ++t) {
    if (code(t) / 8 > 5 || code(t) % 8 > 5) {
      return ffi::Error::InvalidArgument("portfolio_index: tiles names a side above 32");
    }
  }
  Pack(*call);
  for (int64_t t = 0; t < call->more_count; ++t) {
    const PortfolioCall::More& list = call->more[t];
    List(*call, int64_t{1} << (code(t) / 8), int64_t{1} << (code(t) % 8), list.capacity, list);
  }
  Choose(*call);
  return ffi::Error::Success();
}

}  // namespace
}  // namespace jaxsparse::cpu

namespace ffi = ::xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseMaskIndexCpu, jaxsparse::cpu::MaskIndex,
                              ffi::Ffi::Bind()
                                  .Attrs<jaxsparse::contract::mask_index::Attributes>()
                                  .RemainingArgs()
                                  .RemainingRets());

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparsePortfolioIndexCpu, jaxsparse::cpu::Portfolio,
                              ffi::Ffi::Bind()
                                  .Attrs<jaxsparse::contract::portfolio_index::Attributes>()
                                  .RemainingArgs()
                                  .RemainingRets());
