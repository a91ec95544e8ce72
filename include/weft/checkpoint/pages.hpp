// SPDX-License-Identifier: Apache-2.0
#pragma once
// Host memory for a whole part of a checkpoint, in huge pages if the system has them: with pages of 4 KiB, page faults would take
// longer than reading the file.
//
//   detail::Pages pages(bytes);   // zero
//   pages.data()

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <utility>

#include <weft/core/standard.hpp>

namespace weft::checkpoint::detail {

class Pages {
 public:
  Pages() = default;
  /// Throws std::bad_alloc.
  explicit Pages(std::size_t bytes) : bytes_(bytes < worth_it ? bytes + 1 : (bytes + large - 1) / large * large + large) {
    void* memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<std::byte*>(memory);
#ifdef MADV_HUGEPAGE
    if (bytes >= worth_it) ::madvise(memory_, bytes_, MADV_HUGEPAGE);  // a hint
#endif
  }
  Pages(Pages&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Pages& operator=(Pages&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Pages() {
    if (memory_ != nullptr) ::munmap(memory_, bytes_);
  }

  std::byte* data() const { return memory_; }
  std::size_t bytes() const { return bytes_; }

 private:
  static constexpr std::size_t large = 2u << 20, worth_it = 4 * large;
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace weft::checkpoint::detail
