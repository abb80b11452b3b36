#include "memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <vector>

namespace stand_in {
namespace {

// More than any device has: one range of 2^39 bytes. The high halves of its addresses are numbers
// that are rarely sizes, so that two adjacent 32-bit numbers are not mistaken for an address.
constexpr uintptr_t kWanted = 0x6b4000000000;
constexpr size_t kReserved = size_t{1} << 39;
constexpr size_t kGap = size_t{1} << 30;

std::vector<Range> ranges;
uintptr_t next = 0;

uintptr_t Base() {
  static const uintptr_t base = [] {
    void* found = mmap(reinterpret_cast<void*>(kWanted), kReserved, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) abort();
    return reinterpret_cast<uintptr_t>(found);
  }();
  return base;
}

}  // namespace

void ClearMemory() {
  ranges.clear();
  next = Base() + kGap;
}

void* Place(size_t bytes, size_t alignment, bool writable) {
  const uintptr_t begin = (next + 4096) / 4096 * 4096 + alignment;
  if (bytes > kReserved || begin + bytes + kGap > Base() + kReserved) return nullptr;
  next = begin + bytes + kGap;
  ranges.push_back({begin, bytes, writable});
  return reinterpret_cast<void*>(begin);
}

bool IsDeviceAddress(uintptr_t address) {
  return address >= Base() && address < Base() + kReserved;
}

const Range* Holding(uintptr_t address, size_t bytes) {
  for (const Range& range : ranges) {
    if (address >= range.begin && address - range.begin <= range.bytes &&
        bytes <= range.bytes - (address - range.begin)) {
      return &range;
    }
  }
  return nullptr;
}

}  // namespace stand_in
