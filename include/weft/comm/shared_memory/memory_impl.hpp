// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/shared_memory/memory.hpp, inline when weft is header-only, else compiled once in the library
// weft::compiled.

#include <cerrno>

#include <weft/comm/shared_memory/memory.hpp>
#include <weft/core/inline.hpp>
#include <weft/core/uninterrupted.hpp>

namespace weft::comm::shared_memory {

WEFT_INLINE Memory Memory::create(std::size_t bytes, Pages pages) {
  Memory memory;
  Address& at = memory.address_;
  if (::getrandom(at.secret, sizeof at.secret, 0) != ssize_t(sizeof at.secret)) return {};
  char name[64];
  text_of(at, name, sizeof name);
  at.process = ::getpid();
  at.bytes = bytes;
  memory.descriptor_ = ::memfd_create(name, MFD_CLOEXEC);
  at.descriptor = memory.descriptor_;
  if (memory.descriptor_ < 0) return {};
  const bool sized = pages == Pages::now
                         ? memory.allocate(0, bytes)
                         : weft::detail::uninterrupted([&] { return ::ftruncate(memory.descriptor_, off_t(bytes)); }) == 0;
  if (!sized || !memory.map()) return {};
  return memory;
}

WEFT_INLINE bool Memory::allocate(std::size_t begin, std::size_t bytes) {
  const auto allocate = [&] { return ::posix_fallocate(descriptor_, off_t(begin), off_t(bytes)); };
  return weft::detail::uninterrupted_error(allocate) == 0;
}

WEFT_INLINE void Memory::forget(std::size_t begin, std::size_t bytes) {
  constexpr std::size_t page = 4096;
  const std::size_t first = (begin + page - 1) / page * page, last = (begin + bytes) / page * page;
  if (last > first) ::fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(first), off_t(last - first));
}

WEFT_INLINE bool process_is_gone(std::int64_t process) {
  char path[64], text[512];
  std::snprintf(path, sizeof path, "/proc/%lld/stat", static_cast<long long>(process));
  const int file = weft::detail::uninterrupted([&] { return ::open(path, O_RDONLY | O_CLOEXEC); });
  if (file < 0) return errno == ENOENT || errno == ESRCH;
  const auto bytes = weft::detail::uninterrupted([&] { return ::read(file, text, sizeof text - 1); });
  ::close(file);
  text[bytes < 0 ? 0 : bytes] = 0;
  const char* const name_end = std::strrchr(text, ')');  // "PID (NAME) STATE ..."
  return name_end == nullptr || name_end[1] == 0 || name_end[2] == 'Z' || name_end[2] == 'X';
}

WEFT_INLINE Memory Memory::open(const Address& address) {
  char path[64], name[64], expected[96], found[96];
  std::snprintf(path, sizeof path, "/proc/%lld/fd/%lld", static_cast<long long>(address.process),
                static_cast<long long>(address.descriptor));
  text_of(address, name, sizeof name);
  const int length = std::snprintf(expected, sizeof expected, "/memfd:%s (deleted)", name);
  if (::readlink(path, found, sizeof found) != length || std::memcmp(found, expected, std::size_t(length)) != 0) return {};
  Memory memory;
  memory.address_ = address;
  memory.descriptor_ = weft::detail::uninterrupted([&] { return ::open(path, O_RDWR | O_CLOEXEC); });
  if (memory.descriptor_ < 0 || !memory.map()) return {};
  memory.close();
  return memory;
}

}  // namespace weft::comm::shared_memory
