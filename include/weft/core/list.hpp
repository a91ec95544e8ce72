// SPDX-License-Identifier: Apache-2.0
#pragma once
// A growing array with the part of std::vector's interface that weft uses, for weft's own types. A std::vector of one more type
// costs the compiler some seventy functions, a List fifteen (decision 20).

#include <cstddef>
#include <initializer_list>
#include <new>
#include <utility>

#include <weft/core/text.hpp>

namespace weft::detail {

/// T's move constructor must not throw.
template <class T>
class List {
 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  List() = default;
  /// n elements T().
  WEFT_OUT_OF_LINE explicit List(std::size_t n) : List() {
    data_ = allocate(capacity_ = n);
    for (; size_ < n; ++size_) new (static_cast<void*>(data_ + size_)) T();
  }
  List(std::initializer_list<T> elements) : List(elements.begin(), elements.end()) {}
  WEFT_OUT_OF_LINE List(const T* first, const T* last) : List() { append(first, last); }
  List(const List& other) : List(other.begin(), other.end()) {}
  List(List&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), capacity_(std::exchange(other.capacity_, 0)) {}
  List& operator=(List other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }
  WEFT_OUT_OF_LINE ~List() {
    clear();
    release(data_);
  }

  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  T& front() { return data_[0]; }
  const T& front() const { return data_[0]; }
  T& back() { return data_[size_ - 1]; }
  const T& back() const { return data_[size_ - 1]; }

  void reserve(std::size_t capacity) {
    if (capacity > capacity_) move_to(allocate(capacity), capacity);
  }
  template <class... A>
  T& emplace_back(A&&... arguments) {
    if (size_ == capacity_) {
      T added{std::forward<A>(arguments)...};  // an argument may lie in this list
      grow();
      new (static_cast<void*>(data_ + size_)) T(std::move(added));
    } else {
      new (static_cast<void*>(data_ + size_)) T{std::forward<A>(arguments)...};
    }
    return data_[size_++];
  }
  void push_back(const T& element) { emplace_back(element); }
  void push_back(T&& element) { emplace_back(std::move(element)); }
  WEFT_OUT_OF_LINE void append(const T* first, const T* last) {
    reserve(size_ + std::size_t(last - first));
    for (; first != last; ++first) emplace_back(*first);
  }
  WEFT_OUT_OF_LINE void assign(std::size_t n, const T& value) {
    clear();
    reserve(n);
    while (size_ < n) emplace_back(value);
  }
  WEFT_OUT_OF_LINE void erase(T* at) {
    for (; at + 1 < end(); ++at) *at = std::move(at[1]);
    pop_back();
  }
  void pop_back() { data_[--size_].~T(); }
  /// Keeps the first n elements; n must not exceed the size.
  void shorten(std::size_t n) {
    while (size_ > n) pop_back();
  }
  void clear() { shorten(0); }
  WEFT_OUT_OF_LINE void resize(std::size_t n) {
    shorten(n);
    reserve(n);
    while (size_ < n) emplace_back();
  }

  friend bool operator==(const List& a, const List& b) {
    if (a.size_ != b.size_) return false;
    for (std::size_t i = 0; i < a.size_; ++i)
      if (!(a.data_[i] == b.data_[i])) return false;
    return true;
  }

 private:
  static T* allocate(std::size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(alignof(T)))); }
  static void release(T* data) { ::operator delete(static_cast<void*>(data), std::align_val_t(alignof(T))); }
  void grow() { move_to(allocate(capacity_ == 0 ? 4 : 2 * capacity_), capacity_ == 0 ? 4 : 2 * capacity_); }
  WEFT_OUT_OF_LINE void move_to(T* data, std::size_t capacity) noexcept {
    for (std::size_t i = 0; i < size_; ++i) {
      new (static_cast<void*>(data + i)) T(std::move(data_[i]));
      data_[i].~T();
    }
    release(data_);
    data_ = data;
    capacity_ = capacity;
  }

  T* data_ = nullptr;
  std::size_t size_ = 0, capacity_ = 0;
};

/// Removes the elements for which `unwanted` is true; the others keep their order.
template <class T, class F>
void erase_if(List<T>& list, F&& unwanted) {
  std::size_t left = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (unwanted(list[i])) continue;
    if (left != i) list[left] = std::move(list[i]);
    ++left;
  }
  list.shorten(left);
}

/// True if an element equals `value`.
template <class T>
bool contains(const List<T>& list, const T& value) {
  for (const T& element : list)
    if (element == value) return true;
  return false;
}

/// Sorts a short list; equal elements keep their order.
template <class T, class Less>
void sort_short(List<T>& list, const Less& less) {
  for (std::size_t i = 1; i < list.size(); ++i)
    for (std::size_t k = i; k > 0 && less(list[k], list[k - 1]); --k) std::swap(list[k], list[k - 1]);
}

}  // namespace weft::detail
