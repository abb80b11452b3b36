// Arithmetic that remembers an overflow, for sizes that come from a caller. No FFI headers.
#pragma once

#include <cstdint>
#include <limits>

namespace jaxsparse {

// A 64-bit integer, or the knowledge that computing it went wrong: an overflow, or a division by
// zero. What is computed from such a number is wrong, too, and every comparison with it is false.
class Checked {
 public:
  constexpr Checked(int64_t value) : value_(value) {}  // NOLINT: numbers mix with plain ones

  constexpr bool valid() const { return valid_; }
  // The number, or the largest one: a size that no buffer has.
  constexpr int64_t or_max() const { return valid_ ? value_ : std::numeric_limits<int64_t>::max(); }

  friend constexpr Checked operator+(Checked a, Checked b) {
    int64_t sum = 0;
    const bool over = __builtin_add_overflow(a.value_, b.value_, &sum);
    return Checked(sum, a.valid_ && b.valid_ && !over);
  }
  friend constexpr Checked operator-(Checked a, Checked b) {
    int64_t difference = 0;
    const bool over = __builtin_sub_overflow(a.value_, b.value_, &difference);
    return Checked(difference, a.valid_ && b.valid_ && !over);
  }
  friend constexpr Checked operator*(Checked a, Checked b) {
    int64_t product = 0;
    const bool over = __builtin_mul_overflow(a.value_, b.value_, &product);
    return Checked(product, a.valid_ && b.valid_ && !over);
  }
  // Quotients and remainders of numbers that are not negative.
  friend constexpr Checked operator/(Checked a, Checked b) {
    if (!Divides(a, b)) return Checked(0, false);
    return Checked(a.value_ / b.value_, true);
  }
  friend constexpr Checked operator%(Checked a, Checked b) {
    if (!Divides(a, b)) return Checked(0, false);
    return Checked(a.value_ % b.value_, true);
  }

  friend constexpr bool operator==(Checked a, Checked b) {
    return Both(a, b) && a.value_ == b.value_;
  }
  friend constexpr bool operator!=(Checked a, Checked b) {
    return Both(a, b) && a.value_ != b.value_;
  }
  friend constexpr bool operator<(Checked a, Checked b) {
    return Both(a, b) && a.value_ < b.value_;
  }
  friend constexpr bool operator<=(Checked a, Checked b) {
    return Both(a, b) && a.value_ <= b.value_;
  }
  friend constexpr bool operator>(Checked a, Checked b) { return b < a; }
  friend constexpr bool operator>=(Checked a, Checked b) { return b <= a; }

 private:
  constexpr Checked(int64_t value, bool valid) : value_(value), valid_(valid) {}
  static constexpr bool Both(Checked a, Checked b) { return a.valid_ && b.valid_; }
  static constexpr bool Divides(Checked a, Checked b) {
    return Both(a, b) && a.value_ >= 0 && b.value_ > 0;
  }

  int64_t value_;
  bool valid_ = true;
};

// The functions that the expressions of a contract may call.
constexpr Checked CeilOf(Checked a, Checked b) { return a / b + Checked(a % b != 0 ? 1 : 0); }
constexpr Checked WordsOf(Checked bits) { return CeilOf(bits, 32); }
constexpr Checked LeastOf(Checked a, Checked b) { return a <= b ? a : b + a * 0; }
constexpr Checked MostOf(Checked a, Checked b) { return a >= b ? a : b + a * 0; }
constexpr Checked TwoTo(Checked a) {
  return a >= 0 && a < 63 ? Checked(int64_t{1} << a.or_max()) : Checked(0) / 0;
}

}  // namespace jaxsparse
