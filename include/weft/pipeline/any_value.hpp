// SPDX-License-Identifier: Apache-2.0
#pragma once
// A value whose type only its maker knows. What layers save between forward and backward goes through it: as optionals and
// vectors of their own types it was a tenth of what the compiler had to generate for a model.

#include <type_traits>
#include <utility>

#include <weft/core/text.hpp>

namespace weft::detail {

class AnyValue {
 public:
  AnyValue() = default;
  template <class T>
  explicit AnyValue(T&& value) : value_(new T(std::move(value))), end_(&end<T>) {
    static_assert(!std::is_reference_v<T>, "AnyValue takes what it is given");
  }
  WEFT_OUT_OF_LINE AnyValue(AnyValue&& other) noexcept : value_(std::exchange(other.value_, nullptr)), end_(other.end_) {}
  WEFT_OUT_OF_LINE AnyValue& operator=(AnyValue&& other) noexcept {
    if (this != &other) {
      reset();
      value_ = std::exchange(other.value_, nullptr);
      end_ = other.end_;
    }
    return *this;
  }
  WEFT_OUT_OF_LINE ~AnyValue() { reset(); }

  /// The value, whose type must be T.
  template <class T>
  T& as() {
    return *static_cast<T*>(value_);
  }
  void reset() {
    if (void* value = std::exchange(value_, nullptr)) end_(value);
  }

 private:
  template <class T>
  static void end(void* value) {
    delete static_cast<T*>(value);
  }

  void* value_ = nullptr;
  void (*end_)(void*) = nullptr;
};

}  // namespace weft::detail
