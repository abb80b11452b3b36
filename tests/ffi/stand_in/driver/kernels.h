// The kernels of the program, and what their machine code says about each.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "devices.h"

namespace stand_in {

// What the code for one architecture says.
struct Image {
  int registers = 0;                // of a thread
  int static_bytes = 0;             // of shared memory
  int most_threads = kMostThreads;  // the launch bound
  std::vector<int> parameters;      // the size of each, in order
};

struct Kernel {
  std::string name;
  std::map<int, Image> images;  // by the capability that they are compiled for
  bool translated = false;      // has PTX for newer devices
  struct Limits {
    int dynamic_bytes = -1;  // as cudaFuncSetAttribute set it
    bool wide_clusters = false;
    long launches = 0;
  };
  std::array<Limits, kDeviceCount> limits;

  // What a device runs: the newest code of its own major version, not newer than the device; or
  // nullptr.
  const Image* On(int device) const;
};

using Kernels = std::map<std::string, Kernel>;

// Every kernel that was registered, by its symbol.
Kernels& AllKernels();

// The kernel of a host function or of a handle; nullptr for neither.
Kernel* Find(const void* entry);
void Bind(const void* entry, Kernel* kernel);

// Adds the kernels of a fat binary, as nvcc places it in an object.
void ReadFatBinary(const void* data);

}  // namespace stand_in
