// Launches of the executor for windows of an image: its variants, and the layout that attributes
// hold.
#include "cuda/kernels/pruned_conv/launch.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "cuda/kernels/pruned_conv/variant.h"
#include "cuda/tile/device_fit.h"

namespace jaxsparse {
namespace {

constexpr int64_t kMostWidth = int64_t{1} << 29;  // of an image

int64_t Bits(int64_t word, int first, int count) {
  return word >> first & ((int64_t{1} << count) - 1);
}

WindowsDivisor Reciprocal(int64_t divisor) {
  return {((uint64_t{1} << 32) + divisor - 1) / divisor};
}

// Bytes of the buffers, of a window past the last and of the table of places.
int64_t PanelBytes(const WindowsLayout& l) {
  const int64_t buffer = l.zeros + static_cast<int64_t>(l.chunk) * l.stride;
  const int64_t floats = l.buffers * buffer + l.zeros + l.planes * static_cast<int64_t>(l.plane);
  return (floats * 4 + 15) / 16 * 16;
}

int64_t SharedBytes(const WindowsLayout& l) {
  return PanelBytes(l) + kWindowRingBytes * l.position_warps * l.output_warps;
}

struct Entry {
  int outputs, positions;
  DType type;
  cudaError_t (*prepare)();
  cudaError_t (*launch)(const PrunedArgs&, const WindowsLayout&, unsigned, int64_t, cudaStream_t);
};

template <typename T, int Outputs, int Positions>
constexpr Entry MakeEntry(DType type) {
  using Variant = PrunedWindowsVariant<T, Outputs, Positions>;
  return {Outputs, Positions, type, Variant::Prepare, Variant::Launch};
}

constexpr Entry kEntries[] = {
#define JAXSPARSE_VARIANT(number, name, outputs, positions)       \
  MakeEntry<float, outputs, positions>(DType::kF32),              \
      MakeEntry<__nv_bfloat16, outputs, positions>(DType::kBF16), \
      MakeEntry<__half, outputs, positions>(DType::kF16),
#include "pruned_windows_table.inc"
#undef JAXSPARSE_VARIANT
};

bool Fits(const PrunedArgs& args, const WindowsLayout& l) {
  const ConvGeometry& g = args.geometry;
  const int warps = l.position_warps * l.output_warps;
  const int64_t streams = static_cast<int64_t>(l.slabs) * l.output_warps;
  const int64_t groups = streams * l.rounds;
  return warps >= 1 && (l.rounds == 1 || l.chunks == 1) &&
         warps <= WindowsMostWarps(l.outputs * l.positions) &&
         l.zeros + static_cast<int64_t>(l.chunk) * l.stride <= 65536 &&
         static_cast<int64_t>(l.image_rows) * l.pitch <= 65536 &&
         SharedBytes(l) <= kWindowsMostSharedBytes &&
         l.images * g.in_h * g.in_w * g.in_c <= INT32_MAX &&
         g.in_h * g.in_w * g.in_c <= INT32_MAX && args.num_starts == streams &&
         args.num_rows == groups * l.outputs &&
         args.num_extra == groups * l.outputs * l.chunks * 2 && args.entries >= 4 &&
         args.entries % 4 == 0 && args.num_indices == args.entries && args.entries <= INT32_MAX;
}

// Reads the layout from the attributes; false when it is none that a launch may run.
bool Read(const PrunedArgs& args, const WindowsWords& words, WindowsLayout* layout) {
  const auto [tile, block, parts, code] = words;
  const ConvGeometry& g = args.geometry;
  WindowsLayout& l = *layout;
  l.rows = static_cast<int>(Bits(tile, 0, 12));
  l.cols = static_cast<int>(Bits(tile, 12, 16));
  l.images = static_cast<int>(Bits(tile, 28, 12));
  l.pitch = static_cast<int>(Bits(block, 0, 17));
  l.image_rows = static_cast<int>(Bits(block, 17, 16));
  l.plane = static_cast<int>(Bits(block, 33, 17));
  l.chunk = static_cast<int>(Bits(parts, 0, 16));
  l.outputs = static_cast<int>(Bits(parts, 16, 8));
  l.positions = static_cast<int>(Bits(parts, 24, 8));
  l.position_warps = static_cast<int>(Bits(parts, 32, 8));
  l.output_warps = static_cast<int>(Bits(parts, 40, 8));
  l.rounds = static_cast<int>(Bits(parts, 48, 12));
  l.phases_h = static_cast<uint32_t>(Bits(code, 0, 31));
  l.phases_w = static_cast<uint32_t>(Bits(code, 31, 31));
  for (const int v : {l.rows, l.cols, l.images, l.pitch, l.image_rows, l.plane, l.chunk, l.outputs,
                      l.positions, l.position_warps, l.output_warps, l.rounds}) {
    if (v < 1) return false;
  }
  if (l.phases_h == 0 || l.phases_w == 0 || g.stride_h > 31 || g.stride_w > 31 || g.in_c < 1) {
    return false;
  }
  l.planes_w = __builtin_popcount(l.phases_w);
  l.planes = l.planes_w * __builtin_popcount(l.phases_h);
  l.stride = l.planes * l.plane | 1;  // odd: adjacent channels do not conflict in a bank
  l.zeros = 32 * l.positions * l.position_warps;
  l.chunks = static_cast<int>((g.in_c + l.chunk - 1) / l.chunk);
  l.buffers = l.chunks > 1 ? 2 : 1;
  l.slabs = static_cast<int>((g.out_c - 1) / (l.outputs * l.output_warps * l.rounds) + 1);
  l.tiles_y = static_cast<int>((g.out_h - 1) / l.rows + 1);
  l.tiles_x = static_cast<int>((g.out_w - 1) / l.cols + 1);
  l.rings = static_cast<int>(std::min<int64_t>(PanelBytes(l), INT32_MAX));
  l.by_plane = Reciprocal(l.plane);
  l.by_image = Reciprocal(static_cast<int64_t>(l.image_rows) * l.pitch);
  l.by_pitch = Reciprocal(l.pitch);
  return Fits(args, l);
}

}  // namespace

cudaError_t PreparePrunedWindows() {
  for (const Entry& entry : kEntries) {
    const cudaError_t error = entry.prepare();
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t LaunchPrunedWindows(const PrunedArgs& given, const WindowsWords& words,
                                cudaStream_t stream) {
  PrunedArgs args = given;
  if (!args.image) {
    if (args.m > kMostWidth) return cudaErrorInvalidValue;
    args.geometry = {1, 1, args.m, args.k, 1, args.m, args.n, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1};
  }
  WindowsLayout layout = {};
  if (!Read(args, words, &layout)) return cudaErrorInvalidValue;
  const int64_t tiles = (args.geometry.batch - 1) / layout.images + 1;
  const int64_t per_image = static_cast<int64_t>(layout.tiles_y) * layout.tiles_x * layout.slabs;
  if (tiles * per_image > INT32_MAX) return cudaErrorInvalidValue;
  for (const Entry& entry : kEntries) {
    if (entry.outputs != layout.outputs || entry.positions != layout.positions ||
        entry.type != args.in_type) {
      continue;
    }
    if (!FitsDevice(SharedBytes(layout), 1)) return cudaErrorNotSupported;
    return entry.launch(args, layout, static_cast<unsigned>(tiles * per_image), SharedBytes(layout),
                        stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace jaxsparse
