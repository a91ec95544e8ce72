// SPDX-License-Identifier: Apache-2.0
#pragma once
// The checks of an output file, and its writing. Definitions for core/output_file.hpp.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <weft/core/inline.hpp>
#include <weft/core/output_file.hpp>
#include <weft/core/uninterrupted.hpp>

namespace weft::detail {

/// Throws for a path to which a file cannot be written; without a writer, "WRITER: " is omitted.
[[noreturn]] WEFT_COLD WEFT_INLINE void refuse_output(std::string_view writer, std::string_view path, std::string_view reason,
                                                      int exit_code) {
  const std::string text = joined({writer, writer.empty() ? "" : ": ", "cannot write '", path, "': ", reason});
  if (exit_code == 2) throw UsageError(text);
  throw Error(text, exit_code);
}
WEFT_COLD WEFT_INLINE void require_regular(std::string_view writer, std::string_view path, unsigned mode) {
  if (S_ISREG(mode)) return;
  refuse_output(writer, path,
                S_ISDIR(mode)    ? "it is a folder, a regular file is needed"
                : S_ISFIFO(mode) ? "it is a FIFO, a regular file is needed"
                : S_ISSOCK(mode) ? "it is a socket, a regular file is needed"
                                 : "it is a device, a regular file is needed",
                2);
}

WEFT_INLINE void require_output(std::string_view writer, const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) == 0) return require_regular(writer, path, status.st_mode);
  if (::lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode))
    refuse_output(writer, path, "it is a link that leads to no file, a regular file is needed", 2);
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (::access(folder.c_str(), W_OK | X_OK) != 0) refuse_output(writer, path, std::strerror(errno), exit_code_of_errno(errno));
}

WEFT_INLINE OutputFile::OutputFile(std::string_view writer, std::string path, Earlier earlier)
    : writer_(writer), path_(std::move(path)) {
  require_output(writer_, path_);  // opening a device may have effects
  const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (earlier == Earlier::stay ? O_APPEND : 0);
  descriptor_ = uninterrupted([&] { return ::open(path_.c_str(), flags, 0666); });
  struct stat status = {};
  if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0) refuse(errno);
  const auto check = [&] {
    require_regular(writer_, path_, status.st_mode);
    if (earlier == Earlier::go && uninterrupted([&] { return ::ftruncate(descriptor_, 0); }) != 0) refuse(errno);
  };
  try {
    check();
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

WEFT_INLINE OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

WEFT_COLD WEFT_INLINE void OutputFile::refuse(int error) const {
  refuse_output(writer_, path_, std::strerror(error), exit_code_of_errno(error));
}

WEFT_INLINE void OutputFile::write(std::string_view text) {
  while (!text.empty()) {
    const ::ssize_t put = ::write(descriptor_, text.data(), text.size());
    if (put > 0) text.remove_prefix(std::size_t(put));
    else if (put == 0) refuse(ENOSPC);
    else if (errno != EINTR) refuse(errno);
  }
}

WEFT_INLINE void OutputFile::finish() {
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) refuse(errno);
}

WEFT_INLINE void write_output(std::string_view writer, const std::string& path, std::string_view text) {
  OutputFile file(writer, path);
  file.write(text);
  file.finish();
}

}  // namespace weft::detail
