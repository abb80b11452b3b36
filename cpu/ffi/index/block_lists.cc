// The handler of jaxsparse_block_lists on the CPU (contracts/block_lists.toml). It runs inline.
#include "cpu/index/blocks/block_lists.h"
#include "contracts/block_lists.gen.h"

namespace jaxsparse::cpu {
namespace {

namespace ffi = ::xla::ffi;

ffi::Error BothLists(ffi::RemainingArgs operands, ffi::RemainingRets results) {
  const auto call = contract::block_lists::Decode(operands, results);
  if (call.has_error()) return call.error();
  const auto& c = *call;
  if (c.nothing()) return ffi::Error::Success();
  const int64_t size = c.rows * c.columns;
  // An array without elements has no data, and none of it is touched.
  const auto from = [](const contract::Array& array, int64_t first) {
    return array.given() ? array.as<int32_t>() + first : nullptr;
  };
  for (int64_t i = 0; i < c.batch * c.heads; ++i) {
    const BlockLists by_row{from(c.kv_counts, i * c.rows), from(c.kv_blocks, i * size),
                            from(c.kv_slots, i * size)};
    const BlockLists by_column{from(c.q_counts, i * c.columns), from(c.q_blocks, i * size),
                               from(c.q_slots, i * size)};
    if (c.codes.type == ffi::DataType::PRED) {
      const auto* active = c.codes.given() ? c.codes.as<uint8_t>() + i * size : nullptr;
      ListBlocks(active, c.rows, c.columns, by_row, by_column);
    } else {
      ListBlocks(from(c.codes, i * size), c.rows, c.columns, by_row, by_column);
    }
  }
  return ffi::Error::Success();
}

}  // namespace
}  // namespace jaxsparse::cpu

namespace ffi = ::xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxsparseBlockListsCpu, jaxsparse::cpu::BothLists,
                              ffi::Ffi::Bind().RemainingArgs().RemainingRets());
