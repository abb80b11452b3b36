// The devices that the stand-in has: one of each architecture that a release has kernels for.
// Figures of NVIDIA's CUDA C++ Programming Guide ("Technical Specifications per Compute
// Capability").
#pragma once

#include <cstddef>

namespace stand_in {

struct DeviceFacts {
  const char* name;
  int capability;  // 10 * major + minor
  int multiprocessors;
  int optin_bytes;   // shared memory that a block may take
  int shared_bytes;  // of a multiprocessor
  int threads;       // resident on a multiprocessor
  int blocks;        // resident on a multiprocessor
};

inline constexpr DeviceFacts kDevices[] = {
    {"sm_90", 90, 132, 227 << 10, 228 << 10, 2048, 32},
    {"sm_80", 80, 108, 163 << 10, 164 << 10, 2048, 32},
    {"sm_86", 86, 84, 99 << 10, 100 << 10, 1536, 16},
    {"sm_89", 89, 142, 99 << 10, 100 << 10, 1536, 24},
    {"sm_100", 100, 148, 227 << 10, 228 << 10, 2048, 32},
    {"sm_120", 120, 170, 99 << 10, 100 << 10, 1536, 24},
};
inline constexpr int kDeviceCount = sizeof(kDevices) / sizeof(kDevices[0]);

inline constexpr int kReservedBytes = 1 << 10;  // of shared memory, in each block
inline constexpr int kRegisters = 64 << 10;     // of a multiprocessor
inline constexpr int kMostThreads = 1024;       // of a block

}  // namespace stand_in
