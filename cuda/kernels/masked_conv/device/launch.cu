// The launcher of the masked convolution that chooses on the device: checks every candidate, lays
// out the workspace, one launch.
#include "cuda/kernels/masked_conv/device/launch.h"

#include <algorithm>
#include <cmath>

#include "cuda/core/dtype.cuh"
#include "cuda/kernels/masked_conv/device/mma.h"
#include "cuda/kernels/masked_conv/device/params.h"
#include "cuda/kernels/masked_conv/devices.h"
#include "cuda/kernels/masked_conv/mma/launch.h"
#include "cuda/kernels/masked_conv/problem.h"
#include "cuda/kernels/masked_conv/wgmma/launch.h"
#include "cuda/kernels/masked_conv/workspace.h"
#include "cuda/kernels/masked_conv/zero_fill.h"
#include "cuda/tile/conv/partial_tile.cuh"

namespace jaxsparse {
namespace {

constexpr int kTypes = 3;
constexpr int64_t kFlagBytes = kMaxConvCtas * kConsumerWarps * sizeof(uint64_t);

// One element type's kernel, in the order of DType.
struct Kernel {
  bool (*holds)(int), (*loads_boxes)(int);
  int (*columns)(int), (*parts)(int);
  cudaError_t (*prepare)(int (&)[kMostParts + 1]);
  cudaError_t (*launch)(const DeviceParams&, const CUtensorMap&, const CUtensorMap&, int, int, bool,
                        int, cudaStream_t);
};

template <typename T>
constexpr Kernel KernelOf() {
  using Device = MaskedConvDevice<T>;
  return {&Device::Holds, &Device::LoadsBoxes, &Device::Columns,
          &Device::Parts, &Device::Prepare,    &Device::Launch};
}
constexpr Kernel kKernels[kTypes] = {KernelOf<TF32>(), KernelOf<__nv_bfloat16>(),
                                     KernelOf<__half>()};

static_assert(kMaxConvCtas % kMostParts == 0, "the most CTAs are whole clusters");

struct Device {
  int ctas[kTypes][kMostParts + 1] = {};  // at once, in clusters of so many
};
ConvDevices<Device> devices;

int RowOf(int variant) { return variant - static_cast<int>(kFirstTensorCoreRow); }

bool Streams(const ConvGeometry& g, DType type, int variant) {
  return MaskedConvWgmmaScratchBytes(g, type, RowOf(variant)) > ConvWeightBytes(g, type);
}

bool LoadsBoxes(const MaskedConvArgs& a, int variant) {
  return kKernels[static_cast<int>(a.in_type)].loads_boxes(variant);
}

// Every tile of the mask, one after the other: no list.
TileList EveryTile(const MaskedConvArgs& a, int side) {
  const ConvGeometry& g = a.geometry;
  const int64_t tiles = g.batch * ((g.out_h + side - 1) / side) * ((g.out_w + side - 1) / side);
  return {nullptr, nullptr, tiles, side, side, true, a.tiles.words};
}

// The tiles that candidate `c` visits.
TileList TilesOf(const MaskedConvArgs& a, const ConvChoice& choice, const ConvCandidate& c) {
  if (c.list != kEveryTile) return choice.list[c.list];
  return EveryTile(a, LoadsBoxes(a, c.variant) ? kBlockSide : 1);
}

// What most calls are, and the kernels with less code take: windows without dilation over inputs
// that all count, results of the input's type to which nothing is added but the bias, rectified at
// most, and lists of the grid's pixels, for boxes of its blocks of 8 x 8.
bool IsPlainCall(const ConvParams& p, const MaskedConvArgs& a, const ConvChoice& choice) {
  if (!p.plain || p.residual != nullptr || p.gated || std::isfinite(p.high)) return false;
  if (a.out_type != a.in_type) return false;
  for (int i = 0; i < choice.candidates; ++i) {
    const ConvCandidate& c = choice.candidate[i];
    const TileList tiles = TilesOf(a, choice, c);
    const int side = LoadsBoxes(a, c.variant) ? kBlockSide : 1;
    if (!tiles.grid_aligned || tiles.tile_h != side || tiles.tile_w != side) return false;
  }
  return true;
}

// Zeros in launches of their own, one for each list in `late`: a list that overflows leaves pixels
// that no tile computes, whichever candidate visits it.
cudaError_t FillZeros(const MaskedConvArgs& args, const ConvChoice& choice,
                      const bool (&late)[kMaxLists], cudaStream_t stream) {
  MaskedConvArgs a = args;
  for (int t = 0; t < choice.lists; ++t) {
    if (!late[t]) continue;
    a.tiles = choice.list[t];
    a.tiles.words = args.tiles.words;
    const cudaError_t status = LaunchZeroFill(a, stream);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

DeviceParams MakeDeviceParams(const MaskedConvArgs& a, const ConvChoice& choice) {
  DeviceParams p = {};
  p.conv = MakeConvParams(a);
  p.candidates = choice.candidates;
  for (int i = 0; i < choice.candidates; ++i) {
    const ConvCandidate& c = choice.candidate[i];
    p.variant[i] = c.variant;
    p.source[i] = c.list != kEveryTile ? c.list : choice.lists + LoadsBoxes(a, c.variant);
  }
  for (int t = 0; t < choice.lists; ++t) p.rows[t] = MakeRowList(a.geometry, choice.list[t]);
  p.rows[choice.lists] = MakeRowList(a.geometry, EveryTile(a, 1));
  p.rows[choice.lists + 1] = MakeRowList(a.geometry, EveryTile(a, kBlockSide));
  p.choice = choice.choice;
  p.costs = choice.costs;
  return p;
}

}  // namespace

const char* MaskedConvDeviceReason(const MaskedConvArgs& args, const ConvChoice& choice) {
  if (choice.candidates < 1 || choice.candidates > kMaxCandidates) {
    return "there must be 1 to 8 candidates";
  }
  if (choice.lists < 1 || choice.lists > kMaxLists) return "there must be 1 to 4 lists";
  if (choice.choice == nullptr && choice.costs == nullptr) return "neither choice nor costs";
  const Kernel& kernel = kKernels[static_cast<int>(args.in_type)];
  int parts = 1;
  MaskedConvArgs one = args;
  for (int i = 0; i < choice.candidates; ++i) {
    const ConvCandidate& c = choice.candidate[i];
    if (c.list != kEveryTile && (c.list < 0 || c.list >= choice.lists)) {
      return "a candidate names no list";
    }
    const bool mma = IsMaskedConvMma(c.variant);
    if (!mma && !kernel.holds(c.variant)) {
      return "a candidate is not in the variant tables that the device chooses among";
    }
    if (!mma) {
      const int these = kernel.parts(c.variant);
      if (these > 1 && parts > 1 && these != parts)
        return "candidates need clusters of different sizes";
      parts = std::max(parts, these);
    }
    one.tiles = TilesOf(args, choice, c);
    const char* reason =
        mma ? MaskedConvMmaReason(one, c.variant) : MaskedConvWgmmaReason(one, RowOf(c.variant));
    if (reason != nullptr) return reason;
  }
  return nullptr;
}

int64_t MaskedConvDeviceScratchBytes(const ConvGeometry& g, DType type, const int* variants,
                                     int count) {
  int64_t most = 0;
  for (int i = 0; i < count; ++i) {
    most = std::max(most, IsMaskedConvMma(variants[i])
                              ? MaskedConvMmaScratchBytes(g, type)
                              : MaskedConvWgmmaScratchBytes(g, type, RowOf(variants[i])));
  }
  return most;
}

cudaError_t PrepareMaskedConvDevice() {
  const cudaError_t ready = PrepareMaskedConvMmaDevice();
  if (ready != cudaSuccess) return ready;
  return devices.Ready([](int, Device* found) {
    cudaError_t status = PrepareConvWorkspace();
    for (int t = 0; t < kTypes && status == cudaSuccess; ++t) {
      status = kKernels[t].prepare(found->ctas[t]);
    }
    return status;
  });
}

cudaError_t LaunchMaskedConvDevice(const MaskedConvArgs& args, const ConvChoice& choice,
                                   cudaStream_t stream) {
  if (MaskedConvDeviceReason(args, choice) != nullptr) return cudaErrorInvalidValue;
  MaskedConvArgs a = args;
  int variants[kMaxCandidates];
  const Kernel& kernel = kKernels[static_cast<int>(a.in_type)];
  bool streams = false, boxes = false, in_order = false, wgmma = false, mma = false;
  int parts = 1, columns = 0;
  bool late[kMaxLists] = {};  // lists that candidates visit and that may overflow
  for (int i = 0; i < choice.candidates; ++i) {
    variants[i] = choice.candidate[i].variant;
    (IsMaskedConvMma(variants[i]) ? mma : wgmma) = true;
    if (!IsMaskedConvMma(variants[i])) {
      streams |= Streams(a.geometry, a.in_type, variants[i]);
      parts = std::max(parts, kernel.parts(variants[i]));
      columns = std::max(columns, kernel.columns(variants[i]));
    }
    boxes |= LoadsBoxes(a, variants[i]);
    if (ListHoldsEveryTile(a.geometry, TilesOf(a, choice, choice.candidate[i]))) continue;
    in_order = late[choice.candidate[i].list] = true;
  }
  if (a.scratch_bytes <
      MaskedConvDeviceScratchBytes(a.geometry, a.in_type, variants, choice.candidates)) {
    return cudaErrorInvalidValue;
  }
  const ConvGeometry& g = a.geometry;
  if (g.batch * g.out_h * g.out_w * g.out_c == 0) return cudaSuccess;
  cudaError_t status = PrepareMaskedConvDevice();
  if (status == cudaSuccess && a.zero_fill && in_order) {
    status = FillZeros(a, choice, late, stream);
    a.zero_fill = false;
  }
  DeviceParams p = MakeDeviceParams(a, choice);
  p.conv.zero_fill = a.zero_fill;
  if (status == cudaSuccess && mma) status = LaunchMaskedConvMmaDevice(a, p, stream);
  if (!wgmma) return status;
  CUtensorMap weights, image = {};
  if (status == cudaSuccess) status = MapConvWeights(a, stream, &weights);
  if (status == cudaSuccess && boxes) status = MapConvImage(a, p.conv, &p.plan, &image);
  if (status == cudaSuccess && streams) {
    char* flags = static_cast<char*>(a.scratch) + ConvWeightBytes(a.geometry, a.in_type);
    p.conv.flags = reinterpret_cast<uint64_t*>(flags);
    p.conv.parts = reinterpret_cast<float*>(flags + kFlagBytes);
    p.conv.mark = NextMark();
  }
  if (status != cudaSuccess) return status;
  const int ctas = devices.Current().ctas[static_cast<int>(a.in_type)][parts];
  if (ctas == 0) return cudaErrorCooperativeLaunchTooLarge;  // no cluster fits this device
  const bool plain = IsPlainCall(p.conv, args, choice);
  return kernel.launch(p, weights, image, ctas, columns, plain, parts, stream);
}

}  // namespace jaxsparse
