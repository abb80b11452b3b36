// A device's memory: addresses that are reserved and not accessible, so the host cannot read them.
// Between two buffers there is a wide gap, so an address outside of its buffer is in no other.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stand_in {

struct Range {
  uintptr_t begin;
  size_t bytes;
  bool writable;  // a result
};

// Forgets all buffers.
void ClearMemory();

// A new buffer, whose address is an odd multiple of `alignment`.
void* Place(size_t bytes, size_t alignment, bool writable);

// Whether an address is one of the device's, in a buffer or not.
bool IsDeviceAddress(uintptr_t address);

// The buffer that holds these bytes, or nullptr. A range of no bytes may also be at the end of a
// buffer.
const Range* Holding(uintptr_t address, size_t bytes);

}  // namespace stand_in
