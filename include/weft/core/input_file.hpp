// SPDX-License-Identifier: Apache-2.0
#pragma once
// An input file that a user named, opened for reading: a regular file of limited size. A FIFO would wait for a writer, a device
// such as /dev/zero would fill memory, and a folder cannot be read.
//
//   const std::string text = detail::InputFile("schedule", "own.csv", "CSV file", 16 << 20).read();

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <weft/core/error.hpp>

namespace weft::detail {

class InputFile {
 public:
  /// `reader` begins the message of an error, `kind` is the file that was expected: "data: cannot read 'FILE': it is a folder, a
  /// text file is needed". Throws UsageError if the file is missing, unreadable, not regular, or has more than `most` bytes.
  InputFile(std::string_view reader, const std::string& file, std::string_view kind, std::uint64_t most);

  int descriptor() const { return descriptor_.number; }
  std::size_t size() const { return size_; }
  /// The whole file, with the size that it had when it was opened. Throws UsageError if it cannot be read or has become shorter.
  std::string read() const;
  /// Throws UsageError: "READER: cannot read 'FILE': REASON".
  [[noreturn]] void refuse(Words reason) const;

 private:
  struct Descriptor {
    int number = -1;
    Descriptor() = default;
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    ~Descriptor();
  };
  std::string reader_, file_;
  Descriptor descriptor_;
  std::size_t size_ = 0;
};

/// The limit for files that are read into memory: half of this computer's memory.
std::uint64_t half_of_memory();

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/core/input_file_impl.hpp>
#endif
