// SPDX-License-Identifier: Apache-2.0
#pragma once
// The checks of an input file, and its reading. Definitions for core/input_file.hpp.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <weft/core/inline.hpp>
#include <weft/core/input_file.hpp>
#include <weft/core/uninterrupted.hpp>

namespace weft::detail {

WEFT_COLD WEFT_INLINE void InputFile::refuse(Words reason) const {
  throw_error<UsageError>({reader_, ": cannot read '", file_, "': ", joined(reason)});
}

WEFT_INLINE InputFile::InputFile(std::string_view reader, const std::string& file, std::string_view kind, std::uint64_t most)
    : reader_(reader), file_(file) {
  constexpr int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;  // a FIFO's open() would wait for a writer
  const int number = descriptor_.number = uninterrupted([&] { return ::open(file.c_str(), flags); });
  if (number < 0) refuse({errno == ENOENT ? "there is no such file" : std::strerror(errno)});
  struct stat about = {};
  if (::fstat(number, &about) != 0) refuse({std::strerror(errno)});
  if (S_ISDIR(about.st_mode)) refuse({"it is a folder, a ", kind, " is needed"});
  if (!S_ISREG(about.st_mode)) refuse({"it is a FIFO, a socket or a device, a regular file is needed"});
  if (about.st_size > 0 && std::uint64_t(about.st_size) > most)
    refuse({"it has ", std::uint64_t(about.st_size), " bytes, a ", kind, " has at most ", most});
  size_ = about.st_size > 0 ? std::size_t(about.st_size) : 0;
}

WEFT_INLINE InputFile::Descriptor::~Descriptor() {
  if (number >= 0) ::close(number);
}

WEFT_INLINE std::string InputFile::read() const {
  std::string text(size_, '\0');
  for (std::size_t at = 0; at < size_;) {
    const ssize_t got =
        ::pread(descriptor_.number, text.data() + at, std::min<std::size_t>(size_ - at, std::size_t(1) << 30), off_t(at));
    if (got > 0) at += std::size_t(got);
    else if (got == 0) refuse({"it became shorter while it was read: ", at, " of ", size_, " bytes"});
    else if (errno != EINTR) refuse({std::strerror(errno)});
  }
  return text;
}

WEFT_INLINE std::uint64_t half_of_memory() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), bytes = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && bytes > 0 ? std::uint64_t(pages) * std::uint64_t(bytes) / 2 : std::uint64_t(1) << 34;
}

}  // namespace weft::detail
