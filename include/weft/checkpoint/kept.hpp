// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory of a device, or a record of a store, as bytes of the host, which a checkpoint reads and writes.
//
//   const Kept<Device> kept(device, buffer, bytes);
//   const Bytes bytes = kept.read();

#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include <Kokkos_Core.hpp>

#include <weft/device/device.hpp>
#include <weft/device/host_copies.hpp>
#include <weft/device/offload_store.hpp>

namespace weft::checkpoint::detail {

/// Bytes of host memory, kept alive by their owner.
struct Bytes {
  std::shared_ptr<const void> owner;
  const std::byte* data = nullptr;
};

/// Device memory or a record of a store, as bytes of the host.
template <class Device>
class Kept {
 public:
  Kept(Device& device, weft::detail::Buffer buffer, std::size_t bytes)
      : device_(&device), buffer_(std::move(buffer)), bytes_(bytes) {}
  Kept(Device& device, weft::detail::Store& store, std::size_t record, std::size_t bytes)
      : device_(&device), store_(&store), record_(record), bytes_(bytes) {}

  Bytes read() const {
    if (store_ == nullptr && on_host) {
      device_->exec().fence("weft: a checkpoint is read");
      return {buffer_, static_cast<const std::byte*>(buffer_.get())};
    }
    std::shared_ptr<std::byte[]> host(new std::byte[bytes_ > 0 ? bytes_ : 1]);
    if (store_ != nullptr) store_->read(record_, host.get());
    else move(host.get(), true);
    return {host, host.get()};
  }
  /// The bytes in place, once no kernel uses them; null if they are on a device or in a store.
  std::byte* memory() const {
    if (!on_host || store_ != nullptr) return nullptr;
    device_->exec().fence("weft: a checkpoint is moved");
    return static_cast<std::byte*>(buffer_.get());
  }
  /// Does nothing unless `undone` equals the store's ability to roll back.
  void write(const std::byte* bytes, bool undone) const {
    if (undone != (store_ != nullptr && store_->may_fail())) return;
    if (store_ != nullptr) return store_->write(record_, bytes);
    move(const_cast<std::byte*>(bytes), false);
  }

 private:
  static constexpr bool on_host =
      Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Device::execution_space::memory_space>::accessible;

  void move(std::byte* host, bool out) const {
    device_->exec().fence("weft: a checkpoint is moved");
    if constexpr (on_host) {
      if (bytes_ != 0) out ? std::memcpy(host, buffer_.get(), bytes_) : std::memcpy(buffer_.get(), host, bytes_);
    } else {
      if (out) weft::detail::copy_from_device(*device_, host, buffer_.get(), bytes_);
      else weft::detail::copy_to_device(*device_, buffer_.get(), host, bytes_);
      device_->exec().fence("weft: a checkpoint is moved");
    }
  }

  Device* device_;
  weft::detail::Buffer buffer_;
  weft::detail::Store* store_ = nullptr;
  std::size_t record_ = 0, bytes_;
};

}  // namespace weft::checkpoint::detail
