// SPDX-License-Identifier: Apache-2.0
#pragma once
// Objects that several threads use, each by one thread at a time. A thread usually gets the object that it used last, by one
// exchange of an atomic pointer; objects are made when more threads need one than ever before.
//
//   Pool<Replica> pool;
//   const auto replica = pool.take([] { return std::make_unique<Replica>(); });   // returns to the pool at the end of the scope
//
// Pools has one of them for each of a few keys.

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <weft/core/standard.hpp>

namespace weft::inference::detail {

template <class T>
class Pool {
  struct Return {
    Pool* pool;
    void operator()(T* object) const { pool->give(object); }
  };

 public:
  Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// An object that no other thread uses, returned with the pointer. `make()` returns a new one as a std::unique_ptr; it is
  /// called by one thread at a time, and the pool is unchanged if it throws.
  template <class Make>
  std::unique_ptr<T, Return> take(Make&& make) {
    T* object = place().exchange(nullptr, std::memory_order_acquire);
    if (object == nullptr) object = any(make);
    return {object, Return{this}};
  }
  /// The number of objects that were made.
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return all_.size();
  }

 private:
  struct alignas(64) Place {
    std::atomic<T*> object{nullptr};
  };

  std::atomic<T*>& place() { return places_[std::hash<std::thread::id>()(std::this_thread::get_id()) % places_.size()].object; }
  void give(T* object) {
    T* none = nullptr;
    if (place().compare_exchange_strong(none, object, std::memory_order_acq_rel)) return;
    const std::lock_guard lock(mutex_);
    idle_.push_back(object);  // its capacity is the number of objects
  }
  // An object that is idle, also in another thread's place, else a new one.
  template <class Make>
  T* any(Make& make) {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      T* const object = idle_.back();
      idle_.pop_back();
      return object;
    }
    for (Place& other : places_)
      if (T* const object = other.object.exchange(nullptr, std::memory_order_acquire)) return object;
    idle_.reserve(all_.size() + 1);
    all_.push_back(make());
    return all_.back().get();
  }

  std::array<Place, 64> places_;
  mutable std::mutex mutex_;
  std::vector<T*> idle_;
  std::vector<std::unique_ptr<T>> all_;
};

/// Whether work of two keys, execution space instances, is in one order: instances of one stream are, also if each was made for
/// itself.
template <class Key>
bool same_order(const Key& a, const Key& b) {
  if constexpr (requires { a.cuda_stream(); }) return a.cuda_device() == b.cuda_device() && a.cuda_stream() == b.cuda_stream();
  else return a == b;
}

template <class Key, class T>
class Pools {
 public:
  /// The pool of this key, made at its first use; any thread may call it.
  Pool<T>& of(const Key& key) {
    const std::lock_guard lock(mutex_);
    for (const Keyed& one : pools_)
      if (same_order(one.key, key)) return *one.pool;
    pools_.push_back({key, std::make_unique<Pool<T>>()});
    return *pools_.back().pool;
  }
  /// The number of objects that were made, in all pools.
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    std::size_t all = 0;
    for (const Keyed& one : pools_) all += one.pool->size();
    return all;
  }

 private:
  struct Keyed {
    Key key;
    std::unique_ptr<Pool<T>> pool;
  };
  mutable std::mutex mutex_;
  std::vector<Keyed> pools_;
};

}  // namespace weft::inference::detail
