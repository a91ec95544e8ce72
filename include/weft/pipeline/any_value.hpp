// SPDX-License-Identifier: Apache-2.0
#pragma once
// A move-only value whose type only its creator can name. It holds the values that layers save between forward and backward.
// Optionals and vectors of the layers' types made up a tenth of the code generated for a model.
//
//   AnyValue value(std::move(saved));   // value.as<Saved>()

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

  /// The value; T must be its type.
  template <class T>
  T& as() {
    return *static_cast<T*>(value_);
  }
  template <class T>
  const T& as() const {
    return *static_cast<const T*>(value_);
  }
  explicit operator bool() const { return value_ != nullptr; }
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
