// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory shared by processes of one machine. It has no name in any file system, so a killed process leaves nothing behind and the
// size of /dev/shm in a container does not matter: other processes open it through the owner's /proc/<pid>/fd. A process on
// another machine, in another container or of another user cannot open it, and its group keeps the backend's own collectives.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>

#include <weft/core/standard.hpp>

namespace weft::comm::shared_memory {

/// The memory's address for other processes. `secret` is random, so that a process with the same numbers on another machine is
/// not taken for the owner.
struct Address {
  std::int64_t process = 0, descriptor = -1;
  std::uint64_t secret[2] = {0, 0}, bytes = 0;
};

/// Whether a process of this machine has ended, also if nobody has waited for it yet.
bool process_is_gone(std::int64_t process);

class Memory {
 public:
  Memory() = default;
  /// When the pages of new memory are allocated: at once, so that a lack of memory shows there, or by `allocate`.
  enum class Pages { now, later };
  /// `bytes` of zeros; empty if that fails.
  static Memory create(std::size_t bytes, Pages pages = Pages::now);
  /// The memory of another process; empty if it cannot be opened.
  static Memory open(const Address& address);
  Memory(Memory&& other) noexcept
      : address_(other.address_), descriptor_(std::exchange(other.descriptor_, -1)), data_(std::exchange(other.data_, nullptr)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(descriptor_, other.descriptor_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~Memory() {
    if (data_ != nullptr) ::munmap(data_, address_.bytes);
    close();
  }

  explicit operator bool() const { return data_ != nullptr; }
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  const Address& address() const { return address_; }
  /// Allocates the pages of that part; false if the machine has no room. Only of memory that this process created.
  bool allocate(std::size_t begin, std::size_t bytes);
  /// Returns the whole pages of that part to the system; they read as zeros.
  void forget(std::size_t begin, std::size_t bytes);
  /// Ends the sharing: no other process can open it any more.
  void close() {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  }

 private:
  static void text_of(const Address& address, char* text, std::size_t most) {
    std::snprintf(text, most, "weft-%016llx%016llx", static_cast<unsigned long long>(address.secret[0]),
                  static_cast<unsigned long long>(address.secret[1]));
  }
  bool map() {
    void* data = ::mmap(nullptr, address_.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor_, 0);
    if (data == MAP_FAILED) return false;
    data_ = data;
    return true;
  }

  Address address_;
  int descriptor_ = -1;
  void* data_ = nullptr;
};

}  // namespace weft::comm::shared_memory

#ifndef WEFT_COMPILED
#include <weft/comm/shared_memory/memory_impl.hpp>
#endif
