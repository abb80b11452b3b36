// The log of what a driver refuses of a call.
#pragma once

#include <string>

namespace stand_in {

// The device of this thread; a call sets it, and so does cudaSetDevice.
int Device();
void SetDevice(int device);

// Notes what is wrong; the format is printf's.
[[gnu::format(printf, 1, 2)]] void Fault(const char* format, ...);

// The faults since the last use of this, a line each.
std::string TakeFaults();

}  // namespace stand_in
