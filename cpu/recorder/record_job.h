// Codes of segments from their values, whatever their type: a value is told by its bits (both zeros
// are zero; the bound is positive, so it has one pattern). Floor: the values once; a segment is
// left as soon as it is mixed.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/core/work_counter.h"
#include "cpu/recorder/codes.h"

namespace jaxsparse {

struct BoundedRecordArgs {
  int64_t rows, n, segment, segments;
  const void* values;  // [rows, n] of `bytes` each
  int64_t bytes;       // 2 or 4
  uint32_t upper;      // the bound's bits
  uint8_t* codes;      // [rows, segments]
};

class BoundedRecordJob {
 public:
  explicit BoundedRecordJob(const BoundedRecordArgs& args)
      : args_(args), items_((args.rows + kRows - 1) / kRows) {}

  void Run(int64_t /*worker*/) {
    int64_t item;
    while (items_.Next(&item)) {
      const int64_t last = std::min((item + 1) * kRows, args_.rows);
      for (int64_t row = item * kRows; row < last; ++row) {
        args_.bytes == 2 ? Row<uint16_t>(row) : Row<uint32_t>(row);
      }
    }
  }

 private:
  static constexpr int64_t kRows = 64, kStep = 16;

  template <typename Bits>
  void Row(int64_t row) const {
    const Bits* values = static_cast<const Bits*>(args_.values) + row * args_.n;
    for (int64_t s = 0; s < args_.segments; ++s) {
      const int64_t first = s * args_.segment, last = std::min(first + args_.segment, args_.n);
      args_.codes[row * args_.segments + s] = Code(values + first, last - first);
    }
  }

  template <typename Bits>
  uint8_t Code(const Bits* values, int64_t count) const {
    const Bits magnitude = static_cast<Bits>(static_cast<Bits>(-1) >> 1);
    const Bits upper = static_cast<Bits>(args_.upper);
    Bits any = 0, other = 0;
    for (int64_t first = 0; first < count && !(any && other); first += kStep) {
      const int64_t last = std::min(first + kStep, count);
      for (int64_t i = first; i < last; ++i) {
        any |= values[i] & magnitude;
        other |= values[i] ^ upper;
      }
    }
    return !any ? kZero : !other ? kUpper : kMixed;
  }

  BoundedRecordArgs args_;
  WorkCounter items_;
};

}  // namespace jaxsparse
