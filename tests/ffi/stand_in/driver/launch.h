// The checks of a launch.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels.h"

namespace stand_in {

struct Launch {
  dim3 grid, block;
  int64_t dynamic_bytes;
  cudaStream_t stream;
  dim3 cluster = {1, 1, 1};
  bool cooperative = false;
};

// The stream that every call is given.
cudaStream_t GivenStream();

// Notes the launch, or what a driver refuses about it.
cudaError_t CheckLaunch(Kernel* kernel, const Launch& launch, void** arguments);

// Clusters of a launch that the device holds at once; 0 where none fits.
int64_t ClustersAtOnce(const Image& image, const Launch& launch);

}  // namespace stand_in
