// SPDX-License-Identifier: Apache-2.0
#pragma once
// A file system whose every file holds the bytes of a fuzzer's input.

#include <sys/mman.h>

#include <string_view>

#include <weft/checkpoint/file_system.hpp>

#include "fuzz/support/fuzz.hpp"

namespace weft_test {

/// One file in memory, opened again for every requested name.
class MemoryFiles final : public weft::checkpoint::FileSystem {
 public:
  MemoryFiles() : file_(::memfd_create("fuzz", MFD_CLOEXEC)) { expect(file_ >= 0); }
  ~MemoryFiles() override { ::close(file_); }
  void set(std::string_view bytes) {
    bytes_ = bytes;
    expect(::ftruncate(file_, ::off_t(bytes.size())) == 0);
    expect(::pwrite(file_, bytes.data(), bytes.size(), 0) == ::ssize_t(bytes.size()));
  }
  std::uint64_t length() const { return bytes_.size(); }
  int open(const char*, int, ::mode_t) override { return ::dup(file_); }

 private:
  int file_;
  std::string_view bytes_;
};

}  // namespace weft_test
