// What a recorder says of a segment: the contract's SegmentCode, as the byte that is stored.
#pragma once

#include <cstdint>

#include "contracts/enums.gen.h"

namespace jaxsparse {

constexpr auto kMixed = static_cast<uint8_t>(SegmentCode::kMixed);
constexpr auto kZero = static_cast<uint8_t>(SegmentCode::kZero);
constexpr auto kUpper = static_cast<uint8_t>(SegmentCode::kUpper);

}  // namespace jaxsparse
