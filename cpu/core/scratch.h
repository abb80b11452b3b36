// Carves one workspace buffer into aligned pieces. With a null base it only measures.
#pragma once

#include <cstddef>
#include <cstdint>

namespace jaxsparse {

class ScratchCarver {
 public:
  explicit ScratchCarver(void* base) : base_(static_cast<std::byte*>(base)) {
    if (base_ != nullptr) used_ = -reinterpret_cast<uintptr_t>(base_) & (kAlign - 1);
  }

  template <typename T>
  T* Take(int64_t count) {
    T* piece = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += (static_cast<uint64_t>(count) * sizeof(T) + kAlign - 1) & ~(kAlign - 1);
    return piece;
  }

  // Bytes taken so far, the skip to the first aligned byte included.
  int64_t used() const { return static_cast<int64_t>(used_); }

  static constexpr uint64_t kAlign = 64;

 private:
  std::byte* base_;
  uint64_t used_ = 0;
};

}  // namespace jaxsparse
