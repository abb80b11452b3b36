#include "launch.h"

#include <cstring>

#include "log.h"
#include "memory.h"
#include "occupancy.h"

namespace stand_in {
namespace {

constexpr int64_t kMostClusters = 8, kMostWideClusters = 16;  // blocks of a cluster
constexpr int64_t kSharedByDefault = 48 << 10;

int64_t Product(dim3 sizes) { return int64_t{sizes.x} * sizes.y * sizes.z; }

// What is wrong with the sizes, or nullptr.
const char* SizesReason(const Launch& launch) {
  const auto [gx, gy, gz] = launch.grid;
  const auto [bx, by, bz] = launch.block;
  if (Product(launch.grid) == 0 || Product(launch.block) == 0) return "a size is 0";
  if (gx > INT32_MAX || gy > 65535 || gz > 65535) return "the grid is too large";
  if (bx > 1024 || by > 1024 || bz > 64 || Product(launch.block) > kMostThreads) {
    return "the block is too large";
  }
  return nullptr;
}

const char* ClusterReason(const Kernel& kernel, const Image& image, const Launch& launch) {
  const int64_t cluster = Product(launch.cluster);
  if (cluster == 1) return nullptr;
  if (kDevices[Device()].capability < 90) return "the device has no clusters";
  const bool wide = kernel.limits[Device()].wide_clusters;
  if (cluster == 0 || cluster > (wide ? kMostWideClusters : kMostClusters)) {
    return "the cluster is too large";
  }
  if (launch.grid.x % launch.cluster.x != 0 || launch.grid.y % launch.cluster.y != 0 ||
      launch.grid.z % launch.cluster.z != 0) {
    return "the grid is not of whole clusters";
  }
  return ClustersAtOnce(image, launch) == 0 ? "no cluster fits on the device" : nullptr;
}

const char* ResourcesReason(const Kernel& kernel, const Image& image, const Launch& launch) {
  const auto& limits = kernel.limits[Device()];
  if (Product(launch.block) > image.most_threads) return "more threads than the launch bound";
  const int64_t allowed =
      limits.dynamic_bytes < 0 ? kSharedByDefault - image.static_bytes : limits.dynamic_bytes;
  if (launch.dynamic_bytes > allowed) return "more shared memory than was asked for";
  const int64_t blocks =
      BlocksAtOnce(image, kDevices[Device()], Product(launch.block), launch.dynamic_bytes);
  if (blocks == 0) return "a block does not fit on a multiprocessor";
  if (launch.cooperative && Product(launch.grid) > blocks * kDevices[Device()].multiprocessors) {
    return "a cooperative grid does not fit on the device";
  }
  return nullptr;
}

// Checks that the addresses in a kernel's parameters are in buffers of the call.
bool CheckArguments(const Kernel& kernel, const Image& image, void** arguments) {
  for (size_t i = 0; i < image.parameters.size(); ++i) {
    const char* const bytes = static_cast<const char*>(arguments[i]);
    for (int at = 0; at + 8 <= image.parameters[i]; at += 8) {
      uintptr_t word;
      memcpy(&word, bytes + at, sizeof(word));
      if (IsDeviceAddress(word) && Holding(word, 0) == nullptr) {
        Fault("%s: parameter %zu, byte %d: an address in no buffer", kernel.name.c_str(), i, at);
        return false;
      }
    }
  }
  return true;
}

}  // namespace

cudaStream_t GivenStream() {
  static char stream;
  return reinterpret_cast<cudaStream_t>(&stream);
}

int64_t ClustersAtOnce(const Image& image, const Launch& launch) {
  const DeviceFacts& device = kDevices[Device()];
  const int64_t blocks = BlocksAtOnce(image, device, Product(launch.block), launch.dynamic_bytes);
  return blocks * device.multiprocessors / Product(launch.cluster);
}

cudaError_t CheckLaunch(Kernel* kernel, const Launch& launch, void** arguments) {
  const Image* const image = kernel->On(Device());
  const char* reason = image == nullptr ? "no code for this device" : SizesReason(launch);
  if (reason == nullptr && launch.stream != GivenStream()) reason = "another stream";
  if (reason == nullptr) reason = ClusterReason(*kernel, *image, launch);
  if (reason == nullptr) reason = ResourcesReason(*kernel, *image, launch);
  if (reason != nullptr) {
    Fault("%s: grid %u %u %u, block %u %u %u, cluster %u, %lld bytes: %s", kernel->name.c_str(),
          launch.grid.x, launch.grid.y, launch.grid.z, launch.block.x, launch.block.y,
          launch.block.z, launch.cluster.x, static_cast<long long>(launch.dynamic_bytes), reason);
    return image == nullptr ? cudaErrorNoKernelImageForDevice : cudaErrorInvalidConfiguration;
  }
  if (!CheckArguments(*kernel, *image, arguments)) return cudaErrorInvalidValue;
  ++kernel->limits[Device()].launches;
  return cudaSuccess;
}

}  // namespace stand_in
