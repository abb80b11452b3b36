// Cases that the stand-in's runtime accepts or refuses. Prints the cases with a wrong answer, and
// returns their number. `test_driver.py` runs it.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <functional>
#include <string>

#include "driver/kernels.h"
#include "driver/launch.h"
#include "driver/log.h"
#include "driver/memory.h"
#include "driver/tensor_map.h"

using namespace stand_in;

namespace {

constexpr size_t kBytes = 1 << 20;

Kernel kernel;
char *operand, *result;

// A launch with one parameter, an address.
cudaError_t Run(cudaLaunchConfig_t config, void* address) {
  void* arguments[] = {&address};
  return cudaLaunchKernelExC(&config, &kernel, arguments);
}

cudaLaunchConfig_t Config(dim3 grid, dim3 block, size_t bytes = 0) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = bytes;
  config.stream = GivenStream();
  return config;
}

cudaError_t Clustered(unsigned cluster, dim3 grid, bool cooperative = false) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cooperative ? cudaLaunchAttributeCooperative : cudaLaunchAttributeClusterDimension;
  if (cooperative) {
    attribute.val.cooperative = 1;
  } else {
    attribute.val.clusterDim = {cluster, 1, 1};
  }
  cudaLaunchConfig_t config = Config(grid, 256);
  config.attrs = &attribute;
  config.numAttrs = 1;
  return Run(config, result);
}

CUresult Encode(void* address, cuuint64_t stride, cuuint32_t columns, cuuint32_t rows) {
  alignas(64) CUtensorMap map;
  const cuuint64_t sizes[] = {64, 128}, strides[] = {stride};
  const cuuint32_t box[] = {columns, rows}, steps[] = {1, 1};
  return EncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, address, sizes, strides, box, steps,
                     CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                     CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

struct Case {
  const char* wanted;  // in what is noted; empty: nothing is
  std::function<void()> run;
};

const Case kCases[] = {
    {"", [] { Run(Config(1, 256), result); }},
    {"", [] { Run(Config({1, 65535, 1}, 384), result + kBytes); }},  // an empty part behind
    {"", [] { Clustered(8, 16); }},
    {"", [] { Encode(operand, 128, 64, 128); }},
    {"", [] { cudaMemsetAsync(result, 0, kBytes, GivenStream()); }},
    {"a size is 0", [] { Run(Config(0, 256), result); }},
    {"the grid is too large", [] { Run(Config({1, 65536, 1}, 256), result); }},
    {"the block is too large", [] { Run(Config(1, 1025), result); }},
    {"launch bound", [] { Run(Config(1, 385), result); }},
    {"more shared memory than was asked for", [] { Run(Config(1, 256, 49 << 10), result); }},
    {"bytes of shared memory",
     [] { cudaFuncSetAttribute(&kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 << 10); }},
    {"a block does not fit",
     [] {
       Run(Config(1, 256), result), kernel.images[90].registers = 255, Run(Config(1, 384), result),
                                    kernel.images[90].registers = 64;
     }},
    {"not of whole clusters", [] { Clustered(8, 12); }},
    {"the cluster is too large", [] { Clustered(16, 16); }},
    {"the device has no clusters", [] { SetDevice(1), Clustered(2, 2), SetDevice(0); }},
    {"a cooperative grid does not fit", [] { Clustered(1, 1 << 20, true); }},
    {"no code for this device", [] { SetDevice(5), Run(Config(1, 256), result), SetDevice(0); }},
    {"another stream",
     [] {
       cudaLaunchConfig_t config = Config(1, 256);
       config.stream = nullptr;
       Run(config, result);
     }},
    {"an address in no buffer", [] { Run(Config(1, 256), result + kBytes + 1); }},
    {"in no buffer", [] { cudaMemsetAsync(result + 1, 0, kBytes, GivenStream()); }},
    {"writes an operand", [] { cudaMemsetAsync(operand, 0, 1, GivenStream()); }},
    {"in no buffer",
     [] { cudaMemcpyAsync(result, operand, kBytes + 1, cudaMemcpyDeviceToDevice, GivenStream()); }},
    {"of kind 1",
     [] { cudaMemcpyAsync(result, operand, 1, cudaMemcpyHostToDevice, GivenStream()); }},
    {"the address is not aligned", [] { Encode(operand + 8, 128, 64, 64); }},
    {"a stride is not", [] { Encode(operand, 136, 64, 64); }},
    {"a side of the box", [] { Encode(operand, 128, 64, 257); }},
    {"wider than the swizzle", [] { Encode(operand, 256, 128, 64); }},
    {"does not lie in a buffer", [] { Encode(operand + kBytes - 1024, 128, 64, 64); }},
};

}  // namespace

int main() {
  kernel.name = "kernel";
  kernel.images[80] = kernel.images[90] = {64, 0, 384, {8}};
  Bind(&kernel, &kernel);
  ClearMemory();
  operand = static_cast<char*>(Place(kBytes, 256, false));
  result = static_cast<char*>(Place(kBytes, 256, true));
  int wrong = 0;
  for (const Case& c : kCases) {
    c.run();
    const std::string noted = TakeFaults();
    const bool right = *c.wanted == 0 ? noted.empty() : noted.find(c.wanted) != std::string::npos;
    if (!right) printf("expected '%s', found '%s'\n", c.wanted, noted.c_str());
    wrong += !right;
  }
  return wrong;
}
