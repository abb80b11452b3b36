// What a call did that a driver refuses, and which kernels it launched.
#pragma once

#include <string>

namespace stand_in {

// The device of this thread; a call sets it, and so does cudaSetDevice.
int Device();
void SetDevice(int device);

// Notes what is wrong, beside what the call was. printf's format.
[[gnu::format(printf, 1, 2)]] void Fault(const char* format, ...);

// The faults since the last time, a line each.
std::string TakeFaults();

}  // namespace stand_in
