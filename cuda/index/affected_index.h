// The tiles that an edit reaches, at several resolutions: lists of what windows over one byte mask
// touch.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace jaxsparse {

constexpr int kMaxAffected = 4;

// Pixel o of an axis of a stage is active where the mask has a pixel in
// [o * stride - pad, o * stride - pad + taps).
struct AffectedAxis {
  int32_t taps, stride, pad;
};

// One stage: its size, what its pixels read, and its list of tiles of (1 << th_log2) x (1 <<
// tw_log2) pixels, each at most 32.
struct AffectedStage {
  int32_t height, width;
  AffectedAxis rows, columns;
  int32_t th_log2, tw_log2;
  int64_t capacity;
  uint32_t* words;  // [lists, images, height, ceil(width/32)]
  int32_t* ids;     // [lists, capacity]
  int32_t* count;   // [lists]
  bool* overflow;   // [lists]
};

// `lists` independent masks uint8[images, height, width].
struct AffectedArgs {
  const uint8_t* mask;
  int64_t lists, images, height, width;
  int32_t stages;
  AffectedStage stage[kMaxAffected];
  int32_t* scratch;  // [AffectedItems]
};

// A row of tiles of each stage is an item; a mask without rows has one of each stage.
int64_t AffectedItems(const AffectedArgs& args);

// Shared memory that the largest item takes; more than kMostAffectedShared is refused.
int64_t AffectedShared(const AffectedArgs& args);
constexpr int64_t kMostAffectedShared = 96 << 10;

// Raises the kernel's limit on the current device; only the first call for a device does something.
cudaError_t PrepareAffected();

// One launch.
cudaError_t AffectedIndex(const AffectedArgs& args, cudaStream_t stream);

}  // namespace jaxsparse
