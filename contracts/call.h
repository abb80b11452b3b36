// What the decoders that come from the contracts stand on: buffers without a type of their own, and
// a checker that keeps the first thing that is wrong.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "contracts/checked.h"
#include "xla/ffi/api/ffi.h"

namespace jaxsparse::contract {

// An operand or a result. Size 0 means that it is absent.
struct Array {
  void* data = nullptr;
  const int64_t* dims = nullptr;
  int64_t rank = 0, size = 0;
  xla::ffi::DataType type = xla::ffi::DataType::INVALID;
  int form = -1;  // which of the shapes that the contract lists it has; -1: absent

  bool given() const { return size > 0; }
  int64_t bytes() const { return size * static_cast<int64_t>(xla::ffi::ByteWidth(type)); }
  // nullptr where it is absent.
  template <typename T>
  T* as() const {
    return given() ? static_cast<T*>(data) : nullptr;
  }
};

class Checker {
 public:
  explicit Checker(const char* handler) : handler_(handler) {}

  bool ok() const { return wrong_.empty(); }
  xla::ffi::Error error() const { return xla::ffi::Error::InvalidArgument(handler_ + wrong_); }

  void Fail(const std::string& what) {
    if (ok()) wrong_ = ": " + what;
  }

  // How many operands or results there are.
  void Count(const char* what, size_t found, size_t least, size_t most, size_t step = 1) {
    if (found >= least && found <= most && (found - least) % step == 0) return;
    Fail(std::to_string(found) + " " + what + "; it takes " + std::to_string(least) +
         (least == most ? "" : " to " + std::to_string(most)));
  }

  template <typename Buffer>
  Array Read(const char* name, const Buffer& buffer) {
    Array array;
    array.data = buffer.untyped_data();
    array.dims = buffer.dimensions().begin();
    array.rank = static_cast<int64_t>(buffer.dimensions().size());
    array.type = buffer.element_type();
    // An empty buffer may have any other sizes; they must be fit for arithmetic as well.
    Checked whole = 1, size = 1;
    for (int64_t i = 0; i < array.rank; ++i) {
      whole = whole * Checked(array.dims[i] == 0 ? 1 : array.dims[i]);
      size = size * Checked(array.dims[i]);
      if (array.dims[i] < 0) whole = whole / 0;
    }
    if (!(whole <= kMostElements)) Fail(std::string(name) + " has too many elements");
    array.size = size.valid() ? size.or_max() : 0;
    return array;
  }

  Array Operand(const char* name, const xla::ffi::RemainingArgs& operands, size_t index) {
    auto buffer = operands.get<xla::ffi::AnyBuffer>(index);
    if (buffer.has_value()) return Read(name, *buffer);
    Fail(std::string(name) + " is not an array");
    return {};
  }

  Array Result(const char* name, const xla::ffi::RemainingRets& results, size_t index) {
    auto buffer = results.get<xla::ffi::AnyBuffer>(index);
    if (buffer.has_value()) return Read(name, **buffer);
    Fail(std::string(name) + " is not an array");
    return {};
  }

  void Type(const char* name, const Array& array, std::initializer_list<xla::ffi::DataType> types,
            const char* text) {
    for (const xla::ffi::DataType type : types) {
      if (array.type == type) return;
    }
    Fail(std::string(name) + " must be " + text);
  }

  // The axis of `array` has the size that the contract says.
  void Size(const char* name, const Array& array, int64_t axis, Checked wanted, const char* text) {
    if (!ok() || wanted == array.dims[axis]) return;
    Fail(std::string(name) + " has " + std::to_string(array.dims[axis]) + " entries along axis " +
         std::to_string(axis) + ", not " + text +
         (wanted.valid() ? " = " + std::to_string(wanted.or_max()) : ""));
  }

  // The array has this shape, where no declaration can list it.
  void Shape(const char* name, const Array& array, std::initializer_list<Checked> sizes,
             const char* text) {
    bool fits = array.rank == static_cast<int64_t>(sizes.size());
    for (int64_t i = 0; fits && i < array.rank; ++i) fits = sizes.begin()[i] == array.dims[i];
    if (!fits) Fail(std::string(name) + " must be " + text);
  }

  // An integer among attributes that no declaration can list.
  int64_t Attribute(const xla::ffi::Dictionary& attributes, const std::string& name, int64_t least,
                    int64_t most) {
    const auto value = attributes.get<int64_t>(name);
    if (!value.has_value()) Fail(name + " is not an integer attribute");
    if (value.has_value()) Range(name.c_str(), *value, least, most);
    return ok() ? *value : least;
  }

  void Range(const char* name, int64_t value, int64_t least, int64_t most) {
    if (value >= least && value <= most) return;
    Fail(std::string(name) + " is " + std::to_string(value) + ", not in [" + std::to_string(least) +
         ", " + std::to_string(most) + "]");
  }

  // A workspace has room; `unit` is what it is counted in.
  void Room(int64_t found, Checked wanted, const char* unit) {
    if (wanted <= found) return;
    Fail("scratch has " + std::to_string(found) + " " + unit + "; it takes " +
         (wanted.valid() ? std::to_string(wanted.or_max()) : "more than there are"));
  }

  void Relation(bool holds, const char* text) {
    if (!holds) Fail(std::string("it must hold that ") + text);
  }

 private:
  static constexpr int64_t kMostElements = int64_t{1} << 60;
  std::string handler_, wrong_;
};

// An error in the place of a handler's result.
inline xla::ffi::Future Failed(const xla::ffi::Error& error) {
  xla::ffi::Promise promise;
  xla::ffi::Future future(promise);
  promise.SetError(error);
  return future;
}

inline xla::ffi::Future Failed(const std::string& why) {
  return Failed(xla::ffi::Error::InvalidArgument(why));
}

// Nothing is left to do.
inline xla::ffi::Future Done() {
  xla::ffi::Promise promise;
  xla::ffi::Future future(promise);
  promise.SetAvailable();
  return future;
}

}  // namespace jaxsparse::contract
