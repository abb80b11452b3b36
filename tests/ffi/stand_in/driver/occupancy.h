// How many blocks of a kernel a multiprocessor holds.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels.h"

namespace stand_in {

inline int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// Blocks at once; 0 where one does not fit.
inline int64_t BlocksAtOnce(const Image& image, const DeviceFacts& device, int64_t threads,
                            int64_t dynamic_bytes) {
  const int64_t warps = RoundUp(threads, 32) / 32;
  const int64_t registers = RoundUp(image.registers * 32, 256) * RoundUp(warps, 4);
  const int64_t bytes = RoundUp(image.static_bytes + dynamic_bytes + kReservedBytes, 128);
  if (image.static_bytes + dynamic_bytes > device.optin_bytes) return 0;
  return std::min({int64_t{device.blocks}, device.threads / std::max<int64_t>(warps * 32, 1),
                   kRegisters / std::max<int64_t>(registers, 1), device.shared_bytes / bytes});
}

}  // namespace stand_in
