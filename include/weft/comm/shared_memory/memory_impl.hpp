// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/shared_memory/memory.hpp, inline when weft is header-only, else compiled once in the library
// weft::compiled.

#include <weft/comm/shared_memory/memory.hpp>
#include <weft/core/inline.hpp>
#include <weft/core/uninterrupted.hpp>

namespace weft::comm::shared_memory {

WEFT_INLINE Memory Memory::create(std::size_t bytes) {
  Memory memory;
  Address& at = memory.address_;
  if (::getrandom(at.secret, sizeof at.secret, 0) != ssize_t(sizeof at.secret)) return {};
  char name[64];
  text_of(at, name, sizeof name);
  at.process = ::getpid();
  at.bytes = bytes;
  memory.descriptor_ = ::memfd_create(name, MFD_CLOEXEC);
  at.descriptor = memory.descriptor_;
  const auto allocate = [&] { return ::posix_fallocate(memory.descriptor_, 0, off_t(bytes)); };
  if (memory.descriptor_ < 0 || weft::detail::uninterrupted_error(allocate) != 0 || !memory.map()) return {};
  return memory;
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
