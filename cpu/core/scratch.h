// Carves one workspace buffer into aligned pieces. With a null base it only measures.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contracts/checked.h"

namespace jaxsparse {

// Sizes may come from a caller: what overflows is a size that no buffer has, and no piece is given.
class ScratchCarver {
 public:
  explicit ScratchCarver(void* base) : base_(static_cast<std::byte*>(base)) {
    if (base_ != nullptr) {
      used_ = static_cast<int64_t>(-reinterpret_cast<uintptr_t>(base_) & (kAlign - 1));
    }
  }

  template <typename T>
  T* Take(Checked count) {
    T* piece =
        base_ == nullptr || !used_.valid() ? nullptr : reinterpret_cast<T*>(base_ + used_.or_max());
    const Checked bytes = count * static_cast<int64_t>(sizeof(T)) + (kAlign - 1);
    used_ = used_ + (bytes - bytes % kAlign);
    return piece;
  }

  // Bytes taken so far, the skip to the first aligned byte included.
  Checked used() const { return used_; }

  static constexpr int64_t kAlign = 64;

 private:
  std::byte* base_;
  Checked used_ = 0;
};

}  // namespace jaxsparse
