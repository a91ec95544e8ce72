// SPDX-License-Identifier: Apache-2.0
#pragma once
// Owning pointers and an optional value with the parts of std::unique_ptr, std::optional and std::make_shared that weft uses. One
// more type costs the compiler 25 to 35 ms with each of those, some 5 ms with each of these (decision 20).

#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include <weft/core/text.hpp>

namespace weft::detail {

/// A std::unique_ptr.
template <class T>
class Owner {
 public:
  Owner() = default;
  explicit Owner(T* object) noexcept : object_(object) {}
  Owner(Owner&& other) noexcept : object_(other.release()) {}
  Owner& operator=(Owner&& other) noexcept {
    reset(other.release());
    return *this;
  }
  ~Owner() { reset(); }

  T* get() const noexcept { return object_; }
  T* operator->() const noexcept { return object_; }
  T& operator*() const noexcept { return *object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  T* release() noexcept {
    T* object = object_;
    object_ = nullptr;
    return object;
  }
  WEFT_OUT_OF_LINE void reset(T* object = nullptr) noexcept {
    T* before = object_;
    object_ = object;
    delete before;
  }

 private:
  T* object_ = nullptr;
};

/// A std::optional. T's move constructor must not throw.
template <class T>
class Maybe {
 public:
  Maybe() noexcept {}
  Maybe(const T& value) : there_(true) { new (static_cast<void*>(&value_)) T(value); }
  Maybe(T&& value) noexcept : there_(true) { new (static_cast<void*>(&value_)) T(std::move(value)); }
  Maybe(const Maybe& other) : there_(other.there_) {
    if (there_) new (static_cast<void*>(&value_)) T(other.value_);
  }
  WEFT_OUT_OF_LINE Maybe(Maybe&& other) noexcept : there_(other.there_) {
    if (there_) new (static_cast<void*>(&value_)) T(std::move(other.value_));
  }
  Maybe& operator=(Maybe other) noexcept {
    reset();
    if (other.there_) (void)emplace(std::move(other.value_));  // T may be [[nodiscard]], and nvcc takes its reference for one
    return *this;
  }
  WEFT_OUT_OF_LINE ~Maybe() { reset(); }

  explicit operator bool() const noexcept { return there_; }
  bool has_value() const noexcept { return there_; }
  T* operator->() noexcept { return &value_; }
  const T* operator->() const noexcept { return &value_; }
  T& operator*() noexcept { return value_; }
  const T& operator*() const noexcept { return value_; }
  template <class... A>
  T& emplace(A&&... arguments) {
    reset();
    new (static_cast<void*>(&value_)) T(std::forward<A>(arguments)...);
    there_ = true;
    return value_;
  }
  WEFT_OUT_OF_LINE void reset() noexcept {
    if (there_) value_.~T();
    there_ = false;
  }

 private:
  union {
    T value_;
  };
  bool there_ = false;
};

template <class T>
void end_object(void* object) {
  delete static_cast<T*>(object);
}
// One control block for all types.
inline std::shared_ptr<void> share(void* object, void (*end)(void*)) { return std::shared_ptr<void>(object, end); }

/// A std::make_shared for types that are not std::enable_shared_from_this.
template <class T, class... A>
std::shared_ptr<T> new_shared(A&&... arguments) {
  auto* object = new std::remove_const_t<T>(std::forward<A>(arguments)...);
  return std::shared_ptr<T>(share(object, &end_object<std::remove_const_t<T>>), object);
}

}  // namespace weft::detail
